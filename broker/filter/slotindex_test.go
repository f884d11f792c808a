package filter

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

// wide is how much a fetch of these tests may send.
var wide = Options{MaxBytes: 1 << 30, MinOne: true}

// fill appends batches of records with keys of their own, key-0 and on, and seals every
// segment.
func fill(t testing.TB, l *testLog, codec protocol.Codec, batches, records int) {
	n := 0
	for range batches {
		batch := make([]record, records)
		for i := range batch {
			batch[i] = record{fmt.Appendf(nil, "key-%d", n), fmt.Appendf(nil, "a value of some length, for record %d", n)}
			n++
		}
		l.appendRecords(codec, batch...)
	}
	require.NoError(t, l.Seal())
}

// batchesWithSlot counts the batches that hold a record of the key's slot.
func batchesWithSlot(t testing.TB, l Log, key string) (batches, bytes int64) {
	var d keyfilter.Decoded
	want := keyfilter.Slot([]byte(key), 0)
	b := l.Bounds()
	read, err := l.Read(nil, b.Start, commitlog.ReadOptions{MaxBytes: 1 << 30, UpTo: b.HighWatermark})
	for err == nil && len(read.Data) > 0 {
		all := read.Data
		for len(all) > 0 {
			h, err := protocol.ParseBatchHeader(all)
			require.NoError(t, err)
			require.NoError(t, d.Decode(all[:h.Size()], 1<<20))
			for i := range d.Len() {
				if d.Slot(i) == want {
					batches, bytes = batches+1, bytes+int64(h.Size())
					break
				}
			}
			all = all[h.Size():]
		}
		read, err = l.Read(nil, read.Next, commitlog.ReadOptions{MaxBytes: 1 << 30, UpTo: b.HighWatermark})
	}
	require.NoError(t, err)
	return batches, bytes
}

// TestRareKeyReadsOnlyItsBatches reads one key of many, once to build the index, then
// with the index saved and everything else forgotten.
func TestRareKeyReadsOnlyItsBatches(t *testing.T) {
	batches := 400
	if os.Getenv("LACUNA_LONG") != "" {
		batches = 73_000 // 10 million records
	}
	l := openLog(t, int64(batches)*700) // a handful of segments
	fill(t, l, protocol.CodecZstd, batches, 137)
	asked := protocol.KeyFilter{Keys: [][]byte{[]byte("key-4711")}}
	segments := int64(len(l.Segments()))
	require.Greater(t, segments, int64(1))

	r := New(Config{})
	require.Equal(t, []int64{4711}, offsets(readAll(t, r, l, asked, 0, wide)))
	require.EqualValues(t, batches, r.Stats().BatchesDecoded, "the first read sees everything, once")
	r.SaveIndexes(t.Context())
	require.Equal(t, segments, r.Stats().IndexesSaved)
	r.SaveIndexes(t.Context())
	require.Equal(t, segments, r.Stats().IndexesSaved, "once is enough")

	may, mayBytes := batchesWithSlot(t, l, "key-4711")
	r = New(Config{})
	require.Equal(t, []int64{4711}, offsets(readAll(t, r, l, asked, 0, wide)))
	s := r.Stats()
	require.Equal(t, segments, s.IndexesLoaded)
	require.Equal(t, may, s.BatchesDecoded)
	stamps := 2 * segments // two headers for each index that is loaded
	require.Equal(t, may+stamps, s.SegmentReads+stamps)
	require.Equal(t, mayBytes, s.SegmentReadBytes)

	require.Equal(t, []int64{4711}, offsets(readAll(t, r, l, asked, 0, wide)))
	require.Equal(t, s.IndexesLoaded, r.Stats().IndexesLoaded, "it is loaded once")
	require.Equal(t, s.BatchesDecoded, r.Stats().BatchesDecoded, "and the batches are still there")
}

