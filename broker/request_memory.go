package broker

import (
	"context"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// requestMemory bounds what requests take while they are read, decoded and answered.
//
// A request takes room as its bytes come, so that a client that announces much and sends
// little holds little. Requests that have come in part could then wait for each other's
// room for ever; therefore one of them at a time may go beyond the bound.
type requestMemory struct {
	limit int64
	free  *semaphore.Weighted
	over  chan struct{} // holds a token while a request may go beyond the bound
}

func newRequestMemory(limit int64) *requestMemory {
	return &requestMemory{limit: limit, free: semaphore.NewWeighted(limit), over: make(chan struct{}, 1)}
}

// room is what one request holds of a memory. The zero value holds nothing.
type room struct {
	memory *requestMemory
	bytes  int64
	over   bool // may go beyond the bound
}

// grow takes more bytes, waiting for them if need be. A request that would have more than
// the whole memory is refused.
func (r *room) grow(ctx context.Context, m *requestMemory, bytes int64) error {
	if r.bytes+bytes > m.limit {
		return fmt.Errorf("a request that takes %d bytes of memory or more, there are %d for all (queued.max.request.bytes)", r.bytes+bytes, m.limit)
	}
	r.memory = m
	switch {
	case r.over:
		return nil
	case r.bytes == 0: // nobody waits for what this one holds, so it may wait its turn
		if err := m.free.Acquire(ctx, bytes); err != nil {
			return err
		}
	case !m.free.TryAcquire(bytes):
		select {
		case m.over <- struct{}{}:
			r.over = true
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	r.bytes += bytes
	return nil
}

// release gives everything back.
func (r *room) release() {
	if r.bytes > 0 {
		r.memory.free.Release(r.bytes)
	}
	if r.over {
		<-r.memory.over
	}
	*r = room{}
}

// grow takes more memory for the request of t. Requests that append never wait for
// others, so they have a memory of their own, which those that wait cannot fill.
func (t *task) grow(c *conn, bytes int) error {
	memory := c.b.memory
	if t.api.begin != nil {
		memory = c.b.appendMemory
	}
	return t.room.grow(c.ctx, memory, int64(bytes))
}
