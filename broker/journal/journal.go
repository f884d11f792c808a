package journal

import (
	"context"
	"fmt"
	"sync"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

// Log is what a journal needs of a partition's log; *commitlog.Log is one.
type Log interface {
	Append(batch []byte, o commitlog.AppendOptions) (commitlog.Appended, error)
	Read(dst []byte, from int64, o commitlog.ReadOptions) (commitlog.Read, error)
	Bounds() commitlog.Bounds
	InTransaction(producerID int64) bool
	Watch(ch chan<- struct{}) (cancel func())
	Err() error
}

// Record is one keyed record.
type Record struct {
	Key         []byte
	Value       []byte // nil: a tombstone
	TimestampMs int64
	// Transaction is set by Replay for a record that was appended in one; nil: none. It is
	// not read by appends.
	Transaction *Transaction
}

// Journal appends to one partition of an internal topic. Its methods may be called from
// any goroutine.
type Journal struct {
	log   Log
	name  string
	codec protocol.Codec

	mu struct {
		sync.Mutex
		builder protocol.BatchBuilder
		batch   []byte
	}
}

// keepBatchBytes is the largest buffer that is kept for the next append.
const keepBatchBytes = 256 << 10

// Open makes a journal of log. The name is for errors, such as "__consumer_offsets-7".
func Open(log Log, name string) *Journal { return &Journal{log: log, name: name} }

// OpenCompressed is Open with a codec for what is appended.
func OpenCompressed(log Log, name string, codec protocol.Codec) *Journal {
	return &Journal{log: log, name: name, codec: codec}
}

// Append appends the records, at least one, as one batch: they come to be together or
// not at all. Batches stand in the order of the calls. After an error nothing was
// appended that will ever be seen, but the log may take no more.
func (j *Journal) Append(records []Record) (Receipt, error) {
	return j.append(protocol.PlainBatch(0), commitlog.AppendOptions{Internal: true}, records)
}

// AppendNoWait is Append for records for which nobody waits: they become durable with the
// next that are waited for, or soon. The receipt says where they are, and waits for nothing.
func (j *Journal) AppendNoWait(records []Record) (Receipt, error) {
	return j.append(protocol.PlainBatch(0), commitlog.AppendOptions{Internal: true, NoWait: true}, records)
}

func (j *Journal) append(o protocol.BatchOptions, how commitlog.AppendOptions, records []Record) (Receipt, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	o.Codec = j.codec
	j.mu.builder.Reset(o)
	for i := range records {
		r := &records[i]
		j.mu.builder.Append(r.Key, r.Value, nil, r.TimestampMs)
	}
	batch, err := j.mu.builder.Build(j.mu.batch[:0])
	if err != nil {
		return Receipt{}, fmt.Errorf("journal %s: build a batch of %d records: %w", j.name, len(records), err)
	}
	receipt, err := j.appendLocked(batch, how)
	if err != nil {
		return Receipt{}, fmt.Errorf("journal %s: append %d records: %w", j.name, len(records), err)
	}
	return receipt, nil
}

// appendLocked appends a batch that was built in the journal's buffer.
func (j *Journal) appendLocked(batch []byte, o commitlog.AppendOptions) (Receipt, error) {
	appended, err := j.log.Append(batch, o)
	if j.mu.batch = batch; cap(batch) > keepBatchBytes {
		j.mu.batch, j.mu.builder = nil, protocol.BatchBuilder{}
	}
	if err != nil {
		return Receipt{}, err
	}
	return Receipt{First: appended.Base, Next: appended.Last + 1, flush: appended.Flush}, nil
}

// Receipt is for one append.
type Receipt struct {
	First int64 // offset of the first record
	Next  int64 // one past that of the last

	flush *commitlog.Flush
}

var closed = func() <-chan struct{} {
	c := make(chan struct{})
	close(c)
	return c
}()

// Done is closed when the records are durable, or never will be; Err tells which.
func (r Receipt) Done() <-chan struct{} {
	if r.flush == nil {
		return closed
	}
	return r.flush.Done()
}

// Err tells, once Done is closed, whether the records are durable.
func (r Receipt) Err() error {
	if r.flush == nil {
		return nil
	}
	return r.flush.Err()
}

// Wait waits until the records are durable. When ctx ends first they may still become
// so.
func (r Receipt) Wait(ctx context.Context) error {
	select {
	case <-r.Done():
		return r.Err()
	case <-ctx.Done():
		return ctx.Err()
	}
}
