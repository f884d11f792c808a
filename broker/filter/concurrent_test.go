package filter

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

// TestDisjointReadersDecodeOnce: 16 readers that share out the slots of a partition get
// each record once between them, and each batch is decoded once for all.
func TestDisjointReadersDecodeOnce(t *testing.T) {
	for _, codec := range codecs {
		t.Run(codec.String(), func(t *testing.T) {
			l := openLog(t, 40_000)
			const batches, records, readers = 80, 40, 16
			fill(t, l, codec, batches, records)
			r := New(Config{})
			got := make([][]*kgo.Record, readers)
			var wg sync.WaitGroup
			for i := range readers {
				wg.Go(func() {
					o := Options{MaxBytes: 2000, MinOne: true, MaxScanBytes: 50_000}
					got[i] = readAll(t, r, l, share(i, readers), 0, o)
				})
			}
			wg.Wait()
			require.EqualValues(t, batches, r.Stats().BatchesDecoded)
			all := offsets(slices.Concat(got...))
			slices.Sort(all)
			require.Len(t, all, batches*records)
			for i, offset := range all {
				require.EqualValues(t, i, offset)
			}
		})
	}
}

// TestReadersWhileTheLogChanges reads while records are appended, segments roll, are
// compacted, deleted, indexed and saved. Every record read is one that was there, in
// order; a record that is last of its key is not missed.
func TestReadersWhileTheLogChanges(t *testing.T) {
	l := openLog(t, 3000)
	c := Config{DecodedCacheBytes: 20_000, IndexCacheBytes: 5_000}
	r := New(c)
	const keys, readers = 50, 4
	var done atomic.Bool
	var wg sync.WaitGroup
	for i := range readers {
		wg.Go(func() {
			asked := share(i, readers)
			for last := false; !last; {
				last = done.Load() // and once more when all is quiet
				checkPass(t, r, l, asked)
			}
		})
	}
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 200 {
		l.appendRandom(rng, keys)
		switch {
		case i%20 == 5:
			l.clean()
		case i%20 == 15:
			r.SaveIndexes(t.Context())
		case i%50 == 49:
			_, err := l.DeleteRecords(l.Bounds().Start + 20)
			require.NoError(t, err)
		}
	}
	done.Store(true)
	wg.Wait()
}

// checkPass reads the log once from its start.
func checkPass(t *testing.T, r *Reader, l *testLog, asked protocol.KeyFilter) {
	f := mustFilter(t, asked)
	b := l.Bounds()
	seen := map[int64]*kgo.Record{}
	for next := b.Start; next < b.HighWatermark; {
		got, err := r.Fetch(l, nil, next, f, Options{UpTo: b.HighWatermark, MaxBytes: 500, MinOne: true})
		if err != nil {
			require.ErrorIs(t, err, commitlog.ErrOffsetOutOfRange, "retention was faster")
			require.Greater(t, l.Bounds().Start, next)
			next = l.Bounds().Start
			continue
		}
		require.Greater(t, got.Next, next)
		records, _ := decode(t, got.Data)
		for _, rec := range matching(records, asked, next) {
			require.Less(t, rec.Offset, got.Next)
			require.NotContains(t, seen, rec.Offset)
			seen[rec.Offset] = rec
		}
		next = got.Next
	}
	// What is there after the pass was there during it.
	for _, want := range l.wantedNow(asked, b.HighWatermark) {
		got := seen[want.Offset]
		require.NotNil(t, got, "offset %d was missed", want.Offset)
		require.Equal(t, want.Key, got.Key)
		require.Equal(t, want.Value, got.Value)
	}
}

// wantedNow is wanted from the log start, which may move meanwhile.
func (l *testLog) wantedNow(asked protocol.KeyFilter, upTo int64) []*kgo.Record {
	var all []byte
	for next := l.Bounds().Start; next < upTo; {
		read, err := l.Read(all, next, commitlog.ReadOptions{MaxBytes: 1 << 20, UpTo: upTo, MinOne: true})
		if err != nil || read.Next == next {
			break
		}
		all, next = read.Data, read.Next
	}
	records, _ := decode(l.t, all)
	return matching(records, asked, 0)
}

