package individualcommit

import (
	"fmt"
	"math/rand/v2"
	"syscall"
	"testing"
	"time"
)

// onCPU reports what an operation costs in time on the processor, which is what the
// budgets mean where a machine does other work besides.
func onCPU(b *testing.B) (report func()) {
	start := cpuTime(b)
	return func() {
		b.ReportMetric(float64(cpuTime(b)-start)/float64(b.N), "cpu-ns/op")
	}
}

func cpuTime(tb testing.TB) time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		tb.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// scattered is a set with about a million runs, one offset in `in` being a member.
func scattered(in int64) (s *OffsetSet, window int64) {
	s, window = new(OffsetSet), in*1_000_000
	rnd := rand.New(rand.NewPCG(1, uint64(in)))
	for at := rnd.Int64N(in); at < window; at += 1 + rnd.Int64N(2*in) {
		s.Add(Run{Start: at, End: at + 1})
	}
	return s, window
}

func BenchmarkOffsetSetAdd(b *testing.B) {
	for _, in := range []int64{2, 10, 100, 10_000} {
		for _, length := range []int64{1, 1000} {
			b.Run(fmt.Sprintf("in=%d/length=%d", in, length), func(b *testing.B) {
				s, window := scattered(in)
				rnd := rand.New(rand.NewPCG(2, 2))
				b.ReportAllocs()
				report := onCPU(b)
				for b.Loop() {
					at := rnd.Int64N(window)
					s.Add(Run{Start: at, End: at + length})
				}
				report()
			})
		}
	}
}

func BenchmarkOffsetSetContains(b *testing.B) {
	for _, in := range []int64{2, 100, 10_000} {
		b.Run(fmt.Sprintf("in=%d", in), func(b *testing.B) {
			s, window := scattered(in)
			rnd := rand.New(rand.NewPCG(2, 2))
			report := onCPU(b)
			for b.Loop() {
				s.Contains(rnd.Int64N(window))
			}
			report()
		})
	}
}
