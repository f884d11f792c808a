package filter

import (
	"fmt"
	"math/rand/v2"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

// seeds is how many random histories a test runs.
func seeds(few int) int {
	if os.Getenv("LACUNA_LONG") != "" {
		return 50 * few
	}
	return few
}

// TestFetchAgainstFullRead runs random histories of a log, in which segments roll, are
// compacted and deleted, and slot indexes are saved, lost, damaged and squeezed out of
// memory, and compares filtered reads with reading everything and filtering that.
func TestFetchAgainstFullRead(t *testing.T) {
	for seed := range seeds(15) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			h := newHistory(t, uint64(seed))
			for range 60 {
				h.step()
			}
			h.compare(0)
		})
	}
}

// history is a log, a reader of it, and dice.
type history struct {
	t      *testing.T
	rng    *rand.Rand
	log    *testLog
	reader *Reader
	keys   int
}

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 1)), log: openLog(t, 4000)}
	h.keys = []int{3, 30, 300}[h.rng.IntN(3)]
	h.log.nullKeys = h.rng.IntN(3) == 0
	h.newReader()
	return h
}

func (h *history) newReader() {
	c := Config{Decoding: commitlog.NewDecodeLimiter(1, 1<<20)}
	if h.rng.IntN(3) == 0 { // next to nothing stays in memory
		c.DecodedCacheBytes, c.IndexCacheBytes = 3000, 1000
	}
	h.reader = New(c)
}

func (h *history) step() {
	switch n := h.rng.IntN(40); {
	case n < 20:
		for range 1 + h.rng.IntN(8) {
			h.log.appendRandom(h.rng, h.keys)
		}
	case n < 30:
		b := h.log.Bounds()
		h.compare(b.Start + h.rng.Int64N(b.HighWatermark-b.Start+1))
	case n < 32:
		require.NoError(h.t, h.log.Seal())
	case n < 34:
		h.log.clean()
	case n < 36:
		h.reader.SaveIndexes(h.t.Context())
	case n < 37:
		b := h.log.Bounds()
		_, err := h.log.DeleteRecords(b.Start + h.rng.Int64N(b.HighWatermark-b.Start+1)/3)
		require.NoError(h.t, err)
	case n < 38:
		h.log.damage(h.anySegment(), []string{"remove", "LSIX", "", "not an index at all"}[h.rng.IntN(4)])
		h.newReader()
	case n < 39:
		h.newReader()
	default:
		h.reader.Forget(h.log)
		h.log.reopen()
	}
}

func (h *history) anySegment() int64 {
	list := h.log.Segments()
	if len(list) == 0 {
		return 0
	}
	return list[h.rng.IntN(len(list))].Base
}

// compare reads from offset from on, in one way or another.
func (h *history) compare(from int64) {
	b := h.log.Bounds()
	from = max(from, b.Start)
	asked := h.filter()
	o := Options{MaxBytes: []int{1, 300, 1 << 20}[h.rng.IntN(3)], MinOne: true}
	if h.rng.IntN(2) == 0 {
		o.MaxScanBytes = int64(1 + h.rng.IntN(3000))
	}
	got := readAll(h.t, h.reader, h.log, asked, from, o)
	want := h.log.wanted(asked, from, b.HighWatermark)
	require.Equal(h.t, offsets(want), offsets(got), "filter %v from %d", asked, from)
	require.Equal(h.t, want, got)
	require.Equal(h.t, offsets(want), scanAll(h.t, h.reader, h.log, asked, from, o), "filter %v from %d", asked, from)
}

// scanAll scans to the high watermark and returns the offsets of the records that match.
func scanAll(t require.TestingT, r *Reader, l Log, asked protocol.KeyFilter, from int64, o Options) (found []int64) {
	f := mustFilter(t, asked)
	o.UpTo = l.Bounds().HighWatermark
	for next := from; next < o.UpTo; {
		to, err := r.Scan(l, next, f, o, func(d *keyfilter.Decoded) {
			for offset, key := range f.Matches(d, next) {
				require.True(t, f.Match(key, offset))
				found = append(found, offset)
			}
		})
		require.NoError(t, err)
		require.Greater(t, to, next, "each scan gets on")
		next = to
	}
	return found
}

