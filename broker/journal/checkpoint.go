package journal

import (
	"context"
	"fmt"
	"sync"

	"github.com/lacunamq/lacuna/statestore"
)

// Checkpointer writes a state to its view, in two steps: Stage collects what changed
// while the owner keeps others away, and takes no time; Commit waits for the log and
// writes, and may take some. After another Recover of the state there must be another
// Checkpointer.
type Checkpointer struct {
	view   *statestore.View
	source string
	log    Log

	committing chan struct{} // a mutex: one Commit at a time

	mu struct {
		sync.Mutex
		batch  *statestore.Batch // staged and not committed
		upTo   int64             // the offset that batch brings the view to
		failed error             // the state could not say what it changed
	}
}

// NewCheckpointer makes one for a state that Recover has just brought up from the same
// view, source and log.
func NewCheckpointer(view *statestore.View, source string, log Log) *Checkpointer {
	c := &Checkpointer{view: view, source: source, log: log, committing: make(chan struct{}, 1)}
	c.mu.batch = view.NewBatch()
	return c
}

// Stage collects the changes of state, which has applied all records below offset
// applied. What an earlier Stage collected and no Commit wrote is kept before them.
func (c *Checkpointer) Stage(state State, applied int64) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.failed != nil {
		return c.mu.failed
	}
	if err := state.Checkpoint(c.mu.batch); err != nil {
		// Part of the changes may be in the batch, and the state may not name them again.
		c.mu.failed = fmt.Errorf("checkpoint of %s at offset %d: %w", c.source, applied, err)
		return c.mu.failed
	}
	c.mu.batch.SetApplied(c.source, applied)
	c.mu.upTo = applied
	return nil
}

// Commit writes what is staged, once the log is durable up to there. It is seen by a
// crash after the next Sync of the store. After an error it may be tried again; nothing
// staged is lost.
func (c *Checkpointer) Commit(ctx context.Context) error {
	select {
	case c.committing <- struct{}{}:
		defer func() { <-c.committing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	batch, err := c.take(ctx)
	if err != nil || batch.Empty() {
		return err
	}
	if err := batch.Commit(ctx); err != nil {
		c.putBack(batch)
		return fmt.Errorf("checkpoint of %s: %w", c.source, err)
	}
	return nil
}

// take takes out the staged batch when the log is durable up to its offset.
func (c *Checkpointer) take(ctx context.Context) (*statestore.Batch, error) {
	changed := make(chan struct{}, 1)
	defer c.log.Watch(changed)()
	for {
		if batch, err := c.takeDurable(); batch != nil || err != nil {
			return batch, err
		}
		if err := c.log.Err(); err != nil {
			return nil, fmt.Errorf("checkpoint of %s: %w", c.source, err)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

func (c *Checkpointer) takeDurable() (*statestore.Batch, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.mu.failed != nil {
		return nil, c.mu.failed
	}
	if c.log.Bounds().HighWatermark < c.mu.upTo {
		return nil, nil
	}
	batch := c.mu.batch
	c.mu.batch = c.view.NewBatch()
	return batch, nil
}

// putBack puts a batch that was not written before what was staged meanwhile.
func (c *Checkpointer) putBack(batch *statestore.Batch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	batch.Append(c.mu.batch)
	c.mu.batch = batch
}
