package ledgers

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Options are what a Coordinator is opened with.
type Options struct {
	Log       extension.Log
	Journal   extension.Journal
	Committed extension.Committed
	Members   extension.Members
	Owner     extension.Owner
	// MaxMemoryBytes is individual.commit.max.memory.bytes, for all ledgers together.
	MaxMemoryBytes func() int64
	// Decode has use look at the records of a batch, decompressed if need be, which are gone
	// when it returns. It bounds how large they may be, and how many batches at a time.
	Decode func(h *protocol.BatchHeader, batch []byte, use func(records []byte) error) error
	// PartitionFor is the partition, of n, that a group belongs to.
	PartitionFor func(group string, n int32) int32
	Now          func() time.Time // nil: time.Now
	Logger       *zap.Logger      // nil: nothing is logged
}

// followEvery is how often the primary topic follows stable offsets that rise.
const followEvery = time.Second

// parallelLoads is how many shards are loaded at a time at the start.
const parallelLoads = 4

// ErrStopped is what requests are refused with once the coordinator stops.
var ErrStopped = fmt.Errorf("the ledgers are closed: %w", kerr.CoordinatorNotAvailable)

// Coordinator runs all ledgers. Its methods may be called from any goroutine.
type Coordinator struct {
	opts   Options
	shards []*shard
	memory atomic.Int64 // of all ledgers, in bytes

	stop context.CancelFunc
	wg   sync.WaitGroup
}

// Open loads every ledger that the internal log holds. After an unclean stop, ledgers
// are clamped to the ends of their partitions' logs. Close ends what Open began.
func Open(ctx context.Context, o Options, unclean bool) (*Coordinator, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	c := &Coordinator{opts: o}
	for i := range o.Journal.Partitions() {
		c.shards = append(c.shards, newShard(c, i))
	}
	group, loading := errgroup.WithContext(ctx)
	group.SetLimit(parallelLoads)
	for _, s := range c.shards {
		if o.Journal.Written(s.index) {
			group.Go(func() error { return s.load(loading, unclean) })
		}
	}
	if err := group.Wait(); err != nil {
		return nil, err
	}
	background, stop := context.WithCancel(context.Background())
	c.stop = stop
	c.wg.Go(func() { c.follow(background) })
	return c, nil
}

// follow lets the primary topic follow, until ctx ends.
func (c *Coordinator) follow(ctx context.Context) {
	ticker := time.NewTicker(followEvery)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
			c.followAll(ctx)
		case <-ctx.Done():
			return
		}
	}
}

func (c *Coordinator) followAll(ctx context.Context) {
	for _, s := range c.shards {
		if err := s.follow(ctx, nil); err != nil && ctx.Err() == nil {
			c.opts.Logger.Error("committed offsets in the primary topic lag behind their ledgers",
				zap.Int32("partition", s.index), zap.Error(err))
		}
	}
}

// Checkpoint writes what has changed to the views, which bounds what the next start
// replays and lets the internal log be compacted.
func (c *Coordinator) Checkpoint(ctx context.Context) error {
	var errs []error
	for _, s := range c.shards {
		errs = append(errs, s.checkpoint(ctx))
	}
	return errors.Join(errs...)
}

// Close lets the primary topic catch up, writes the views, and stops. Nothing else may
// be called meanwhile.
func (c *Coordinator) Close(ctx context.Context) error {
	c.stop()
	c.wg.Wait()
	c.followAll(ctx)
	err := c.Checkpoint(ctx)
	for _, s := range c.shards {
		s.close()
	}
	return err
}

// MemoryBytes is about how much memory the ledgers take.
func (c *Coordinator) MemoryBytes() int64 { return c.memory.Load() }

func (c *Coordinator) shardOf(group string) *shard {
	return c.shards[c.opts.PartitionFor(group, int32(len(c.shards)))]
}

func (c *Coordinator) nowMs() int64 { return c.opts.Now().UnixMilli() }
