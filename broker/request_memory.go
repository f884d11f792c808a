package broker

import (
	"context"
	"errors"
	"fmt"

	"golang.org/x/sync/semaphore"
)

// errAnswerTooLarge ends a connection whose request asks for too much.
var errAnswerTooLarge = errors.New("an answer that does not fit in the memory for requests")

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
	beyond int64 // what it has beyond the bound, being the one that may
}

// grow takes more bytes, waiting for them if need be. A request that would have more than
// the whole memory is refused.
func (r *room) grow(ctx context.Context, m *requestMemory, bytes int64) error {
	if total := r.bytes + r.beyond + bytes; total > m.limit {
		return fmt.Errorf("a request that takes %d bytes of memory or more, there are %d for all (queued.max.request.bytes)", total, m.limit)
	}
	r.memory = m
	switch {
	case bytes == 0:
		return nil
	case r.beyond > 0:
		r.beyond += bytes
		return nil
	case r.bytes == 0: // nobody waits for what this one holds, so it may wait its turn
		if err := m.free.Acquire(ctx, bytes); err != nil {
			return err
		}
	case !m.free.TryAcquire(bytes):
		select {
		case m.over <- struct{}{}:
			r.beyond = bytes
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
	if r.beyond > 0 {
		<-r.memory.over
	}
	*r = room{}
}

// memoryFor is where requests of an API find room. Those that append never wait for
// others, so they have a memory of their own, which those that wait cannot fill.
func (b *Broker) memoryFor(a *api) *requestMemory {
	if a.begin != nil {
		return b.appendMemory
	}
	return b.memory
}

// grow takes more memory for the request of t.
func (t *task) grow(c *conn, bytes int) error {
	return t.room.grow(c.ctx, c.b.memoryFor(t.api), int64(bytes))
}

// take makes room for a part of an answer that may be much larger than its request. When
// the whole cannot fit it ends the connection and returns false, and there is no answer.
func (c *call) take(bytes int) bool {
	c.answerBytes += bytes
	if c.answerBytes <= freeRequestBytes {
		return true
	}
	if err := c.room.grow(c.ctx, c.conn.b.memory, int64(c.answerBytes)); err != nil {
		c.conn.cancel(fmt.Errorf("%w: %w", errAnswerTooLarge, err))
		return false
	}
	c.answerBytes = 0
	return true
}
