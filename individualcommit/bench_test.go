package individualcommit

import (
	"fmt"
	"math"
	"math/rand/v2"
	"runtime"
	"runtime/debug"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// clock counts the time that operations take on the processor, which is what the budgets
// mean where a machine does other work besides.
type clock struct {
	b       *testing.B
	running time.Duration // when it was started
	total   time.Duration
}

func startClock(b *testing.B) *clock {
	b.ReportAllocs()
	b.ResetTimer()
	return &clock{b: b, running: cpuTime(b)}
}

// without does something that does not count.
func (c *clock) without(do func()) {
	c.b.StopTimer()
	c.total += cpuTime(c.b) - c.running
	do()
	c.running = cpuTime(c.b)
	c.b.StartTimer()
}

func (c *clock) report() {
	c.total += cpuTime(c.b) - c.running
	c.b.ReportMetric(float64(c.total)/float64(c.b.N), "cpu-ns/op")
}

func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// work is the order in which a group commits that always has `open` records in work, and
// finishes them in no order: it takes the next record of the log when one is done.
func work(open, commits int) []Run {
	rnd := rand.New(rand.NewPCG(1, 2))
	at, order := make([]int64, open), make([]Run, commits)
	for i := range at {
		at[i] = int64(i)
	}
	for next := range commits {
		i := rnd.IntN(open)
		order[next] = Run{Start: at[i], End: at[i] + 1}
		at[i] = int64(open + next)
	}
	return order
}

// working is a ledger that has seen the first commits of order: each record in work was
// taken some times over.
func working(open int, order []Run) (l *Ledger, rest []Run) {
	l = new(Ledger)
	for _, r := range order[:3*open] {
		l.commit(r)
	}
	return l, order[3*open:]
}

// scattered is a ledger with so many gaps, one offset in `in` being committed.
func scattered(in, gaps int64) (l *Ledger, window int64) {
	l, window = new(Ledger), in*gaps
	rnd := rand.New(rand.NewPCG(1, uint64(in)))
	for at := 1 + rnd.Int64N(in); at < window; at += 1 + rnd.Int64N(2*in) {
		l.commit(Run{Start: at, End: at + 1})
	}
	return l, window
}

// BenchmarkCommit is the budget of the ledger: a single offset in at most 200 ns, a run of
// 1,000 in at most 2 us. The first cases are a group at work. In the others a million gaps
// are spread at random, and any offset is as likely to be hit as any other; where they are
// sparse, the time is that of memory that no cache holds.
func BenchmarkCommit(b *testing.B) {
	for _, open := range []int{1, 1000, 100_000, 1_000_000} {
		b.Run(fmt.Sprintf("open=%d", open), func(b *testing.B) {
			order := work(open, 3*open+2_000_000)
			l, rest := working(open, order)
			c := startClock(b)
			for range b.N {
				if len(rest) == 0 {
					c.without(func() { l, rest = working(open, order) })
				}
				commitOne(b, l, rest[0])
				rest = rest[1:]
			}
			c.report()
			b.ReportMetric(float64(l.GapCount()), "gaps")
		})
	}
	for _, in := range []int64{2, 10, 100, 10_000} {
		for _, length := range []int64{1, 1000} {
			b.Run(fmt.Sprintf("scattered=%d/length=%d", in, length), func(b *testing.B) {
				l, window := scattered(in, 1_000_000)
				rnd := rand.New(rand.NewPCG(2, 2))
				gaps := l.GapCount()
				c := startClock(b)
				for i := range b.N {
					if i%1000 == 0 && (l.GapCount() < gaps/2 || l.GapCount() > 2*gaps) {
						c.without(func() { l, window = scattered(in, 1_000_000) })
					}
					at := rnd.Int64N(window)
					commitOne(b, l, Run{Start: at, End: at + length})
				}
				c.report()
			})
		}
	}
}

// commitOne is a request of one run, as the broker makes it.
func commitOne(tb testing.TB, l *Ledger, r Run) {
	runs := [1]Run{r}
	d, err := l.Decide(Request{Offset: NoOffset, Commit: runs[:]}, math.MaxInt64)
	if err != nil {
		tb.Fatal(err)
	}
	if !d.Empty() {
		l.Apply(d)
	}
}

func BenchmarkIsCommitted(b *testing.B) {
	for _, in := range []int64{2, 100, 10_000} {
		b.Run(fmt.Sprintf("scattered=%d", in), func(b *testing.B) {
			l, window := scattered(in, 1_000_000)
			rnd := rand.New(rand.NewPCG(2, 2))
			c := startClock(b)
			for range b.N {
				l.IsCommitted(rnd.Int64N(window))
			}
			c.report()
		})
	}
}

func BenchmarkNextGap(b *testing.B) {
	for _, in := range []int64{2, 100, 10_000} {
		b.Run(fmt.Sprintf("scattered=%d", in), func(b *testing.B) {
			l, _ := scattered(in, 1_000_000)
			from := int64(0)
			c := startClock(b)
			for range b.N {
				gap, ok := l.NextGap(from)
				if from = gap.End; !ok {
					from = 0
				}
			}
			c.report()
		})
	}
}

// BenchmarkLog is a commit of one offset with the record that says so.
func BenchmarkLog(b *testing.B) {
	for _, open := range []int{1, 1000, 100_000} {
		b.Run(fmt.Sprintf("open=%d", open), func(b *testing.B) {
			var s *State
			var e *Entry
			var w Records
			order := work(open, 2_000_000)
			bytes := 0
			c := startClock(b)
			for i := range b.N {
				if i %= len(order); i == 0 {
					s = NewState(0)
					e = s.Found(&w, ID{Group: "group"}, NewLedger(0, 0, 0), Delta{}, nil, 0)
				}
				s.Log(&w, e, Delta{Commit: order[i : i+1]}, nil, 0)
				for _, r := range w.All() {
					bytes += len(r.Key) + len(r.Value)
				}
				w.Reset()
			}
			c.report()
			b.ReportMetric(float64(bytes)/float64(b.N), "log-B/op")
		})
	}
}

// millionGaps are the records of a ledger with a million random gaps: a snapshot, or the
// deltas that led there.
func millionGaps(in int64, asSnapshot bool) []Record {
	s := NewState(0)
	var w Records
	gaps := randomGaps(in, 1_000_000)
	e := s.Found(&w, ID{Group: "group"}, NewLedger(0, 0, 0), Delta{}, nil, 0)
	var batch []Run
	for r := range gaps.Runs(0) {
		if batch = append(batch, r); len(batch) == 500 {
			s.Log(&w, e, Delta{Commit: batch}, nil, 0)
			batch = batch[:0]
		}
	}
	if asSnapshot {
		w = Records{}
		s.writeSnapshot(&w, e)
	}
	return w.All()
}

// BenchmarkRecovery is the budget of a restart: a ledger with a million gaps in a second.
func BenchmarkRecovery(b *testing.B) {
	for _, in := range []int64{2, 100} {
		for name, asSnapshot := range map[string]bool{"snapshot": true, "deltas": false} {
			b.Run(fmt.Sprintf("in=%d/from=%s", in, name), func(b *testing.B) {
				records := millionGaps(in, asSnapshot)
				c := startClock(b)
				for range b.N {
					s := NewState(0)
					for _, r := range records {
						if err := s.Apply(r.Key, r.Value); err != nil {
							b.Fatal(err)
						}
					}
				}
				c.report()
			})
		}
	}
}

// TestSteadyStateAllocatesNothing: a window that moves along a log lives on the memory
// it has, with the records that are logged for it.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	s, order := NewState(0), work(2000, 60_002)
	var w Records
	e := s.Found(&w, ID{Group: "group"}, NewLedger(0, 0, 0), Delta{}, nil, 0)
	commit := func() {
		d, err := e.Ledger.Decide(Request{Offset: NoOffset, Commit: order[:1]}, math.MaxInt64)
		if err != nil {
			t.Fatal(err)
		}
		s.Log(&w, e, d, nil, 0)
		w.Reset()
		order = order[1:]
	}
	for range 40_000 {
		commit()
	}
	require.Zero(t, testing.AllocsPerRun(20_000, commit))
	require.Greater(t, e.Ledger.GapCount(), int64(500))
	require.Less(t, e.Ledger.MemoryBytes(), int64(50_000))
}

