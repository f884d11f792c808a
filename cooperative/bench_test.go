package cooperative

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/individualcommit"
)

// bench is a dispatcher with a log of records that are appended as they are wanted, and a
// ledger that is committed to as the broker would.
type bench struct {
	d      *Dispatcher
	ledger *individualcommit.Ledger
	keyOf  func(offset int64) Key
	keys   []Key
	runs   [1]Run
	out    Changes
	got    []Delivery
	acks   []Ack
	told   []Outcome
	commit []Run
	now    int64
	batch  int
	took   [phases]time.Duration
}

// phase is what the time of a benchmark goes to. A record's key is made while it is fed.
type phase int

const (
	feeding phase = iota
	acquiring
	acknowledging
	committing // to the ledger, which the broker does as well
	phases
)

var phaseNames = [phases]string{"feed", "acquire", "acknowledge", "commit"}

func newBench(c Config, keyOf func(int64) Key) *bench {
	b := &bench{ledger: new(individualcommit.Ledger), keyOf: keyOf, batch: 500}
	b.d = New(c, b.ledger)
	return b
}

func benchConfig(mode Mode) Config {
	c := testConfig(mode)
	c.Limits.Acquired, c.Limits.WaitingMaxBytes = 10_000_000, 64<<20
	c.Assignment = join(c.Assignment, "m")
	return c
}

// nullKeys has no key for any record.
func nullKeys(int64) Key { return Key{Null: true} }

// uniform is one of n keys.
func uniform(n uint64) func(int64) Key {
	return func(offset int64) Key {
		x := uint64(offset) * 0x9e3779b97f4a7c15
		x = (x ^ x>>31) % n
		x = (x + 1) * 0xbf58476d1ce4e5b9
		return Key{Hash: x ^ x>>29}
	}
}

func (b *bench) feed(n int64) {
	from := b.d.FeedFrom()
	b.keys = b.keys[:0]
	if b.d.config.Mode != RoundRobin {
		for o := from; o < from+n; o++ {
			b.keys = append(b.keys, b.keyOf(o))
		}
	}
	b.runs[0] = Run{Start: from, End: from + n}
	b.d.Feed(Records{Start: from, End: from + n, Runs: b.runs[:], Keys: b.keys}, &b.out)
}

// spent counts the time since at to a phase, and gives the time now.
func (b *bench) spent(p phase, at time.Time) time.Time {
	now := time.Now()
	b.took[p] += now.Sub(at)
	return now
}

// acquire gives how many records a member got.
func (b *bench) acquire(member string) int {
	at := time.Now()
	for b.d.WantsRecords() {
		b.feed(1000)
	}
	at = b.spent(feeding, at)
	b.got = b.d.Acquire(b.got[:0], member, Want{MaxRecords: b.batch}, b.now, &b.out)
	b.spent(acquiring, at)
	n := 0
	for _, g := range b.got {
		n += int(g.End - g.Start)
	}
	return n
}

func (b *bench) acknowledge(member string, t AckType) {
	b.acks, b.told = b.acks[:0], b.told[:0]
	for _, g := range b.got {
		b.acks = append(b.acks, Ack{g.Run, t})
	}
	at := time.Now()
	b.told = b.d.Acknowledge(b.told, member, b.acks, b.now, &b.out)
	at = b.spent(acknowledging, at)
	b.now++
	if len(b.out.Commit) > 0 {
		b.ledger.Apply(individualcommit.Delta{Commit: b.out.Commit})
	}
	b.out.Reset()
	b.spent(committing, at)
}

// pass deals and accepts n records.
func (b *bench) pass(n int) {
	for done := 0; done < n; {
		done += b.acquire("m")
		b.acknowledge("m", Accept)
	}
}

var benchModes = []struct {
	name string
	mode Mode
}{{"round-robin", RoundRobin}, {"key-ordered", KeyOrdered}, {"key-range", KeyRange}}

// measure times f, and reports the processor's time besides: on a busy machine that is the
// one that means something. And how that divides between the phases, since the budgets are
// those of acquiring and of acknowledging: in the proportion in which the time does.
func measure(b *testing.B, x *bench, f func()) {
	b.ReportAllocs()
	var before, after syscall.Rusage
	x.took = [phases]time.Duration{}
	b.ResetTimer()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
	f()
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
	b.StopTimer()
	cpu := float64(after.Utime.Nano()-before.Utime.Nano()) / float64(b.N)
	b.ReportMetric(cpu, "cpu-ns/op")
	for p, name := range phaseNames {
		b.ReportMetric(cpu*float64(x.took[p])/float64(b.Elapsed()), name+"-ns/op")
	}
}

