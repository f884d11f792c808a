package coordinator

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
)

// turn is a shard's state in the hands of a request.
type turn struct {
	s     *shard
	state *group.State
	now   time.Time
	out   *group.Output
	err   error // the log has failed; nothing more is carried out in this turn
}

// op is a request in the queue of a shard.
type op struct {
	do   func(*turn)
	fate atomic.Int32
	done chan struct{} // closed when it has been carried out, or won't be
	// Set before done is closed:
	err     error
	receipt journal.Receipt // what the answer waits for
}

// What becomes of an op: it is either carried out or given up.
const (
	opQueued int32 = iota
	opBegun
	opGivenUp
)

// begin says that the op is carried out now, unless it was given up.
func (o *op) begin() bool { return o.fate.CompareAndSwap(opQueued, opBegun) }

// giveUp says that nobody waits any more. It fails when the op has begun.
func (o *op) giveUp() bool { return o.fate.CompareAndSwap(opQueued, opGivenUp) }

// Pending is a request that has its place in the queue, and whose answer is T.
type Pending[T any] struct {
	op     *op
	answer T
	err    error // it was refused
}

// begin queues a request, in the order of the calls.
func begin[T any](s *shard, f func(*turn) T) *Pending[T] {
	p := &Pending[T]{op: &op{done: make(chan struct{})}}
	p.op.do = func(t *turn) { p.answer = f(t) }
	p.err = s.enqueue(p.op)
	return p
}

// Wait waits for the answer. If ctx ends before the request has begun, it will not be
// carried out.
func (p *Pending[T]) Wait(ctx context.Context) (T, error) {
	if err := p.carriedOut(ctx); err != nil {
		var none T
		return none, err
	}
	if err := p.op.receipt.Wait(ctx); err != nil {
		var none T
		return none, durable(ctx, err)
	}
	return p.answer, nil
}

// carriedOut waits until the request has been carried out; its answer may not be given
// yet.
func (p *Pending[T]) carriedOut(ctx context.Context) error {
	if p.err != nil {
		return p.err
	}
	select {
	case <-p.op.done:
	case <-ctx.Done():
		if p.op.giveUp() {
			return ctx.Err()
		}
		<-p.op.done
	}
	return p.op.err
}

// ask queues a request and waits for the answer.
func ask[T any](ctx context.Context, s *shard, f func(*turn) T) (T, error) {
	return begin(s, f).Wait(ctx)
}

// parked is a request whose answer a later turn may decide.
type parked struct{ decided chan decision }

type decision struct {
	reply   group.Reply
	receipt journal.Receipt
	err     error
}

// park gives a request a ticket.
func (t *turn) park(p *parked) group.Ticket {
	w := &t.s.owner
	w.tickets++
	if w.parked == nil {
		w.parked = make(map[group.Ticket]*parked)
	}
	w.parked[w.tickets] = p
	return w.tickets
}

// askParked queues a request that is answered by its ticket, and waits for the answer. A
// client that goes away leaves the request parked; the reply finds nobody.
func askParked(ctx context.Context, s *shard, f func(*turn, group.Ticket)) (group.Reply, error) {
	p := &parked{decided: make(chan decision, 1)}
	err := begin(s, func(t *turn) struct{} {
		f(t, t.park(p))
		return struct{}{}
	}).carriedOut(ctx)
	if err != nil {
		return group.Reply{}, err
	}
	select {
	case d := <-p.decided:
		if d.err != nil {
			return group.Reply{}, d.err
		}
		if err := d.receipt.Wait(ctx); err != nil {
			return group.Reply{}, durable(ctx, err)
		}
		return d.reply, nil
	case <-ctx.Done():
		return group.Reply{}, ctx.Err()
	}
}
