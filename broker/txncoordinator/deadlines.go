package txncoordinator

import (
	"math"
	"sync/atomic"
	"time"

	"go.uber.org/zap"
)

// deadlineClock wakes the goroutine that ends what is due, when something is due earlier
// than it knows.
type deadlineClock struct {
	// next is when it wakes by itself, in ns since 1970.
	next *atomic.Int64
	wake chan struct{}
}

func newDeadlineClock() deadlineClock {
	c := deadlineClock{next: new(atomic.Int64), wake: make(chan struct{}, 1)}
	c.next.Store(math.MaxInt64)
	return c
}

// expect tells of a deadline.
func (c *deadlineClock) expect(at time.Time) {
	if at.UnixNano() >= c.next.Load() {
		return
	}
	select {
	case c.wake <- struct{}{}:
	default:
	}
}

// watchDeadlines aborts transactions whose time is up and forgets ids that nobody uses,
// until the coordinator is closed.
func (c *Coordinator) watchDeadlines() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		select {
		case <-timer.C:
		case <-c.clock.wake:
		case <-c.ctx.Done():
			return
		}
		now := c.opts.Now()
		// What comes to be due from now on wakes again, also while the shards are looked through.
		c.clock.next.Store(math.MaxInt64)
		next := c.tick(now)
		c.clock.next.Store(next.UnixNano())
		timer.Reset(max(next.Sub(c.opts.Now()), minTick))
	}
}

const (
	// minTick is how long it waits at least before it looks again by itself.
	minTick = 10 * time.Millisecond
	// maxTick is how long at most; a shard that could not be loaded is tried again then.
	maxTick = 10 * time.Second
)

// tick ends what is due, and returns when something is again.
func (c *Coordinator) tick(now time.Time) time.Time {
	next := now.Add(maxTick)
	for _, s := range c.shards {
		at, err := s.tick(c.ctx, now)
		if err != nil && c.ctx.Err() == nil {
			c.opts.Logger.Error("transactions whose time is up cannot be ended now", zap.Int32("partition", s.index), zap.Error(err))
			continue
		}
		if !at.IsZero() && at.Before(next) {
			next = at
		}
	}
	return next
}
