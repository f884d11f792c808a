package journal

import (
	"context"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/statestore"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var ctx = context.Background()

// memLog is a log in memory whose high watermark the test moves.
type memLog struct {
	mu      sync.Mutex
	batches [][]byte
	start   int64
	end     int64
	high    int64
	lag     bool // appends leave the high watermark where it is
	err     error
	watches []chan<- struct{}
}

func (l *memLog) Append(batch []byte, _ commitlog.AppendOptions) (commitlog.Appended, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.err != nil {
		return commitlog.Appended{}, l.err
	}
	h, err := protocol.ParseBatchHeader(batch)
	if err != nil {
		return commitlog.Appended{}, err
	}
	protocol.SetBaseOffset(batch, l.end)
	a := commitlog.Appended{Base: l.end, Last: l.end + int64(h.LastOffsetDelta)}
	l.batches = append(l.batches, append([]byte{}, batch...))
	if l.end = a.Last + 1; !l.lag {
		l.high = l.end
	}
	return a, nil
}

func (l *memLog) Read(dst []byte, from int64, o commitlog.ReadOptions) (commitlog.Read, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := commitlog.Read{Data: dst, Next: from}
	if from < l.start || from > l.high {
		return r, commitlog.ErrOffsetOutOfRange
	}
	for _, b := range l.batches {
		h, err := protocol.ParseBatchHeader(b)
		if err != nil {
			if len(r.Data) == len(dst) {
				return r, err
			}
			break
		}
		if h.NextOffset() <= from {
			continue
		}
		first := len(r.Data) == len(dst)
		if h.NextOffset() > o.UpTo || len(r.Data)-len(dst)+len(b) > o.MaxBytes && !(first && o.MinOne) {
			break
		}
		r.Data, r.Next = append(r.Data, b...), h.NextOffset()
	}
	return r, nil
}

func (l *memLog) Bounds() commitlog.Bounds {
	l.mu.Lock()
	defer l.mu.Unlock()
	return commitlog.Bounds{Start: l.start, LSO: l.high, HighWatermark: l.high, End: l.end}
}

func (*memLog) InTransaction(int64) bool { return false }

func (l *memLog) Watch(ch chan<- struct{}) (cancel func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.watches = append(l.watches, ch)
	return func() {}
}

func (l *memLog) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.err
}

// change changes the log and tells those who watch.
func (l *memLog) change(f func()) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f()
	for _, ch := range l.watches {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}

// keep is a State that keeps the last value of each key.
type keep struct {
	values map[string]string
	dirty  map[string]bool
	loads  int
	refuse error // of Load
}

func newKeep() *keep {
	k := &keep{}
	k.Reset()
	return k
}

func (k *keep) Reset() { k.values, k.dirty, k.loads = map[string]string{}, map[string]bool{}, 0 }

func (k *keep) Load(key, value []byte) error {
	k.loads++
	k.values[string(key)] = string(value)
	return k.refuse
}

func (k *keep) Apply(_ int64, r Record) error {
	if r.Value == nil {
		delete(k.values, string(r.Key))
	} else {
		k.values[string(r.Key)] = string(r.Value)
	}
	k.dirty[string(r.Key)] = true
	return nil
}

func (k *keep) Checkpoint(w Writer) error {
	for key := range k.dirty {
		if value, ok := k.values[key]; ok {
			w.Set([]byte(key), []byte(value))
		} else {
			w.Delete([]byte(key))
		}
	}
	clear(k.dirty)
	return nil
}

// put makes records of "key=value" pairs; without a value they are tombstones.
func put(pairs ...string) []Record {
	var records []Record
	for i := 0; i < len(pairs); i += 2 {
		r := Record{Key: []byte(pairs[i]), TimestampMs: 1000 + int64(i)}
		if pairs[i+1] != "" {
			r.Value = []byte(pairs[i+1])
		}
		records = append(records, r)
	}
	return records
}

func appendTo(t testing.TB, log Log, records []Record) Receipt {
	t.Helper()
	receipt, err := Open(log, "j").Append(records)
	require.NoError(t, err)
	require.NoError(t, receipt.Wait(ctx))
	return receipt
}

func openStore(t testing.TB, fs vfs.FS) *statestore.DB {
	t.Helper()
	db, err := statestore.Open(fs, "views", statestore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}
