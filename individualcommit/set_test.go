package individualcommit

import (
	"math"
	"math/rand/v2"
	"runtime"
	"slices"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naiveSet is an OffsetSet as simple as can be, over the offsets below its length times
// scale: offset x stands for all of [x*scale, (x+1)*scale).
type naiveSet struct {
	scale   int64
	members []bool
}

func (n *naiveSet) fill(lo, hi int, member bool) {
	for i := lo; i < hi; i++ {
		n.members[i] = member
	}
}

func (n *naiveSet) runs() []Run {
	var runs []Run
	for i, in := range n.members {
		lo, hi := int64(i)*n.scale, int64(i+1)*n.scale
		switch {
		case !in:
		case len(runs) > 0 && runs[len(runs)-1].End == lo:
			runs[len(runs)-1].End = hi
		default:
			runs = append(runs, Run{Start: lo, End: hi})
		}
	}
	return runs
}

// requireSame compares everything that can be asked of a set with the naive answer.
func (n *naiveSet) requireSame(t require.TestingT, s *OffsetSet, from int64) {
	require.NoError(t, s.CheckInvariants())
	want := n.runs()
	require.Equal(t, want, slices.Collect(s.Runs(0)))
	require.EqualValues(t, len(want), s.CountRuns())
	count, end := int64(0), int64(0)
	for _, r := range want {
		count += r.End - r.Start
		end = r.End
	}
	require.Equal(t, count, s.Count())
	require.Equal(t, end, s.End())
	require.Equal(t, len(want) == 0, s.Empty())

	var tail []Run
	for _, r := range want {
		if r.End > from {
			tail = append(tail, Run{Start: max(r.Start, from), End: r.End})
		}
	}
	require.Equal(t, tail, slices.Collect(s.Runs(from)))
	next, ok := s.Next(from)
	require.Equal(t, len(tail) > 0, ok)
	if ok {
		require.Equal(t, tail[0], next)
	}
	inside := ok && next.Start == from
	require.Equal(t, inside, s.Contains(from))
	for _, length := range []int64{1, n.scale, 70 * n.scale, 5000 * n.scale} {
		r := Run{Start: from, End: from + length}
		require.Equal(t, inside && next.End >= r.End, s.Includes(r))
		require.Equal(t, ok && next.Start < r.End, s.Overlaps(r))
	}
}

// TestOffsetSetAgainstModel mixes single offsets, runs and wide changes, at scales that
// make the leaves bitmaps, lists, and both side by side.
func TestOffsetSetAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		n := &naiveSet{
			scale:   rapid.SampledFrom([]int64{1, 1, 3, 100, 4096, 1 << 38}).Draw(t, "scale"),
			members: make([]bool, rapid.SampledFrom([]int{100, 5000, 12_000}).Draw(t, "universe")),
		}
		rnd := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
		var s OffsetSet
		for range rapid.IntRange(1, 5).Draw(t, "rounds") {
			n.scatter(rnd, &s, rapid.SampledFrom([]int{1, 30, 300, 3000}).Draw(t, "changes"),
				rapid.SampledFrom([]int{1, 2, 50, 1000, 20_000}).Draw(t, "longest"),
				rapid.SampledFrom([]float64{0.1, 0.5, 0.9}).Draw(t, "adds"))
			n.requireSame(t, &s, rnd.Int64N(int64(len(n.members))*n.scale))
		}
	})
}

func (n *naiveSet) scatter(rnd *rand.Rand, s *OffsetSet, changes, longest int, adds float64) {
	size := len(n.members)
	for range changes {
		lo := rnd.IntN(size)
		hi := min(lo+1+rnd.IntN(longest), size)
		r := Run{Start: int64(lo) * n.scale, End: int64(hi) * n.scale}
		member := rnd.Float64() < adds
		n.fill(lo, hi, member)
		if member {
			s.Add(r)
		} else {
			s.Remove(r)
		}
	}
}

// TestOffsetSetGrowsAndShrinks fills a set and empties it again, dense and sparse, so that
// the tree comes to have several levels and loses them, and throws in wide changes.
func TestOffsetSetGrowsAndShrinks(t *testing.T) {
	for _, scale := range []int64{1, 5000} {
		for _, longest := range []int{1, 40, 700} {
			n := &naiveSet{scale: scale, members: make([]bool, 30_000)}
			rnd := rand.New(rand.NewPCG(7, uint64(longest)))
			var s OffsetSet
			for step := range 40 {
				adds := 0.95
				if step > 20 {
					adds = 0.05
				}
				n.scatter(rnd, &s, 20_000/longest, longest, adds)
				require.NoError(t, s.CheckInvariants(), "scale %d, longest %d, step %d", scale, longest, step)
				if step%4 == 0 {
					n.scatter(rnd, &s, 1, 20_000, 0.5)
					require.NoError(t, s.CheckInvariants(), "scale %d, longest %d, step %d, wide", scale, longest, step)
				}
			}
			n.requireSame(t, &s, 15_000*scale)
		}
	}
}

