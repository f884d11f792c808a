package txncoordinator

import (
	"context"
	"time"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Write is held by who appends in a transaction, from before it is known that this may be
// until the append has its place in the log.
type Write struct {
	s  *shard
	id string
	l  *live
}

// BeginWrite sees that a transaction is open and has the partitions, and keeps its markers
// from being written until Done. With add, as in the second version of transactions, the
// partitions are added if they are missing, durably before it returns; otherwise they must
// have been added before.
//
// One that meets the end of the producer's transaction before waits for it.
func (c *Coordinator) BeginWrite(ctx context.Context, req *transaction.AddRequest, add bool) (*Write, error) {
	s := c.shardOf(req.TransactionalID)
	var w *Write
	err := s.afterEnd(ctx, req.TransactionalID, func() (refused *kerr.Error, err error) {
		w, err = s.write(ctx, req)
		if w != nil || err != nil {
			return nil, err
		}
		err = s.do(ctx, func(now time.Time, state *transaction.State, out *transaction.Output) {
			if add {
				refused = state.AddPartitions(now, req, out)
			} else {
				refused = verify(state, req)
			}
		})
		if refused != nil || err != nil {
			return refused, err
		}
		if w, err = s.write(ctx, req); w == nil && err == nil {
			refused = kerr.ConcurrentTransactions // it was ended in between
		}
		return refused, err
	})
	return w, err
}

func verify(state *transaction.State, req *transaction.AddRequest) *kerr.Error {
	errs, refused := state.Verify(req.TransactionalID, req.Producer, req.Partitions)
	for _, err := range errs {
		if refused == nil {
			refused = err
		}
	}
	return refused
}

// write begins a write if the transaction is open and has the partitions, durably.
func (s *shard) write(ctx context.Context, req *transaction.AddRequest) (*Write, error) {
	l, err := s.lock(ctx)
	if err != nil {
		return nil, err
	}
	for _, tp := range req.Partitions {
		if !l.view.state.Ongoing(req.TransactionalID, req.Producer, tp) {
			s.mu.Unlock()
			return nil, nil
		}
	}
	w := &Write{s: s, id: req.TransactionalID, l: s.liveLocked(req.TransactionalID)}
	w.l.writers++
	if req.Again {
		l.view.state.Expect(req.TransactionalID, req.Partitions)
	}
	receipt := l.last
	s.mu.Unlock()
	if err := s.await(ctx, receipt); err != nil {
		w.Done()
		return nil, err
	}
	return w, nil
}

// Done says that the append has its place, or will not be.
func (w *Write) Done() {
	w.s.mu.Lock()
	defer w.s.mu.Unlock()
	w.l.writers--
	if w.l.writers == 0 && w.l.drained != nil {
		close(w.l.drained)
		w.l.drained = nil
	}
	w.s.forgetLocked(w.id, w.l)
}
