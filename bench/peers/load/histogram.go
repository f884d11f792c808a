package load

import (
	"math"
	"math/bits"
	"sync/atomic"
	"time"
)

// Histogram is a log-linear histogram of microseconds (64 buckets per octave).
type Histogram struct {
	c   [64 * 40]atomic.Int64
	n   atomic.Int64
	max atomic.Int64
}

func bucket(us int64) int {
	if us < 64 {
		if us < 0 {
			us = 0
		}
		return int(us)
	}
	e := bits.Len64(uint64(us)) - 7
	return (e+1)*64 + int(us>>uint(e)) - 64
}

func bucketVal(b int) int64 {
	if b < 64 {
		return int64(b)
	}
	e := b/64 - 1
	return int64(b%64+64) << uint(e)
}

// Add counts one duration.
func (h *Histogram) Add(d time.Duration) {
	us := d.Microseconds()
	b := bucket(us)
	if b >= len(h.c) {
		b = len(h.c) - 1
	}
	h.c[b].Add(1)
	h.n.Add(1)
	for {
		m := h.max.Load()
		if us <= m || h.max.CompareAndSwap(m, us) {
			return
		}
	}
}

// N is how many were counted.
func (h *Histogram) N() int64 { return h.n.Load() }

// Q returns quantile q in milliseconds.
func (h *Histogram) Q(q float64) float64 {
	n := h.n.Load()
	if n == 0 {
		return 0
	}
	want := int64(math.Ceil(q * float64(n)))
	var s int64
	for i := range h.c {
		s += h.c[i].Load()
		if s >= want {
			return float64(bucketVal(i)) / 1000
		}
	}
	return float64(h.max.Load()) / 1000
}

// Max is the longest, in milliseconds.
func (h *Histogram) Max() float64 { return float64(h.max.Load()) / 1000 }