// TestCacheWaitersSeeTheOutcome holds the loader of a batch while others come for it:
// they wait, then get the batch or the error, and an error is not kept.
func TestCacheWaitersSeeTheOutcome(t *testing.T) {
	l := openLog(t, 1<<20)
	fill(t, l, protocol.CodecNone, 1, 5)
	data := make([]byte, l.Size())
	_, err := l.ReadSegment(l.Segments()[0], 0, data)
	require.NoError(t, err)
	c := newDecodedCache(1 << 20)
	key := batchKey{segment: newSegment(nil, l.Segments()[0])}
	for _, fail := range []error{errDisk, nil} {
		e, load := c.acquire(key)
		require.True(t, load)
		var wg sync.WaitGroup
		for range 8 {
			wg.Go(func() {
				other, load := c.acquire(key)
				require.False(t, load)
				require.Same(t, e, other)
				require.Equal(t, fail, other.err)
				if fail == nil {
					require.Equal(t, 5, other.batch.Len())
				}
				c.release(other)
			})
		}
		for { // until all are waiting
			c.mu.Lock()
			refs := e.refs
			c.mu.Unlock()
			if refs == 9 {
				break
			}
		}
		e.err = fail
		e.buf = append(e.buf[:0], data...)
		require.NoError(t, e.batch.Decode(e.buf, 1<<20))
		c.loaded(e)
		wg.Wait()
		c.release(e)
	}
	require.Positive(t, c.bytes())
	require.Nil(t, c.find(batchKey{segment: key.segment, position: 1}))
}

// TestCachesAreBounded reads far more than the caches hold.
func TestCachesAreBounded(t *testing.T) {
	l := openLog(t, 20_000)
	fill(t, l, protocol.CodecGzip, 300, 30)
	c := Config{DecodedCacheBytes: 50_000, IndexCacheBytes: 6_000}
	r := New(c)
	for i := range 4 {
		asked := share(i, 4)
		require.Equal(t, l.wanted(asked, 0, 9000), readAll(t, r, l, asked, 0, Options{MaxBytes: 3000, MinOne: true}))
		s := r.Stats()
		require.LessOrEqual(t, s.DecodedCacheBytes, c.DecodedCacheBytes)
		require.Positive(t, s.DecodedCacheBytes)
		require.LessOrEqual(t, s.IndexCacheBytes, c.IndexCacheBytes)
		require.Positive(t, s.IndexCacheBytes)
	}
	r.SaveIndexes(t.Context())
	s := r.Stats()
	require.EqualValues(t, len(l.Segments()), s.IndexesSaved, "each was saved before it was squeezed out")
	require.Positive(t, s.IndexesLoaded, "and came back from its file")

	r = New(Config{IndexCacheBytes: 100}) // less than one segment's
	require.Equal(t, l.wanted(share(0, 2), 0, 9000), readAll(t, r, l, share(0, 2), 0, wide))
	require.Zero(t, r.Stats().IndexCacheBytes)
}

// TestForgetDropsEverything of a log, and only of that one.
func TestForgetDropsEverything(t *testing.T) {
	one, two := openLog(t, 10_000), openLog(t, 10_000)
	r := New(Config{})
	for _, l := range []*testLog{one, two} {
		fill(t, l, protocol.CodecLz4, 50, 10)
		readAll(t, r, l, share(0, 2), 0, wide)
	}
	both := r.Stats()
	r.Forget(one)
	r.Forget(one)
	require.Equal(t, both.DecodedCacheBytes/2, r.Stats().DecodedCacheBytes)
	require.Equal(t, both.IndexCacheBytes/2, r.Stats().IndexCacheBytes)
	readAll(t, r, two, share(0, 2), 0, wide)
	require.Equal(t, both.BatchesDecoded, r.Stats().BatchesDecoded)
	r.Forget(two)
	require.Zero(t, r.Stats().DecodedCacheBytes)
	require.Zero(t, r.Stats().IndexCacheBytes)
	require.Empty(t, r.mu.partitions)
	require.Empty(t, fmt.Sprint(r.decoded.mu.entries)[4:len(fmt.Sprint(r.decoded.mu.entries))-1])
}

// TestFetchesDecompressInTurn: a fetch waits with what it has to decompress until others
// are done with theirs, and does not wait with what is not compressed.
func TestFetchesDecompressInTurn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := openLog(t, 1<<20)
		l.appendRecords(protocol.CodecNone, record{[]byte("a"), nil})
		l.appendRecords(protocol.CodecGzip, record{[]byte("a"), nil})
		r := New(Config{Decoding: commitlog.NewDecodeLimiter(2, 0)})
		first, second := r.config.Decoding.Begin(), r.config.Decoding.Begin()
		answered := make(chan Fetched)
		go func() {
			got, err := r.Fetch(l, nil, 0, mustFilter(t, share(0, 2)), Options{UpTo: 2, MaxBytes: 1e6})
			assert.NoError(t, err)
			answered <- got
		}()
		synctest.Wait()
		require.EqualValues(t, 1, r.Stats().BatchesDecoded, "the one that is not compressed")
		first()
		require.EqualValues(t, 2, (<-answered).Next)
		require.EqualValues(t, 2, r.Stats().BatchesDecoded)
		second()
	})
}