// BenchmarkAcquireAcknowledge is one record fed, acquired and accepted, in batches of 500.
func BenchmarkAcquireAcknowledge(b *testing.B) {
	for _, m := range benchModes {
		for _, keys := range []uint64{100, 100_000} {
			b.Run(fmt.Sprintf("mode=%s/keys=%d", m.name, keys), func(b *testing.B) {
				x := newBench(benchConfig(m.mode), uniform(keys))
				x.pass(100_000)
				measure(b, x, func() { x.pass(b.N) })
			})
		}
	}
}

// BenchmarkNullKeys is one record without a key fed, acquired and accepted.
func BenchmarkNullKeys(b *testing.B) {
	for _, m := range benchModes[1:] {
		b.Run("mode="+m.name, func(b *testing.B) {
			x := newBench(benchConfig(m.mode), nullKeys)
			x.pass(100_000)
			measure(b, x, func() { x.pass(b.N) })
		})
	}
}

// BenchmarkMembers is one record fed, acquired and accepted where 16 members hold a batch
// each: in KeyRange every record is then in a run of its own.
func BenchmarkMembers(b *testing.B) {
	const members = 16
	for _, m := range benchModes {
		for _, batch := range []int{20, 500} {
			b.Run(fmt.Sprintf("mode=%s/members=%d/batch=%d", m.name, members, batch), func(b *testing.B) {
				c := benchConfig(m.mode)
				c.Assignment = testConfig(m.mode).Assignment
				names := make([]string, members)
				for i := range names {
					names[i] = fmt.Sprintf("m%02d", i)
					c.Assignment = join(c.Assignment, names[i])
				}
				x := newBench(c, uniform(100_000))
				x.batch = batch
				held := make([][]Delivery, members)
				pass := func(n int) {
					for done, i := 0, 0; done < n; i = (i + 1) % members {
						x.got = append(x.got[:0], held[i]...)
						x.acknowledge(names[i], Accept)
						done += x.acquire(names[i])
						held[i] = append(held[i][:0], x.got...)
					}
				}
				pass(100_000)
				measure(b, x, func() { pass(b.N) })
			})
		}
	}
}

// BenchmarkRelease is one record acquired and released, again and again.
func BenchmarkRelease(b *testing.B) {
	for _, m := range benchModes {
		b.Run("mode="+m.name, func(b *testing.B) {
			c := benchConfig(m.mode)
			c.Limits.Deliveries = 255
			x := newBench(c, uniform(100_000))
			x.acquire("m")
			measure(b, x, func() {
				for n := 0; n < b.N; n += 500 {
					x.acknowledge("m", Release)
					if x.acquire("m") < 500 { // they were released too often
						took := x.took
						*x = *newBench(c, uniform(100_000))
						x.took = took
						x.acquire("m")
					}
				}
			})
		})
	}
}

// backlog makes a dispatcher before which so many records of one key wait, that a member
// holds up, beside those of all others.
func backlog(mode Mode, waiting int64) *bench {
	c := benchConfig(mode)
	hot := Key{Hash: 1}
	x := newBench(c, nil)
	others := uniform(100_000)
	x.keyOf = func(offset int64) Key {
		if offset < waiting {
			return hot
		}
		return others(offset)
	}
	if mode == RoundRobin {
		x.feed(waiting)
		return x
	}
	x.batch = 1
	x.acquire("stalled")
	x.batch = 500
	for x.d.FeedFrom() < waiting {
		x.feed(1000)
		x.acquire("m")
		x.acknowledge("m", Accept)
	}
	return x
}

// BenchmarkBacklog is one record acquired and accepted while so many wait.
func BenchmarkBacklog(b *testing.B) {
	for _, m := range benchModes[:2] {
		for _, waiting := range []int64{1_000, 1_000_000} {
			b.Run(fmt.Sprintf("mode=%s/waiting=%d", m.name, waiting), func(b *testing.B) {
				x := backlog(m.mode, waiting)
				x.pass(100_000)
				measure(b, x, func() { x.pass(b.N) })
			})
		}
	}
}

// gapped makes a dispatcher behind which so many records are acquired by a member that is
// slow, each with committed ones on both sides.
func gapped(mode Mode, gaps int64) *bench {
	x := newBench(benchConfig(mode), uniform(100_000))
	for held := int64(0); held < gaps; {
		x.acquire("slow")
		x.acks = x.acks[:0]
		for _, g := range x.got {
			for o := g.Start; o < g.End; o++ {
				if o%2 == 0 {
					x.acks = append(x.acks, Ack{Run{Start: o, End: o + 1}, Accept})
				} else {
					held++
				}
			}
		}
		x.told = x.d.Acknowledge(x.told[:0], "slow", x.acks, 0, &x.out)
		x.ledger.Apply(individualcommit.Delta{Commit: x.out.Commit})
		x.out.Reset()
	}
	return x
}

