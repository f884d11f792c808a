package individualcommit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func unpackAll(b []byte) (base int64, runs []Run, rest []byte, err error) {
	base, rest, err = unpackRuns(b, func(r Run) { runs = append(runs, r) })
	return base, runs, rest, err
}

func TestPackedRunsRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		bound := rapid.SampledFrom([]int64{1, 2, 50, 1 << 20, 1 << 40}).Draw(t, "bound")
		length := rapid.Int64Range(1, bound)
		var runs []Run
		at := rapid.Int64Range(-1, bound).Draw(t, "base")
		for range rapid.IntRange(0, 300).Draw(t, "count") {
			at += length.Draw(t, "skip")
			r := Run{Start: at, End: at + length.Draw(t, "length")}
			runs, at = append(runs, r), r.End
		}
		var p packer
		packed := p.appendList([]byte("before"), runs)
		_, got, rest, err := unpackAll(append(packed, "after"...)[len("before"):])
		require.NoError(t, err)
		require.Equal(t, runs, got)
		require.Equal(t, "after", string(rest))
	})
}

func TestPackedRunsExtremes(t *testing.T) {
	for _, runs := range [][]Run{
		{{Start: 0, End: math.MaxInt64}},
		{{Start: math.MaxInt64 - 1, End: math.MaxInt64}},
		{{Start: 0, End: 1}, {Start: math.MaxInt64 - 1, End: math.MaxInt64}},
		{{Start: 0, End: 1}, {Start: 2, End: 3}, {Start: 1 << 62, End: 1<<62 + 1}, {Start: 1<<62 + 2, End: math.MaxInt64}},
	} {
		var p packer
		_, got, rest, err := unpackAll(p.appendList(nil, runs))
		require.NoError(t, err)
		require.Equal(t, runs, got)
		require.Empty(t, rest)
	}
}

// TestPackedRunsCut cuts a list short at every length: that is an error, not a panic or
// a shorter list.
func TestPackedRunsCut(t *testing.T) {
	var runs []Run
	for i := range int64(300) {
		runs = append(runs, Run{Start: i * i * 7, End: i*i*7 + i%5 + 1})
	}
	var p packer
	packed := p.appendList(nil, runs)
	for n := range packed {
		_, _, _, err := unpackAll(packed[:n])
		require.ErrorIs(t, err, ErrCorrupt, "%d of %d bytes", n, len(packed))
	}
}

func FuzzUnpackRuns(f *testing.F) {
	var p packer
	f.Add(p.appendList(nil, nil))
	f.Add(p.appendList(nil, []Run{{Start: 0, End: 1}}))
	f.Add(p.appendList(nil, []Run{{Start: 5, End: 7}, {Start: 100, End: 1 << 40}, {Start: 1<<40 + 3, End: 1<<40 + 4}}))
	f.Add([]byte{0xff, 0xff, 0xff, 0xff, 0x0f, 0, 0, 0, 0, 0, 0, 0, 0, 64, 0, 64, 0})
	f.Add([]byte{2, 0, 0, 0, 0, 0, 0, 0, 0, 63, 0xff, 0xff, 0xff, 0xff, 0xff, 64, 1})
	f.Fuzz(func(t *testing.T, b []byte) {
		last := int64(-1)
		var runs []Run
		_, rest, err := unpackRuns(b, func(r Run) {
			require.Greater(t, r.Start, last)
			require.Greater(t, r.End, r.Start)
			last = r.End
			if len(runs) < 10_000 {
				runs = append(runs, r)
			}
		})
		if err != nil || len(runs) == 10_000 {
			return
		}
		require.LessOrEqual(t, len(rest), len(b))
		var p packer
		_, again, _, err := unpackAll(p.appendList(nil, runs))
		require.NoError(t, err)
		require.Equal(t, runs, again)
	})
}

// randomGaps yields committed runs between gaps: one offset in `in` is open.
func randomGaps(in int64, gaps int64) *OffsetSet {
	s := new(OffsetSet)
	rnd := rand.New(rand.NewPCG(5, uint64(in)))
	start := int64(1)
	for at := start; s.CountRuns() < gaps; at++ {
		at += int64(math.Log(1-rnd.Float64()) / math.Log(1-1/float64(in)))
		if at > start {
			s.Add(Run{Start: start, End: at})
		}
		start = at + 1
	}
	return s
}

// TestPackedRunsSize holds the budget of the internal log: 1.5 bytes per gap for random
// gaps between 1 in 2 and 1 in 100, 3 when sparser. A quarter on top of a snapshot's
// bytes is left for deltas (see State).
func TestPackedRunsSize(t *testing.T) {
	for _, in := range []int64{2, 3, 5, 10, 20, 50, 100, 1000, 10_000, 100_000} {
		s := randomGaps(in, 20_000)
		var p packer
		packed := p.appendRuns(nil, s.CountRuns(), 0, s.Runs(0))
		perGap := float64(len(packed)) / float64(s.CountRuns())
		q := 1 / float64(in)
		entropy := -(q*math.Log2(q) + (1-q)*math.Log2(1-q)) / (q * (1 - q)) / 8
		t.Logf("1 in %d: %.3f bytes per gap, entropy %.3f", in, perGap, entropy)
		if in <= 100 {
			require.Less(t, 1.25*perGap, 1.5)
		} else {
			require.Less(t, 1.1*perGap, 3.0)
		}
		require.Less(t, perGap, 1.25*entropy)
	}
}

func BenchmarkPackRuns(b *testing.B) {
	for _, in := range []int64{2, 100} {
		s := randomGaps(in, 100_000)
		var p packer
		packed := p.appendRuns(nil, s.CountRuns(), 0, s.Runs(0))
		b.Run(fmt.Sprintf("in=%d/op=pack", in), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				packed = p.appendRuns(packed[:0], s.CountRuns(), 0, s.Runs(0))
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(s.CountRuns()), "ns/gap")
		})
		runs := slices.Collect(s.Runs(0))
		b.Run(fmt.Sprintf("in=%d/op=unpack", in), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				if _, _, err := unpackRuns(packed, func(Run) {}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(runs)), "ns/gap")
		})
	}
}