// TestOffsetSetEnumerated tries every pair of changes, at every alignment to the block,
// on a dense leaf, a list and an empty set.
func TestOffsetSetEnumerated(t *testing.T) {
	points := []int{0, 63, 64, 4095, 4096, 4097, 8192, 12_288}
	backgrounds := map[string]func(n *naiveSet, s *OffsetSet){
		"empty": func(*naiveSet, *OffsetSet) {},
		"list": func(n *naiveSet, s *OffsetSet) {
			n.scatter(rand.New(rand.NewPCG(1, 1)), s, 20, 100, 1)
		},
		"dense": func(n *naiveSet, s *OffsetSet) {
			for i := 4096; i < 8192; i += 20 {
				n.fill(i, i+1, true)
				s.Add(Run{Start: int64(i), End: int64(i) + 1})
			}
		},
	}
	for name, background := range backgrounds {
		for i, a := range points {
			for _, b := range points[i+1:] {
				for j, c := range points {
					d := points[min(j+1+i, len(points)-1)]
					for flags := range 4 {
						n := &naiveSet{scale: 1, members: make([]bool, 12_288)}
						var s OffsetSet
						background(n, &s)
						first, second := flags&1 == 1, flags&2 == 2
						s.fill(Run{Start: int64(a), End: int64(b)}, first)
						n.fill(a, b, first)
						s.fill(Run{Start: int64(c), End: int64(d)}, second)
						n.fill(c, d, second)
						if err := s.CheckInvariants(); err != nil || !slices.Equal(n.runs(), slices.Collect(s.Runs(0))) {
							t.Fatalf("%s: [%d,%d) %v, [%d,%d) %v: %v", name, a, b, first, c, d, second, err)
						}
					}
				}
			}
		}
	}
}

func TestOffsetSetReachesTheLastOffset(t *testing.T) {
	var s OffsetSet
	s.Add(Run{Start: math.MaxInt64 - 1, End: math.MaxInt64})
	require.NoError(t, s.CheckInvariants())
	require.True(t, s.Contains(math.MaxInt64-1))
	require.EqualValues(t, 1, s.Count())
	s.Add(Run{Start: 0, End: math.MaxInt64})
	require.EqualValues(t, math.MaxInt64, s.Count())
	require.EqualValues(t, 1, s.CountRuns())
	s.Remove(Run{Start: 0, End: math.MaxInt64})
	require.True(t, s.Empty())
}

func TestNodeSizes(t *testing.T) {
	require.EqualValues(t, nodeBytes, unsafe.Sizeof(node{}))
	require.EqualValues(t, leafBytes, unsafe.Sizeof(leaf{}))
	require.EqualValues(t, sumBytes, unsafe.Sizeof(sum{}))
}

// heapBytes is what the heap holds once the garbage is gone.
func heapBytes() int64 {
	var m runtime.MemStats
	runtime.GC()
	runtime.GC() // what was in a pool goes in the second
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}

// TestOffsetSetMemory holds the budgets: 2 bits per offset at worst for random members,
// in whatever order they come, 64 bytes per run for long runs, and a count of the memory
// that is true.
func TestOffsetSetMemory(t *testing.T) {
	for _, in := range []int64{2, 5, 20, 100, 1000} {
		const window = 1 << 20
		rnd := rand.New(rand.NewPCG(3, uint64(in)))
		before := heapBytes()
		s := new(OffsetSet)
		for s.Count() < window/in {
			at := rnd.Int64N(window)
			s.Add(Run{Start: at, End: at + 1})
		}
		bits := 8 * float64(s.MemoryBytes()) / window
		t.Logf("1 in %d: %.2f bits per offset, %.1f bytes per run", in, bits, float64(s.MemoryBytes())/float64(s.CountRuns()))
		require.Less(t, bits, 2.0, "1 in %d", in)
		requireTrueCount(t, s, before)
	}
	before := heapBytes()
	s := new(OffsetSet)
	rnd := rand.New(rand.NewPCG(3, 4))
	for range 20_000 {
		at := rnd.Int64N(1 << 20)
		s.Add(Run{Start: at << 42, End: at<<42 + 1<<40})
	}
	perRun := float64(s.MemoryBytes()) / float64(s.CountRuns())
	t.Logf("runs of 2^40: %.1f bytes per run", perRun)
	require.Less(t, perRun, 64.0)
	requireTrueCount(t, s, before)
}

func requireTrueCount(t *testing.T, s *OffsetSet, before int64) {
	t.Helper()
	require.NoError(t, s.CheckInvariants())
	real := heapBytes() - before
	require.InEpsilon(t, real, s.MemoryBytes(), 0.05)
	runtime.KeepAlive(s)
}

// TestASetThatBecomesEmptyAllocatesNothing: as does the set of a window that moves along
// and has no gap every other moment.
func TestASetThatBecomesEmptyAllocatesNothing(t *testing.T) {
	var s OffsetSet
	at := int64(0)
	step := func() {
		for i := range int64(100) {
			s.Add(Run{Start: at + 2*i, End: at + 2*i + 1})
		}
		s.Remove(Run{Start: at, End: at + 200})
		require.True(t, s.Empty())
		at += 10_000
	}
	step()
	require.Zero(t, testing.AllocsPerRun(100, step))
	require.NoError(t, s.CheckInvariants())
}
