package coordinator

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// Options are what a coordinator is opened with.
type Options struct {
	// Partitions is how many __consumer_offsets has.
	Partitions int32
	// Open opens one of them for reading and appending. It is called when the partition is
	// needed, and again after a failure.
	Open func(partition int32) (journal.Partition, error)
	// Written tells whether a partition may hold records. One that does not is not opened
	// before the first append. nil: any may.
	Written func(partition int32) bool
	Config  group.Config
	Now     func() time.Time // nil: time.Now
	// NewID makes the unique part of a member id. nil: a random UUID.
	NewID  func() string
	Logger *zap.Logger // nil: nothing is logged
}

// ErrStopped is what requests are refused with once the coordinator stops.
var ErrStopped = fmt.Errorf("the group coordinator has stopped: %w", kerr.CoordinatorNotAvailable)

// Coordinator coordinates all groups. Its methods may be called from any goroutine.
type Coordinator struct {
	opts   Options
	shards []*shard
	config atomic.Pointer[group.Config]
	// cluster and watcher are for share groups; nil: none yet.
	cluster atomic.Pointer[share.Cluster]
	watcher atomic.Pointer[ShareWatcher]

	// ctx ends when the coordinator is closed. It cuts loading short.
	ctx    context.Context
	cancel context.CancelFunc
	owners sync.WaitGroup // goroutines of shards
	// checkpointing is a mutex: one Checkpoint at a time.
	checkpointing chan struct{}
}

// Open makes a coordinator. Nothing is read before it is needed.
func Open(o Options) *Coordinator {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.NewID == nil {
		o.NewID = uuid.NewString
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	if o.Written == nil {
		o.Written = func(int32) bool { return true }
	}
	c := &Coordinator{opts: o, shards: make([]*shard, o.Partitions), checkpointing: make(chan struct{}, 1)}
	c.config.Store(&o.Config)
	c.ctx, c.cancel = context.WithCancel(context.Background())
	for i := range c.shards {
		c.shards[i] = newShard(c, int32(i))
	}
	return c
}

// SetConfig changes the settings of all groups.
func (c *Coordinator) SetConfig(config group.Config) { c.config.Store(&config) }

// Load loads the shards that hold records, so that the sessions of the members that were
// there before a restart begin to count. It returns when all are loaded, with the errors
// of those that could not be; these are tried again when they are needed.
func (c *Coordinator) Load(ctx context.Context) error {
	var errs []error
	for _, s := range c.inUse() {
		if ctx.Err() != nil {
			return ctx.Err()
		}
		_, err := ask(ctx, s, func(*turn) struct{} { return struct{}{} })
		errs = append(errs, err)
	}
	return errors.Join(errs...)
}

// inUse lists the shards that hold or may hold something.
func (c *Coordinator) inUse() []*shard {
	var list []*shard
	for _, s := range c.shards {
		if s.used.Load() || c.opts.Written(s.index) {
			list = append(list, s)
		}
	}
	return list
}

// Close stops the coordinator: who waits is told that it is not here any more, and what
// is not in the views yet is written to them, as far as ctx allows. What was answered is
// durable in any case.
func (c *Coordinator) Close(ctx context.Context) error {
	c.cancel()
	var errs []error
	for _, s := range c.shards {
		errs = append(errs, s.commit(ctx, s.stop()))
	}
	c.owners.Wait()
	return errors.Join(errs...)
}

// shardOf is the shard that a group belongs to.
func (c *Coordinator) shardOf(group string) *shard {
	return c.shards[PartitionFor(group, int32(len(c.shards)))]
}