func (h *history) filter() protocol.KeyFilter {
	switch h.rng.IntN(4) {
	case 0:
		return share(h.rng.IntN(4), 4)
	case 1:
		return protocol.KeyFilter{Keys: [][]byte{fmt.Appendf(nil, "key-%d", h.rng.IntN(h.keys))}}
	case 2:
		f := share(h.rng.IntN(16), 16)
		f.Keys = [][]byte{[]byte("key-1"), []byte("nobody has this")}
		return f
	default:
		return slots(0, keyfilter.Slots-1)
	}
}

// TestFetchBounds goes through what bounds an answer, on a log of ten batches of two
// records with the same key.
func TestFetchBounds(t *testing.T) {
	l := openLog(t, 1<<20)
	for i := range 10 {
		l.appendRecords(protocol.CodecNone, record{[]byte("a"), fmt.Appendf(nil, "%03d", i)}, record{[]byte("a"), nil})
	}
	size := int(l.Size() / 10)
	mine := protocol.KeyFilter{Keys: [][]byte{[]byte("a")}}
	other := protocol.KeyFilter{Keys: [][]byte{[]byte("b")}}

	for name, c := range map[string]struct {
		asked   protocol.KeyFilter
		from    int64
		options Options
		batches int
		next    int64
		bound   bool
	}{
		"everything":                               {mine, 0, Options{UpTo: 20, MaxBytes: 1e6}, 10, 20, false},
		"at the end":                               {mine, 20, Options{UpTo: 20, MaxBytes: 1e6}, 0, 20, false},
		"up to the last stable offset":             {mine, 0, Options{UpTo: 6, MaxBytes: 1e6}, 3, 6, false},
		"a batch reaches beyond UpTo":              {mine, 0, Options{UpTo: 7, MaxBytes: 1e6}, 3, 6, false},
		"exactly MaxBytes":                         {mine, 0, Options{UpTo: 20, MaxBytes: 2 * size}, 2, 4, false},
		"one byte less":                            {mine, 0, Options{UpTo: 20, MaxBytes: 2*size - 1}, 1, 2, false},
		"not even one":                             {mine, 0, Options{UpTo: 20, MaxBytes: 10}, 0, 0, false},
		"one in any case":                          {mine, 0, Options{UpTo: 20, MaxBytes: 10, MinOne: true}, 1, 2, false},
		"no room, and the next is not mine either": {other, 0, Options{UpTo: 20, MaxBytes: 0}, 0, 20, false},
		"from within a batch":                      {mine, 3, Options{UpTo: 4, MaxBytes: 1e6}, 1, 4, false},
		"the scan bound":                           {other, 0, Options{UpTo: 20, MaxBytes: 1e6, MaxScanBytes: int64(3*size - 1)}, 0, 6, true},
		"the scan bound at the end of the log":     {other, 14, Options{UpTo: 20, MaxBytes: 1e6, MaxScanBytes: int64(3 * size)}, 0, 20, false},
		"the scan bound is for each fetch":         {other, 6, Options{UpTo: 20, MaxBytes: 1e6, MaxScanBytes: int64(3 * size)}, 0, 12, true},
	} {
		t.Run(name, func(t *testing.T) {
			indexed := New(Config{DecodedCacheBytes: 1})
			readAll(t, indexed, l, mine, 0, wide)
			readers := []*Reader{New(Config{}), indexed}
			if c.options.MaxScanBytes > 0 {
				readers = readers[:1] // an index leaves nothing to scan
			}
			for _, r := range readers {
				got, err := r.Fetch(l, []byte("before"), c.from, mustFilter(t, c.asked), c.options)
				require.NoError(t, err)
				require.Equal(t, "before", string(got.Data[:6]))
				require.Len(t, got.Data[6:], c.batches*size)
				require.Equal(t, c.batches*size, got.Matching)
				require.Equal(t, c.next, got.Next)
				require.Equal(t, c.bound, got.ScanBound)
			}
		})
	}
}