// BenchmarkGaps is one record acquired and accepted above so many gaps.
func BenchmarkGaps(b *testing.B) {
	for _, gaps := range []int64{0, 1_000_000} {
		b.Run(fmt.Sprintf("gaps=%d", gaps), func(b *testing.B) {
			x := gapped(RoundRobin, gaps)
			x.pass(100_000)
			measure(b, x, func() { x.pass(b.N) })
		})
	}
}

// BenchmarkOpenGaps is one record acquired and accepted where every second offset is
// committed: what a restart finds after a million single acknowledgements.
func BenchmarkOpenGaps(b *testing.B) {
	x := newBench(benchConfig(RoundRobin), nil)
	total := int64(2 * (b.N + 1000))
	for o := int64(0); o < total; o += 2 {
		x.commit = append(x.commit, Run{Start: o, End: o + 1})
	}
	x.ledger.Apply(individualcommit.Delta{Commit: x.commit})
	x.d = New(x.d.config, x.ledger)
	x.feed(total)
	measure(b, x, func() {
		for n := 0; n < b.N; {
			n += x.acquire("m")
			x.acknowledge("m", Accept)
		}
	})
}

// TestNothingIsAllocatedInASteadyState: acquiring and accepting allocate nothing. With
// releases in between, more and more records that were looked at wait for their keys, so the
// memory for these grows, by a few allocations for a batch at most.
func TestNothingIsAllocatedInASteadyState(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	for _, m := range benchModes {
		for _, keys := range []uint64{10, 1000} {
			c := benchConfig(m.mode)
			c.Limits.Deliveries = 255 // so that none is near it and dealt in a small hand
			x := newBench(c, uniform(keys))
			accept := func() {
				x.acquire("m")
				x.acknowledge("m", Accept)
			}
			all := func() {
				x.acquire("m")
				x.acknowledge("m", Renew)
				x.acknowledge("m", Release)
				accept()
			}
			for range 60 {
				all()
			}
			require.LessOrEqual(t, testing.AllocsPerRun(20, all)/float64(2*x.batch), 0.01, "%s, %d keys: per record", m.name, keys)
			x = newBench(c, uniform(keys))
			for range 300 {
				accept()
			}
			require.Zero(t, testing.AllocsPerRun(50, accept), "%s, %d keys", m.name, keys)
		}
	}
}

// bytesPerRecord is what each acquired record takes, at most while they become twice as
// many, so that whatever doubles has.
func bytesPerRecord(t *testing.T, mode Mode, keys uint64, oneIn int) (most float64) {
	x := newBench(benchConfig(mode), uniform(keys))
	x.d.ahead.read = 1000
	r := rand.New(rand.NewPCG(1, 1))
	for x.d.Count(Acquired) < 300_000 {
		x.acquire("m")
		x.acks = x.acks[:0]
		for _, g := range x.got {
			for o := g.Start; o < g.End; o++ {
				if r.IntN(oneIn) > 0 {
					x.acks = append(x.acks, Ack{Run{Start: o, End: o + 1}, Accept})
				}
			}
		}
		x.told = x.d.Acknowledge(x.told[:0], "m", x.acks, 0, &x.out)
		x.out.Reset()
		if n := x.d.Count(Acquired); n >= 150_000 {
			most = max(most, float64(x.d.MemoryBytes())/float64(n))
		}
	}
	require.NoError(t, x.d.CheckInvariants())
	return most
}

// TestAcquiredRecordsAreSmall holds the memory budget, 16 bytes for each, also where seven in
// eight are done already, and in the modes with an order, where a record has a place in the
// list of its key besides.
func TestAcquiredRecordsAreSmall(t *testing.T) {
	if raceEnabled {
		t.Skip("sizes are the same without the race detector, and that is quicker")
	}
	for _, c := range []struct {
		mode  Mode
		oneIn int
		most  float64
	}{
		{RoundRobin, 1, 1}, {RoundRobin, 2, 2}, {RoundRobin, 8, 6}, {RoundRobin, 10, 8},
		{KeyOrdered, 1, 11}, {KeyOrdered, 2, 13}, {KeyOrdered, 8, 16},
		{KeyRange, 1, 11}, {KeyRange, 2, 13}, {KeyRange, 8, 16},
	} {
		got := bytesPerRecord(t, c.mode, 1000, c.oneIn)
		t.Logf("mode %d, 1 in %d: %.1f bytes", c.mode, c.oneIn, got)
		require.LessOrEqual(t, got, c.most, "mode %d, 1 in %d", c.mode, c.oneIn)
	}
}
