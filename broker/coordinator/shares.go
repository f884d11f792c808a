package coordinator

import (
	"context"
	"sync"
	"sync/atomic"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/share"
)

// ShareWatcher is told who is a member of share groups and what members may fetch, so that
// records can be dealt, and those of members that are gone freed at once.
type ShareWatcher interface {
	// ShareChanged is called for each change, in the order of a group's changes. It holds up
	// the group's partition, so it must neither wait nor ask the coordinator for anything.
	// A change may be told of before it is durable. Should it not come to be, or after any
	// other reload, all groups of a partition are told of again, without members that are
	// gone: those are whoever is not in the view any more.
	ShareChanged(group.ShareChange)
}

// WatchShares tells w of changes from now on; one that was told before is told no more.
func (c *Coordinator) WatchShares(w ShareWatcher) { c.watcher.Store(&w) }

// SetCluster tells of the topics and settings that there are now. Share groups that this
// concerns assign anew soon after.
func (c *Coordinator) SetCluster(cluster share.Cluster) {
	c.cluster.Store(&cluster)
	for _, s := range c.shards {
		if s.shares.any.Load() {
			begin(s, func(*turn) struct{} { return struct{}{} }) // the turn looks for itself
		}
	}
}

// followCluster sees that a cluster which came during the turn is looked at, also when
// SetCluster did not know yet that the shard has share groups.
func (s *shard) followCluster() {
	if s.shares.any.Load() && s.c.cluster.Load() != s.owner.cluster {
		begin(s, func(*turn) struct{} { return struct{}{} })
	}
}

// shareViews are the share groups of a shard for those who read without a turn.
type shareViews struct {
	any atomic.Bool // there may be share groups
	// views has a *share.View by group id; nil while the shard is not loaded, when a turn
	// must be asked.
	views atomic.Pointer[sync.Map]
}

// publish takes in what a turn decided, and tells who watches.
func (s *shard) publish(changes []group.ShareChange) {
	views := s.shares.views.Load()
	if views == nil {
		views = new(sync.Map)
		defer s.shares.views.Store(views)
	}
	for i := range changes {
		if c := &changes[i]; c.View == nil {
			views.Delete(c.Group)
		} else {
			s.shares.any.Store(true)
			views.Store(c.Group, c.View)
		}
		if w := s.c.watcher.Load(); w != nil {
			(*w).ShareChanged(changes[i])
		}
	}
}

// retract makes readers ask, since the shard is not loaded any more.
func (s *shard) retract() { s.shares.views.Store(nil) }

// Share is who is a member of a share group now, and what each may fetch; nil if there is
// no share group of that id. It waits only while the group's partition is not loaded.
func (c *Coordinator) Share(ctx context.Context, id string) (*share.View, error) {
	s := c.shardOf(id)
	if views := s.shares.views.Load(); views != nil {
		v, _ := views.Load(id)
		view, _ := v.(*share.View)
		return view, nil
	}
	return ask(ctx, s, func(t *turn) *share.View { return t.state.ShareView(id) })
}

// shareAnswer is an answer with a refusal.
type shareAnswer[T any] struct {
	value T
	err   error
}

func askShare[T any](ctx context.Context, c *Coordinator, id string, f func(*turn) (T, error)) (T, error) {
	a, err := ask(ctx, c.shardOf(id), func(t *turn) (a shareAnswer[T]) {
		a.value, a.err = f(t)
		return a
	})
	if err != nil {
		return a.value, err
	}
	return a.value, a.err
}

// ShareHeartbeat handles a ShareGroupHeartbeat; see group.State.ShareHeartbeat.
func (c *Coordinator) ShareHeartbeat(ctx context.Context, h *share.Heartbeat) (share.Answer, error) {
	return askShare(ctx, c, h.Group, func(t *turn) (share.Answer, error) { return t.state.ShareHeartbeat(t.now, h, t.out) })
}

// DescribeShare describes a share group; see group.State.DescribeShare.
func (c *Coordinator) DescribeShare(ctx context.Context, id string) (share.Description, error) {
	return askShare(ctx, c, id, func(t *turn) (share.Description, error) { return t.state.DescribeShare(id) })
}

// FoundShare sees that there is a share group of that id, without members, if something is
// to be set; see group.State.FoundShare.
func (c *Coordinator) FoundShare(ctx context.Context, id string, sets bool) error {
	return c.askShareError(ctx, id, func(t *turn) error { return t.state.FoundShare(t.now, id, sets, t.out) })
}

// CheckShareEmpty tells whether there is a share group of that id, without members.
func (c *Coordinator) CheckShareEmpty(ctx context.Context, id string) error {
	return c.askShareError(ctx, id, func(t *turn) error { return t.state.CheckShareEmpty(id) })
}

// DeleteShareOffsets forgets what is committed of a topic for a share group without
// members.
func (c *Coordinator) DeleteShareOffsets(ctx context.Context, id, topic string) error {
	return c.askShareError(ctx, id, func(t *turn) error { return t.state.DeleteShareOffsets(id, topic, t.out) })
}

func (c *Coordinator) askShareError(ctx context.Context, id string, f func(*turn) error) error {
	_, err := askShare(ctx, c, id, func(t *turn) (struct{}, error) { return struct{}{}, f(t) })
	return err
}