// TestFetchScanBoundWithAnIndex: the index is looked at, 2 bytes a record, and that counts.
func TestFetchScanBoundWithAnIndex(t *testing.T) {
	l := openLog(t, 20_000)
	fill(t, l, protocol.CodecNone, 50, 20)
	r := New(Config{})
	readAll(t, r, l, share(0, 2), 0, wide)
	f := mustFilter(t, protocol.KeyFilter{Keys: [][]byte{[]byte("nobody has this")}})
	got, err := r.Fetch(l, nil, 0, f, Options{UpTo: 1000, MaxBytes: 1e6, MaxScanBytes: 1})
	require.NoError(t, err)
	require.Equal(t, Fetched{Next: l.Segments()[1].Base, ScanBound: true}, got, "one segment's index is looked at whole")
	got, err = r.Fetch(l, nil, 0, f, Options{UpTo: 1000, MaxBytes: 1e6, MaxScanBytes: 2001})
	require.NoError(t, err)
	require.Equal(t, Fetched{Next: 1000}, got)
}

// TestFetchOutOfRange: what retention took is an error, not an empty answer.
func TestFetchOutOfRange(t *testing.T) {
	l := openLog(t, 1<<20)
	for range 10 {
		l.appendRecords(protocol.CodecNone, record{[]byte("a"), nil})
	}
	_, err := l.DeleteRecords(5)
	require.NoError(t, err)
	r := New(Config{})
	for _, asked := range []protocol.KeyFilter{share(0, 2), slots(0, keyfilter.Slots-1)} {
		got, err := r.Fetch(l, []byte("before"), 4, mustFilter(t, asked), Options{UpTo: 10, MaxBytes: 100})
		require.ErrorIs(t, err, commitlog.ErrOffsetOutOfRange)
		require.Equal(t, Fetched{Data: []byte("before"), Next: 4}, got)
	}
}

// TestFetchPassesWhatItCannotDecode: a batch that decompresses to more than allowed goes
// to every reader, as do control batches.
func TestFetchPassesWhatItCannotDecode(t *testing.T) {
	l := openLog(t, 1<<20)
	large := make([]byte, 5000)
	l.appendRecords(protocol.CodecZstd, record{[]byte("a"), large})
	l.appendRecords(protocol.CodecZstd, record{[]byte("a"), []byte("small")})
	l.appendRecords(protocol.CodecNone, record{[]byte("a"), large})
	l.appendBatch(protocol.BatchOptions{ProducerID: 1, Transactional: true}, []record{{[]byte("a"), nil}})
	l.appendMarker(1, false)

	r := New(Config{Decoding: commitlog.NewDecodeLimiter(1, 1000)})
	got, err := r.Fetch(l, nil, 0, mustFilter(t, protocol.KeyFilter{Keys: [][]byte{[]byte("b")}}), Options{UpTo: 5, MaxBytes: 1e6})
	require.NoError(t, err)
	require.EqualValues(t, 5, got.Next)
	records, control := decode(t, got.Data)
	require.Equal(t, []int64{0}, offsets(records))
	require.Equal(t, []int64{4}, offsets(control))
	require.Equal(t, len(got.Data)-len(marker(t)), got.Matching, "control batches do not count for min_bytes")
	require.EqualValues(t, 1, r.Stats().BatchesUndecoded)
}

// marker is a control batch as appendMarker appends it.
func marker(t *testing.T) []byte {
	var b protocol.BatchBuilder
	batch, err := b.AppendEndTxnMarker(nil, protocol.EndTxnMarker{ProducerID: 1}, startMs)
	require.NoError(t, err)
	return batch
}

// TestFetchFromAClosedLog says so, and does not look for the segments for ever.
func TestFetchFromAClosedLog(t *testing.T) {
	l := openLog(t, 1<<20)
	l.appendRecords(protocol.CodecNone, record{[]byte("a"), nil})
	require.NoError(t, l.Close())
	r := New(Config{})
	_, err := r.Fetch(l, nil, 0, mustFilter(t, share(0, 2)), Options{UpTo: 1, MaxBytes: 100})
	require.ErrorIs(t, err, commitlog.ErrClosed)
	_, err = r.Scan(l, 0, mustFilter(t, share(0, 2)), Options{UpTo: 1}, func(*keyfilter.Decoded) {})
	require.ErrorIs(t, err, commitlog.ErrClosed)
	require.Empty(t, r.mu.partitions, "nobody would forget it")
}

func offsets(records []*kgo.Record) []int64 {
	var all []int64
	for _, r := range records {
		all = append(all, r.Offset)
	}
	return all
}