// TestWideChangesAreCheap: nothing but a listing looks at all gaps. A hundred
// thousand are changed in the time that looking at a few hundred would take.
func TestWideChangesAreCheap(t *testing.T) {
	for name, change := range map[string]func(l *Ledger, window int64){
		"cumulative": func(l *Ledger, window int64) { l.commitTo(window - 100) },
		"reopen":     func(l *Ledger, window int64) { l.reopen(Run{Start: 1000, End: window - 1000}) },
		"clamp":      func(l *Ledger, window int64) { l.clamp(window / 2) },
		"count":      func(l *Ledger, _ int64) { _, _ = l.GapCount(), l.OpenCount() },
	} {
		l, window := scattered(100, 100_000)
		collect := debug.SetGCPercent(-1)
		before := cpuTime(t)
		change(l, window)
		took := cpuTime(t) - before
		debug.SetGCPercent(collect)
		t.Logf("%s: %v", name, took)
		require.Less(t, took, time.Millisecond, name)
		require.NoError(t, l.CheckInvariants())
	}
}

// TestStateMemory: what the State says that its ledgers take is true, for many that have
// no gap and for few that have many.
func TestStateMemory(t *testing.T) {
	before := heapBytes()
	s := NewState(0)
	var w Records
	for i := range 5000 {
		id := ID{Group: fmt.Sprintf("group-%d", i/4), Partition: int32(i % 4)}
		s.Found(&w, id, NewLedger(0, 0, 0), Delta{}, nil, 0)
		w.Reset()
	}
	for i := range int32(4) {
		e := s.Get(ID{Group: "group-7", Partition: i})
		for r := range randomGaps(100, 10_000).Runs(0) {
			e.Ledger.commit(r)
		}
		s.recount(e)
	}
	w = Records{}
	real := heapBytes() - before
	require.InEpsilon(t, real, s.MemoryBytes(), 0.15)
	runtime.KeepAlive(s)
}
