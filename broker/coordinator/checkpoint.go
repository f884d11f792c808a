package coordinator

import (
	"context"
	"errors"

	"github.com/lacunamq/lacuna/broker/journal"
)

// Checkpoint writes what has changed to the views, which bounds what the next start
// replays and lets the log be compacted. What could not be written is tried again by the
// next call.
func (c *Coordinator) Checkpoint(ctx context.Context) error {
	select {
	case c.checkpointing <- struct{}{}:
		defer func() { <-c.checkpointing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	var errs []error
	for _, s := range c.shards {
		if s.used.Load() {
			errs = append(errs, s.checkpoint(ctx))
		}
	}
	return errors.Join(errs...)
}

func (s *shard) checkpoint(ctx context.Context) error {
	type answer struct {
		staged staged
		err    error
	}
	a, err := ask(ctx, s, func(t *turn) (a answer) {
		a.staged, a.err = t.s.stage()
		return a
	})
	if err = errors.Join(err, a.err); err != nil {
		return err
	}
	return s.commit(ctx, a.staged)
}

// staged is what a view is to be brought up to; without a checkpointer nothing.
type staged struct {
	checkpointer *journal.Checkpointer
	upTo         int64
}

// stage collects what the view lags behind in.
func (s *shard) stage() (staged, error) {
	w := &s.owner
	if w.state == nil || w.checkpointer == nil || w.applied == s.viewAt.Load() {
		return staged{}, nil
	}
	return staged{w.checkpointer, w.applied}, w.checkpointer.Stage(w.view, w.applied)
}

// commit writes what was staged, unless the state was loaded anew since.
func (s *shard) commit(ctx context.Context, staged staged) error {
	s.committing.Lock()
	defer s.committing.Unlock()
	if staged.checkpointer == nil || staged.checkpointer != s.committing.checkpointer {
		return nil
	}
	if err := staged.checkpointer.Commit(ctx); err != nil {
		return err
	}
	s.viewAt.Store(staged.upTo)
	return nil
}
