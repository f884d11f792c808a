package filter

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var _ Log = (*commitlog.Log)(nil)

const startMs = 1_700_000_000_000

// codecs are all that a batch can have.
var codecs = []protocol.Codec{
	protocol.CodecNone, protocol.CodecGzip, protocol.CodecSnappy, protocol.CodecLz4, protocol.CodecZstd,
}

// testLog is a log in memory, compacted on demand.
type testLog struct {
	*commitlog.Log
	t      testing.TB
	fs     vfs.FS
	nowMs  int64
	build  protocol.BatchBuilder
	config commitlog.Config

	nullKeys bool // appendRandom leaves out some keys; such a log is not compacted
}

func openLog(t testing.TB, segmentBytes int64) *testLog {
	l := &testLog{t: t, fs: vfs.NewMem(), nowMs: startMs, config: commitlog.DefaultConfig()}
	l.config.SegmentBytes = segmentBytes
	l.config.MinCleanableRatio = 0
	l.config.DeleteRetentionMs = 0
	require.NoError(t, l.fs.MkdirAll("data", 0o755))
	l.open()
	t.Cleanup(func() { _ = l.Close() })
	return l
}

func (l *testLog) open() {
	log, err := commitlog.Open(commitlog.Options{
		FS: l.fs, Dir: "data/orders-0", Name: "orders-0", Fsync: true, Config: l.config,
		Now: func() time.Time { return time.UnixMilli(l.nowMs) },
	})
	require.NoError(l.t, err)
	l.Log = log
}

// reopen closes the log and opens it again.
func (l *testLog) reopen() {
	require.NoError(l.t, l.Close())
	l.open()
}

// append appends a batch and waits until it is visible.
func (l *testLog) append(batch []byte, internal bool) {
	a, err := l.Append(batch, commitlog.AppendOptions{Internal: internal})
	require.NoError(l.t, err)
	if a.Flush != nil {
		<-a.Flush.Done()
		require.NoError(l.t, a.Flush.Err())
	}
}

// record is what a test appends.
type record struct {
	key, value []byte
}

func (l *testLog) appendRecords(codec protocol.Codec, records ...record) {
	o := protocol.PlainBatch(0)
	o.Codec = codec
	l.appendBatch(o, records)
}

func (l *testLog) appendBatch(o protocol.BatchOptions, records []record) {
	l.build.Reset(o)
	for _, r := range records {
		l.build.Append(r.key, r.value, nil, l.nowMs)
	}
	batch, err := l.build.Build(nil)
	require.NoError(l.t, err)
	l.append(batch, false)
}

// appendMarker ends a transaction.
func (l *testLog) appendMarker(producer int64, commit bool) {
	batch, err := l.build.AppendEndTxnMarker(nil, protocol.EndTxnMarker{ProducerID: producer, Commit: commit}, l.nowMs)
	require.NoError(l.t, err)
	l.append(batch, true)
}

// clean compacts all that is sealed.
func (l *testLog) clean() {
	if l.nullKeys {
		return
	}
	c := l.config
	c.Compact = true
	l.SetConfig(c)
	defer l.SetConfig(l.config)
	l.nowMs += 10_000
	_, err := l.Clean(time.UnixMilli(l.nowMs))
	require.NoError(l.t, err)
}

// damage writes over bytes of a side file, or removes it.
func (l *testLog) damage(base int64, how string) {
	name := fmt.Sprintf("data/orders-0/%020d%s", base, indexExt)
	if how == "remove" {
		_ = l.fs.Remove(name)
		return
	}
	f, err := l.fs.Create(name, vfs.WriteCategoryUnspecified)
	require.NoError(l.t, err)
	_, err = f.Write([]byte(how))
	require.NoError(l.t, err)
	require.NoError(l.t, f.Close())
}

