package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"
)

// committer sends the commits of a Reader. One request is on its way at a time, and what
// comes meanwhile shares the next one, so the more commits there are, the more travel
// together. It retries what may succeed later for as long as it runs: commits are
// idempotent, so a request that was cut off by a restart of the broker is simply sent
// again.
type committer struct {
	// send commits the parts of one request. The error is about the whole request.
	send func(context.Context, []part) ([]changed, error)
	// settled is told of each part that was committed, and of what was given up, before
	// whoever waits for it is.
	settled func(p part, state State, err error)
	// failed is told why commits that nobody waits for were given up.
	failed func(error)

	backoff func(tries int) time.Duration
	linger  time.Duration
	maxRuns int // in the queue

	wake chan struct{} // holds one signal when the queue may not be empty
	done chan struct{} // closed when run has returned

	mu struct {
		sync.Mutex
		queue  commitQueue
		room   chan struct{} // closed when the queue was taken
		closed error         // why nothing is accepted any more
		trying error         // why the request on its way is being retried
	}
}

func newCommitter() *committer {
	c := &committer{wake: make(chan struct{}, 1), done: make(chan struct{})}
	c.mu.room = make(chan struct{})
	return c
}

// add queues runs of one or several partitions, and waits while the queue is full. The
// runs are the committer's from then on. The ticket is nil if nobody waits.
func (c *committer) add(ctx context.Context, parts []part, t *ticket) error {
	for {
		c.mu.Lock()
		if c.mu.closed != nil {
			defer c.mu.Unlock()
			return c.mu.closed
		}
		if c.mu.queue.runs < c.maxRuns {
			for _, p := range parts {
				c.mu.queue.add(p.tp, p.runs, t)
			}
			c.mu.Unlock()
			c.signal()
			return nil
		}
		room := c.mu.room
		c.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return c.stillTrying(ctx)
		}
	}
}

// flush returns when everything queued before it is settled.
func (c *committer) flush(ctx context.Context) error {
	t := newTicket(1)
	c.mu.Lock()
	if c.mu.closed != nil {
		defer c.mu.Unlock()
		return c.mu.closed
	}
	c.mu.queue.markers = append(c.mu.queue.markers, t)
	c.mu.Unlock()
	c.signal()
	return c.wait(ctx, t)
}

// wait waits for a ticket; if ctx ends first the commit goes on all the same.
func (c *committer) wait(ctx context.Context, t *ticket) error {
	select {
	case <-t.done:
		return t.err()
	case <-ctx.Done():
		return c.stillTrying(ctx)
	}
}

// stillTrying is the error of a wait that was given up, with what it waited for.
func (c *committer) stillTrying(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.trying == nil {
		return context.Cause(ctx)
	}
	return fmt.Errorf("%w: %w", context.Cause(ctx), c.mu.trying)
}

func (c *committer) signal() {
	signal(c.wake)
}

// run sends what is queued until ctx ends. What is not settled then fails with ErrClosed.
func (c *committer) run(ctx context.Context) {
	defer close(c.done)
	for {
		select {
		case <-c.wake:
			if !sleep(ctx, c.linger) {
				c.close()
				return
			}
			c.sendAll(ctx, c.takeQueue())
		case <-ctx.Done():
			c.close()
			return
		}
	}
}

func (c *committer) takeQueue() commitQueue {
	c.mu.Lock()
	defer c.mu.Unlock()
	close(c.mu.room)
	c.mu.room = make(chan struct{})
	return c.mu.queue.take()
}

// close refuses further commits and fails those that are queued.
func (c *committer) close() {
	c.mu.Lock()
	c.mu.closed = ErrClosed
	close(c.mu.room)
	c.mu.room = make(chan struct{})
	q := c.mu.queue.take()
	c.mu.Unlock()
	for tp, asks := range q.asks {
		c.report(tp, asks, ErrClosed)
	}
	for _, t := range q.markers {
		t.settle(ErrClosed)
	}
}

// sendAll sends a batch, request by request, and settles its asks.
func (c *committer) sendAll(ctx context.Context, q commitQueue) {
	errs := make(map[TopicPartition]error)
	for _, request := range q.requests(maxRunsPerCommit) {
		for tp, err := range c.sendRequest(ctx, request) {
			errs[tp] = errors.Join(errs[tp], err)
		}
	}
	for tp, asks := range q.asks {
		if errs[tp] != nil && len(asks) > 1 && ctx.Err() == nil {
			c.sendApart(ctx, tp, asks)
			continue
		}
		c.report(tp, asks, errs[tp])
	}
	for _, t := range q.markers {
		t.settle(nil)
	}
}

// sendApart sends again, in halves, what failed together: a partition's commits are
// applied all or not at all, and one bad offset must not fail the commits of others.
func (c *committer) sendApart(ctx context.Context, tp TopicPartition, asks []ask) {
	for _, half := range [][]ask{asks[:len(asks)/2], asks[len(asks)/2:]} {
		c.sendAll(ctx, commitQueue{asks: map[TopicPartition][]ask{tp: half}})
	}
}

// report tells those who wait for asks their outcome.
func (c *committer) report(tp TopicPartition, asks []ask, err error) {
	if err != nil {
		c.settled(part{tp: tp, runs: joinAsks(asks)}, State{}, err)
	}
	for _, a := range asks {
		switch {
		case a.ticket != nil:
			a.ticket.settle(err)
		case err != nil:
			c.failed(err)
		}
	}
}

// sendRequest sends one request until every part of it has succeeded or failed for good,
// and returns the failures.
func (c *committer) sendRequest(ctx context.Context, parts []part) map[TopicPartition]error {
	failed := make(map[TopicPartition]error)
	for tries := 1; len(parts) > 0; tries++ {
		answers, err := c.send(ctx, parts)
		if err != nil {
			answers = sameAnswer(parts, err)
		}
		var again []part
		var why error
		for i, answer := range answers {
			switch {
			case answer.err == nil:
				c.settled(parts[i], answer.state, nil)
			case err != nil && !permanent(err), retriable(answer.err):
				again, why = append(again, parts[i]), answer.err
			default:
				failed[answer.tp] = answer.err
			}
		}
		parts = again
		if len(parts) > 0 && !c.pause(ctx, tries, why) {
			for _, p := range parts {
				failed[p.tp] = ErrClosed
			}
			parts = nil
		}
	}
	c.note(nil)
	return failed
}

// sameAnswer is the answer to a request of which nothing came back but an error.
func sameAnswer(parts []part, err error) []changed {
	answers := make([]changed, len(parts))
	for i := range parts {
		answers[i] = changed{tp: parts[i].tp, err: err}
	}
	return answers
}

// pause waits before the next try, and keeps why for those who lose patience.
func (c *committer) pause(ctx context.Context, tries int, err error) bool {
	c.note(err)
	return sleep(ctx, c.backoff(tries))
}

func (c *committer) note(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.mu.trying = err
}

// sleep waits for d; false means that ctx ended first.
func sleep(ctx context.Context, d time.Duration) bool {
	if d <= 0 {
		return ctx.Err() == nil
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
