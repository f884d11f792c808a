package txncoordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
	"golang.org/x/sync/errgroup"
)

// Options are what a coordinator is opened with.
type Options struct {
	// Partitions is how many __transaction_state has.
	Partitions int32
	// PartitionFor is the partition, of n, that a transactional id belongs to.
	PartitionFor func(id string, n int32) int32
	// Open opens a partition for reading and appending. It is called when the partition is
	// needed, and again after a failure.
	Open func(partition int32) (journal.Partition, error)
	// Written tells whether a partition may hold records.
	Written func(partition int32) bool
	// NewProducerID gives a producer id that nobody has had.
	NewProducerID func(ctx context.Context) (int64, error)
	Markers       Markers
	Config        transaction.Config
	Now           func() time.Time // nil: time.Now
	Logger        *zap.Logger      // nil: nothing is logged
}

// ErrStopped is what requests are refused with once the coordinator stops.
var ErrStopped = fmt.Errorf("the transaction coordinator has stopped: %w", kerr.CoordinatorNotAvailable)

// Coordinator coordinates all transactions. Its methods may be called from any goroutine.
type Coordinator struct {
	opts   Options
	shards []*shard
	config atomic.Pointer[transaction.Config]

	ctx    context.Context // ends when the coordinator is closed
	cancel context.CancelFunc
	wg     sync.WaitGroup
	clock  deadlineClock
}

// parallelLoads is how many shards are loaded at a time at the start.
const parallelLoads = 4

// Open loads all that __transaction_state holds, goes on ending what was being ended, and
// counts the time-outs of what is open. A partition that cannot be loaded is reported, and
// tried again when it is needed. Close ends what Open began.
func Open(ctx context.Context, o Options) (*Coordinator, error) {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	c := &Coordinator{opts: o, clock: newDeadlineClock()}
	c.config.Store(&o.Config)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for i := range o.Partitions {
		c.shards = append(c.shards, newShard(c, i))
	}
	var group errgroup.Group
	group.SetLimit(parallelLoads)
	for _, s := range c.shards {
		if o.Written(s.index) {
			group.Go(func() error {
				if err := s.load(ctx); err != nil {
					o.Logger.Error("transactions cannot be loaded", zap.Int32("partition", s.index), zap.Error(err))
				}
				return ctx.Err()
			})
		}
	}
	if err := group.Wait(); err != nil {
		c.cancel()
		c.wg.Wait()
		return nil, err
	}
	c.wg.Go(c.watchDeadlines)
	return c, nil
}

// SetConfig changes the settings of all transactions.
func (c *Coordinator) SetConfig(config transaction.Config) { c.config.Store(&config) }

// Checkpoint writes what has changed to the views, which bounds what the next start
// replays and lets the log be compacted.
func (c *Coordinator) Checkpoint(ctx context.Context) error {
	var errs []error
	for _, s := range c.shards {
		errs = append(errs, s.checkpoint(ctx))
	}
	return errors.Join(errs...)
}

// Close stops the coordinator and writes the views. Transactions that are being ended are
// ended by the next start.
func (c *Coordinator) Close(ctx context.Context) error {
	c.cancel()
	c.wg.Wait()
	err := c.Checkpoint(ctx)
	for _, s := range c.shards {
		s.close()
	}
	return err
}

func (c *Coordinator) shardOf(id string) *shard {
	return c.shards[c.opts.PartitionFor(id, int32(len(c.shards)))]
}