// TestBadIndexIsBuiltAnew damages saved indexes in every way: answers stay right, and a
// good index is saved again.
func TestBadIndexIsBuiltAnew(t *testing.T) {
	for name, damage := range map[string]func(saved [][]byte) string{
		"missing":             func(saved [][]byte) string { return "remove" },
		"empty":               func(saved [][]byte) string { return "" },
		"a flipped bit":       func(saved [][]byte) string { saved[0][70] ^= 1; return string(saved[0]) },
		"cut off":             func(saved [][]byte) string { return string(saved[0][:100]) },
		"of another segment":  func(saved [][]byte) string { return string(saved[1]) },
		"of an older content": func(saved [][]byte) string { return restamped(saved[0], 12345) },
		"as it was":           func(saved [][]byte) string { return string(saved[0]) },
	} {
		t.Run(name, func(t *testing.T) {
			l := openLog(t, 20_000)
			fill(t, l, protocol.CodecNone, 50, 20)
			asked := share(3, 16)
			want := l.wanted(asked, 0, 1000)
			r := New(Config{})
			readAll(t, r, l, asked, 0, wide)
			r.SaveIndexes(t.Context())
			list := l.Segments()
			require.Greater(t, len(list), 1)
			var saved [][]byte
			for _, info := range list {
				data, err := l.SideFile(info, indexExt)
				require.NoError(t, err)
				saved = append(saved, data)
			}
			l.damage(list[0].Base, damage(saved))

			r = New(Config{})
			require.Equal(t, want, readAll(t, r, l, asked, 0, wide))
			bad := int64(1)
			if name == "as it was" {
				bad = 0
			}
			require.Equal(t, int64(len(list))-bad, r.Stats().IndexesLoaded)
			r.SaveIndexes(t.Context())
			require.Equal(t, bad, r.Stats().IndexesSaved)

			r = New(Config{})
			require.Equal(t, want, readAll(t, r, l, asked, 0, wide))
			require.EqualValues(t, len(list), r.Stats().IndexesLoaded)
			require.Zero(t, r.Stats().IndexFaults)
		})
	}
}

// restamped is an encoded index with another stamp.
func restamped(data []byte, stamp uint64) string {
	x, _, err := keyfilter.DecodeSlotIndex(data)
	if err != nil {
		panic(err)
	}
	return string(x.AppendTo(nil, stamp))
}

// TestIndexThatLies gives a segment an index with a right stamp that knows one batch
// where there are twenty: what it points to is checked, so it is found out.
func TestIndexThatLies(t *testing.T) {
	l := openLog(t, 1<<20)
	fill(t, l, protocol.CodecNone, 20, 10)
	info := l.Segments()[0]
	var batch []byte
	for n := int(info.SizeBytes) - 100; len(batch) < int(info.SizeBytes); n++ {
		l.build.Reset(protocol.PlainBatch(0))
		l.build.Append([]byte("order-1"), make([]byte, n), nil, 0)
		var err error
		batch, err = l.build.Build(nil)
		require.NoError(t, err)
	}
	require.Len(t, batch, int(info.SizeBytes))
	var d keyfilter.Decoded
	require.NoError(t, d.Decode(batch, 0))
	lie := keyfilter.NewSlotIndex(0, 0)
	require.NoError(t, lie.Append(&d))
	r := New(Config{})
	stamp, err := r.partition(l).stamp(lie, info)
	require.NoError(t, err)
	require.NoError(t, l.WriteSideFile(info, indexExt, lie.AppendTo(nil, stamp)))

	asked := share(0, 2) // which order-1 is of
	require.Equal(t, l.wanted(asked, 0, 200), readAll(t, r, l, asked, 0, wide))
	require.EqualValues(t, 1, r.Stats().IndexesLoaded)
	require.EqualValues(t, 1, r.Stats().IndexFaults)
	r.SaveIndexes(t.Context())
	require.EqualValues(t, 1, r.Stats().IndexesSaved)
}

// faultyLog fails reads when told to.
type faultyLog struct {
	*testLog
	failReads atomic.Bool
	failSides atomic.Bool
}

var errDisk = errors.New("disk fault")

func (l *faultyLog) ReadSegment(s commitlog.SegmentInfo, pos int64, p []byte) (int, error) {
	if l.failReads.Load() {
		return 0, errDisk
	}
	return l.testLog.ReadSegment(s, pos, p)
}

func (l *faultyLog) SideFile(s commitlog.SegmentInfo, ext string) ([]byte, error) {
	if l.failSides.Load() {
		return nil, errDisk
	}
	return l.testLog.SideFile(s, ext)
}

func (l *faultyLog) WriteSideFile(s commitlog.SegmentInfo, ext string, data []byte) error {
	if l.failSides.Load() {
		return errDisk
	}
	return l.testLog.WriteSideFile(s, ext, data)
}

