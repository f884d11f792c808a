package journal

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

// CorruptError is a batch of a journal that cannot be read. Its owner decides what is
// lost with it.
type CorruptError struct {
	Journal string
	Offset  int64 // of the first record that may be lost
	Next    int64 // one past the last, -1 if that is not known
	Err     error
}

func (e *CorruptError) Error() string {
	to := "an unknown offset"
	if e.Next >= 0 {
		to = fmt.Sprint(e.Next)
	}
	return fmt.Sprintf("journal %s: the records from offset %d to %s are lost: %v", e.Journal, e.Offset, to, e.Err)
}

func (e *CorruptError) Unwrap() error { return e.Err }

// loadBytes is how much of the log is read at a time. A batch that is larger is read
// alone.
const loadBytes = 1 << 20

// Replay calls apply with each record from offset from on, up to what was durable when
// it began, and returns the offset after it. What a record points to is valid during the
// call only. It ends early with the error of apply, with a *CorruptError, or with that
// of ctx; then next is the first offset that is not done.
func (j *Journal) Replay(ctx context.Context, from int64, apply func(offset int64, r Record) error) (next int64, err error) {
	return j.ReplayTransactions(ctx, from, apply, nil)
}

// ReplayTransactions is Replay that calls end, if it is not nil, with each transaction
// marker in its place among the records; see Transactional.
func (j *Journal) ReplayTransactions(ctx context.Context, from int64, apply func(offset int64, r Record) error,
	end func(offset int64, t Transaction, commit bool) error,
) (next int64, err error) {
	p := replay{journal: j, apply: apply, end: end, next: from}
	high := j.log.Bounds().HighWatermark
	for p.next < high {
		if err := ctx.Err(); err != nil {
			return p.next, err
		}
		if err := p.load(high); err != nil {
			return p.next, err
		}
	}
	return p.next, nil
}

// replay is the state of one Replay; its buffers are reused.
type replay struct {
	journal      *Journal
	apply        func(offset int64, r Record) error
	end          func(offset int64, t Transaction, commit bool) error
	next         int64
	data         []byte
	transaction  Transaction // of the batch at hand
	decompressor protocol.Decompressor
}

// load reads and applies a load of batches.
func (p *replay) load(high int64) error {
	read, err := p.journal.log.Read(p.data[:0], p.next, commitlog.ReadOptions{MaxBytes: loadBytes, UpTo: high, MinOne: true})
	if errors.Is(err, protocol.ErrCorruptBatch) || errors.Is(err, protocol.ErrUnsupportedMagic) {
		return p.corrupt(p.next, -1, err)
	}
	if err != nil {
		return fmt.Errorf("journal %s: read from offset %d: %w", p.journal.name, p.next, err)
	}
	if p.data = read.Data; len(p.data) == 0 {
		p.next = high // the cleaner left nothing there
		return nil
	}
	for rest := p.data; len(rest) > 0; {
		h, err := protocol.ParseBatchHeader(rest)
		if err == nil && h.Size() > len(rest) {
			err = fmt.Errorf("%w: %d bytes, the header says %d", protocol.ErrCorruptBatch, len(rest), h.Size())
		}
		if err != nil {
			return p.corrupt(p.next, -1, err)
		}
		if err := p.batch(&h, rest[:h.Size()]); err != nil {
			return err
		}
		rest = rest[h.Size():]
	}
	return nil
}

// batch applies the records of one batch that are not below next.
func (p *replay) batch(h *protocol.BatchHeader, batch []byte) error {
	if err := protocol.VerifyCRC(h, batch); err != nil {
		return p.corrupt(max(h.BaseOffset, p.next), h.NextOffset(), err)
	}
	if h.Control() && p.end == nil {
		p.next = h.NextOffset()
		return nil
	}
	data, err := p.decompressor.Records(h, batch, math.MaxInt32)
	if err != nil {
		return p.corrupt(max(h.BaseOffset, p.next), h.NextOffset(), err)
	}
	if h.Control() {
		return p.marker(h, data)
	}
	var transaction *Transaction
	if h.Transactional() {
		p.transaction = Transaction{ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch}
		transaction = &p.transaction
	}
	records := protocol.IterateRecords(h, data)
	for records.Next() {
		r := records.Record()
		if r.Offset < p.next {
			continue
		}
		record := Record{Key: r.Key, Value: r.Value, TimestampMs: r.TimestampMs, Transaction: transaction}
		if err := p.apply(r.Offset, record); err != nil {
			return fmt.Errorf("journal %s, record at offset %d: %w", p.journal.name, r.Offset, err)
		}
		p.next = r.Offset + 1
	}
	if err := records.Err(); err != nil {
		return p.corrupt(p.next, h.NextOffset(), err)
	}
	p.next = h.NextOffset()
	return nil
}

// marker tells of the control batch that ends a transaction; others mean nothing here.
func (p *replay) marker(h *protocol.BatchHeader, data []byte) error {
	m, ok, err := protocol.ParseEndTxnMarker(h, data)
	if err != nil {
		return p.corrupt(max(h.BaseOffset, p.next), h.NextOffset(), err)
	}
	if ok && h.BaseOffset >= p.next {
		t := Transaction{ProducerID: m.ProducerID, ProducerEpoch: m.ProducerEpoch}
		if err := p.end(h.BaseOffset, t, m.Commit); err != nil {
			return fmt.Errorf("journal %s, marker of producer %d at offset %d: %w", p.journal.name, m.ProducerID, h.BaseOffset, err)
		}
	}
	p.next = h.NextOffset()
	return nil
}

func (p *replay) corrupt(from, next int64, err error) error {
	return &CorruptError{Journal: p.journal.name, Offset: from, Next: next, Err: err}
}
