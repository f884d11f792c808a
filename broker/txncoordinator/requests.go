package txncoordinator

import (
	"context"
	"time"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kerr"
)

// endWait is how long a request that meets the end of the transaction before waits for it,
// before it is told to come again.
const endWait = 5 * time.Second

// InitProducerID gives a transactional id its producer id and epoch; see
// transaction.State.InitProducerID. A transaction that it finds open is aborted first.
func (c *Coordinator) InitProducerID(ctx context.Context, req *transaction.InitRequest) (transaction.Producer, error) {
	s := c.shardOf(req.TransactionalID)
	var answer transaction.Producer
	err := s.afterEnd(ctx, req.TransactionalID, func() (refused *kerr.Error, err error) {
		req.NewID, err = s.newProducerID(ctx, func(state *transaction.State) bool {
			return state.WantsProducerID(req.TransactionalID, req.Expected)
		})
		if err != nil {
			return nil, err
		}
		err = s.do(ctx, func(now time.Time, state *transaction.State, out *transaction.Output) {
			answer, refused = state.InitProducerID(now, req, out)
		})
		return refused, err
	})
	return answer, err
}

// newProducerID gives a producer id if the state wants one, else -1.
func (s *shard) newProducerID(ctx context.Context, wants func(*transaction.State) bool) (int64, error) {
	l, err := s.lock(ctx)
	if err != nil {
		return -1, err
	}
	wanted := wants(l.view.state)
	s.mu.Unlock()
	if !wanted {
		return -1, nil
	}
	return s.c.opts.NewProducerID(ctx)
}

// afterEnd carries out a request, and once more when it met the end of a transaction of
// its id that was over soon.
func (s *shard) afterEnd(ctx context.Context, id string, request func() (refused *kerr.Error, err error)) error {
	refused, err := request()
	if err != nil {
		return err
	}
	if refused == kerr.ConcurrentTransactions && s.awaitEnd(ctx, id) {
		if refused, err = request(); err != nil {
			return err
		}
	}
	return asError(refused)
}

// asError makes of a refusal an error; a nil *kerr.Error is none.
func asError(refused *kerr.Error) error {
	if refused == nil {
		return nil
	}
	return refused
}

// awaitEnd waits for the end of a transaction that is being ended. It tells whether it has
// come; true does not say that the markers are there.
func (s *shard) awaitEnd(ctx context.Context, id string) bool {
	s.mu.Lock()
	var written chan struct{}
	if l := s.mu.live[id]; l != nil {
		written = l.written
	}
	s.mu.Unlock()
	if written == nil {
		return true
	}
	patience := time.NewTimer(endWait)
	defer patience.Stop()
	select {
	case <-written:
		return true
	case <-patience.C:
	case <-ctx.Done():
	}
	return false
}

// AddPartitions adds partitions to a transaction, which begins with the first; see
// transaction.State.AddPartitions.
func (c *Coordinator) AddPartitions(ctx context.Context, req *transaction.AddRequest) error {
	s := c.shardOf(req.TransactionalID)
	return s.afterEnd(ctx, req.TransactionalID, func() (refused *kerr.Error, err error) {
		err = s.do(ctx, func(now time.Time, state *transaction.State, out *transaction.Output) {
			refused = state.AddPartitions(now, req, out)
		})
		return refused, err
	})
}

// Verify tells which partitions are in a transaction; see transaction.State.Verify.
func (c *Coordinator) Verify(ctx context.Context, id string, p transaction.Producer, partitions []transaction.TopicPartition) (errs []*kerr.Error, err error) {
	var refused *kerr.Error
	err = c.shardOf(id).do(ctx, func(_ time.Time, state *transaction.State, _ *transaction.Output) {
		errs, refused = state.Verify(id, p, partitions)
	})
	if err == nil {
		err = asError(refused)
	}
	return errs, err
}

// End commits or aborts a transaction; see transaction.State.End. It returns when the
// outcome is durable and, if they can be written now, the markers are.
func (c *Coordinator) End(ctx context.Context, req *transaction.EndRequest) (transaction.Producer, error) {
	s := c.shardOf(req.TransactionalID)
	var err error
	req.NewID, err = s.newProducerID(ctx, func(state *transaction.State) bool { return state.EndWantsProducerID(req.TransactionalID) })
	if err != nil {
		return transaction.None, err
	}
	var answer transaction.Producer
	var refused *kerr.Error
	err = s.do(ctx, func(now time.Time, state *transaction.State, out *transaction.Output) {
		answer, refused = state.End(now, req, out)
	})
	if err == nil {
		err = asError(refused)
	}
	if err != nil {
		return answer, err
	}
	s.awaitEnd(ctx, req.TransactionalID)
	return answer, nil
}

// Describe describes a transactional id, if there is one of that name.
func (c *Coordinator) Describe(ctx context.Context, id string) (d transaction.Description, found bool, err error) {
	err = c.shardOf(id).do(ctx, func(_ time.Time, state *transaction.State, _ *transaction.Output) { d, found = state.Describe(id) })
	return d, found, err
}

// List lists the transactions that the filter chooses.
func (c *Coordinator) List(ctx context.Context, f *transaction.Filter) (list []transaction.Listed, err error) {
	for _, s := range c.shards {
		if !c.opts.Written(s.index) {
			continue
		}
		err := s.do(ctx, func(now time.Time, state *transaction.State, _ *transaction.Output) {
			list = append(list, state.List(now, f)...)
		})
		if err != nil {
			return nil, err
		}
	}
	return list, nil
}