// appendRandom appends a batch of any codec, now and then a transaction of two.
func (l *testLog) appendRandom(rng *rand.Rand, keys int) {
	o := protocol.PlainBatch(0)
	o.Codec = codecs[rng.IntN(len(codecs))]
	records := make([]record, 1+rng.IntN(20))
	for i := range records {
		records[i] = record{fmt.Appendf(nil, "key-%d", rng.IntN(keys)), fmt.Appendf(nil, "value %d of a record", rng.IntN(1e6))}
		if rng.IntN(10) == 0 {
			records[i].value = nil
		}
		if l.nullKeys && rng.IntN(3) == 0 {
			records[i].key = nil
		}
	}
	if rng.IntN(6) > 0 {
		l.appendBatch(o, records)
		return
	}
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = 1000+l.Bounds().End, 0, 0, true
	l.appendBatch(o, records)
	o.BaseSequence = int32(len(records))
	l.appendBatch(o, records[:1])
	l.appendMarker(o.ProducerID, rng.IntN(2) == 0)
}

// decode reads batches as a client does, control records apart.
func decode(t require.TestingT, batches []byte) (records, control []*kgo.Record) {
	p, _ := kgo.ProcessFetchPartition(
		kgo.ProcessFetchPartitionOpts{KeepControlRecords: true},
		&kmsg.FetchResponseTopicPartition{RecordBatches: batches}, kgo.DefaultDecompressor(), nil)
	require.NoError(t, p.Err)
	// kgo takes what it cannot decompress for a batch that was cut off, and stops there.
	require.Equal(t, countRecords(t, batches), len(p.Records), "records that kgo made of the batches")
	for _, r := range p.Records {
		if r.Attrs.IsControl() {
			control = append(control, r)
		} else {
			records = append(records, r)
		}
	}
	return records, control
}

// countRecords is how many records the headers of batches promise.
func countRecords(t require.TestingT, batches []byte) int {
	n := 0
	for len(batches) > 0 {
		h, err := protocol.ParseBatchHeader(batches)
		require.NoError(t, err)
		require.LessOrEqual(t, h.Size(), len(batches), "whole batches only")
		n += int(h.NumRecords)
		batches = batches[h.Size():]
	}
	return n
}

// wanted is what a client that reads everything from offset from on, and drops what it
// does not want, is left with.
func (l *testLog) wanted(asked protocol.KeyFilter, from, upTo int64) []*kgo.Record {
	var all []byte
	for next := from; next < upTo; {
		r, err := l.Read(all, next, commitlog.ReadOptions{MaxBytes: 1 << 20, UpTo: upTo, MinOne: true})
		require.NoError(l.t, err)
		if r.Next == next {
			break // only holes are left
		}
		all, next = r.Data, r.Next
	}
	records, _ := decode(l.t, all)
	return matching(records, asked, from)
}

func matching(records []*kgo.Record, asked protocol.KeyFilter, from int64) []*kgo.Record {
	var kept []*kgo.Record
	for _, r := range records {
		if r.Offset >= from && matches(asked, r) {
			kept = append(kept, r)
		}
	}
	return kept
}

func matches(asked protocol.KeyFilter, r *kgo.Record) bool {
	for _, k := range asked.Keys {
		if r.Key != nil && string(k) == string(r.Key) {
			return true
		}
	}
	slot := keyfilter.Slot(r.Key, r.Offset)
	for _, s := range asked.Ranges {
		if s.Lo <= slot && slot <= s.Hi {
			return true
		}
	}
	return false
}

func mustFilter(t require.TestingT, asked protocol.KeyFilter) *keyfilter.Filter {
	f, err := keyfilter.New(asked)
	require.NoError(t, err)
	return f
}

// slots is a filter of one range, both ends included.
func slots(lo, hi int) protocol.KeyFilter {
	return protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: uint16(lo), Hi: uint16(hi)}}}
}

// share is a filter of the i-th of n equal parts of the slots.
func share(i, n int) protocol.KeyFilter {
	return slots(i*keyfilter.Slots/n, (i+1)*keyfilter.Slots/n-1)
}

// readAll fetches to the high watermark and returns the records from offset from on.
func readAll(t require.TestingT, r *Reader, l Log, asked protocol.KeyFilter, from int64, o Options) []*kgo.Record {
	f := mustFilter(t, asked)
	o.UpTo = l.Bounds().HighWatermark
	var got []*kgo.Record
	for next := from; next < o.UpTo; {
		fetched, err := r.Fetch(l, nil, next, f, o)
		require.NoError(t, err)
		require.Greater(t, fetched.Next, next, "each fetch gets on")
		records, _ := decode(t, fetched.Data)
		got = append(got, matching(records, asked, next)...)
		next = fetched.Next
	}
	return got
}