// TestReadFaults: a read that fails is the fetch's error and is not remembered; an index
// that cannot be read or saved is no error at all.
func TestReadFaults(t *testing.T) {
	l := &faultyLog{testLog: openLog(t, 20_000)}
	fill(t, l.testLog, protocol.CodecLz4, 50, 20)
	asked := share(3, 16)
	want := l.wanted(asked, 0, 1000)
	r := New(Config{})

	l.failReads.Store(true)
	l.failSides.Store(true)
	got, err := r.Fetch(l, []byte("before"), 0, mustFilter(t, asked), Options{UpTo: 1000, MaxBytes: 1e6})
	require.ErrorIs(t, err, errDisk)
	require.ErrorContains(t, err, "orders-0")
	require.Equal(t, Fetched{Data: []byte("before")}, got)
	l.failReads.Store(false)
	require.Equal(t, want, readAll(t, r, l, asked, 0, wide))
	faults := r.Stats().IndexFaults
	require.EqualValues(t, len(l.Segments()), faults, "no side file could be looked for")
	r.SaveIndexes(t.Context())
	require.Zero(t, r.Stats().IndexesSaved)
	require.Equal(t, 2*faults, r.Stats().IndexFaults)

	l.failSides.Store(false)
	r.SaveIndexes(t.Context())
	require.EqualValues(t, len(l.Segments()), r.Stats().IndexesSaved)
	_, err = l.SideFile(l.Segments()[0], indexExt)
	require.NoError(t, err)
}

// TestCompactionDropsIndexes: a segment that was compacted is another one.
func TestCompactionDropsIndexes(t *testing.T) {
	l := openLog(t, 10_000)
	for range 3 {
		fill(t, l, protocol.CodecSnappy, 20, 10)
	}
	l.appendRecords(protocol.CodecNone, record{[]byte("key-1"), nil})
	r := New(Config{})
	asked := share(0, 4)
	before := readAll(t, r, l, asked, 0, wide)
	r.SaveIndexes(t.Context())
	first := l.Segments()[0]
	l.clean()
	_, err := l.SideFile(first, indexExt)
	require.ErrorIs(t, err, commitlog.ErrSegmentGone)
	_, err = l.SideFile(l.Segments()[0], indexExt)
	require.ErrorIs(t, err, fs.ErrNotExist)

	want := l.wanted(asked, 0, l.Bounds().HighWatermark)
	require.Less(t, len(want), len(before))
	require.Equal(t, want, readAll(t, r, l, asked, 0, wide))
	r.SaveIndexes(t.Context())
	require.Equal(t, want, readAll(t, New(Config{}), l, asked, 0, wide))
}

// TestActiveSegmentIndexGrows: a reader at the tail decodes each new batch once and no
// old one, however often it asks; a second one needs none of them again.
func TestActiveSegmentIndexGrows(t *testing.T) {
	l := openLog(t, 1<<20)
	asked := protocol.KeyFilter{Keys: [][]byte{[]byte("key-3")}}
	r := New(Config{DecodedCacheBytes: 1}) // so that only the index can help
	for i := range 100 {
		l.appendRecords(protocol.CodecZstd, record{fmt.Appendf(nil, "key-%d", i), nil})
		readAll(t, r, l, asked, 0, wide)
		decoded := r.Stats().BatchesDecoded
		if i < 3 {
			require.EqualValues(t, i+1, decoded)
		} else {
			require.EqualValues(t, i+1+i-3, decoded, "the new one, and each time the one that matches")
		}
	}
}

// TestSpansMeet has readers begin at several places of a segment; when all is read the
// pieces of the index are one, whole and saved.
func TestSpansMeet(t *testing.T) {
	l := openLog(t, 1<<20)
	fill(t, l, protocol.CodecNone, 100, 3)
	info := l.Segments()[0]
	asked := slots(0, 60000)
	r := New(Config{})
	state := r.partition(l).segment(info, l.Segments())
	f := mustFilter(t, asked)
	for i, from := range []int64{150, 271, 30, 90, 32, 100, 153, 200, 60, 240, 250, 260} {
		_, err := r.Fetch(l, nil, from, f, Options{UpTo: 300, MaxBytes: 1, MinOne: true})
		require.NoError(t, err)
		require.LessOrEqual(t, len(state.mu.spans), min(i+1, maxSpans))
	}
	require.Len(t, state.mu.spans, maxSpans)
	var got []*kgo.Record
	for _, from := range []int64{100, 0} {
		got = readAll(t, r, l, asked, from, wide)
	}
	require.Equal(t, l.wanted(asked, 0, 300), got)
	require.Len(t, state.mu.spans, 1)
	r.SaveIndexes(t.Context())
	require.EqualValues(t, 1, r.Stats().IndexesSaved)
}
