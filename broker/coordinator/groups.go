package coordinator

import (
	"context"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"golang.org/x/sync/errgroup"
)

// Join handles a JoinGroup; see group.State.Join. It gives the member an id if it needs
// one, and waits for the rebalance. The request's slices are read until it returns.
func (c *Coordinator) Join(ctx context.Context, req *group.JoinRequest) (group.JoinAnswer, error) {
	if req.MemberID == "" {
		named := *req
		named.NewMemberID = c.memberID(req)
		req = &named
	}
	reply, err := askParked(ctx, c.shardOf(req.Group), func(t *turn, ticket group.Ticket) {
		t.state.Join(t.now, ticket, req, t.out)
	})
	if err != nil {
		return group.JoinAnswer{}, err
	}
	return *reply.Join, nil
}

// memberID makes an id as Kafka does: people recognise the client by it.
func (c *Coordinator) memberID(req *group.JoinRequest) string {
	name := req.ClientID
	if req.InstanceID != "" {
		name = req.InstanceID
	}
	return name + "-" + c.opts.NewID()
}

// Sync handles a SyncGroup; see group.State.Sync. It waits for the leader's assignment.
// The request's slices are read until it returns.
func (c *Coordinator) Sync(ctx context.Context, req *group.SyncRequest) (group.SyncAnswer, error) {
	reply, err := askParked(ctx, c.shardOf(req.Group), func(t *turn, ticket group.Ticket) {
		t.state.Sync(t.now, ticket, req, t.out)
	})
	if err != nil {
		return group.SyncAnswer{}, err
	}
	return *reply.Sync, nil
}

// Heartbeat handles a Heartbeat; see group.State.Heartbeat.
func (c *Coordinator) Heartbeat(ctx context.Context, req *group.HeartbeatRequest) error {
	return askError(ctx, c.shardOf(req.Group), func(t *turn) *kerr.Error { return t.state.Heartbeat(t.now, req) })
}

// askError is ask for a request that is answered with an error or none.
func askError(ctx context.Context, s *shard, f func(*turn) *kerr.Error) error {
	refused, err := ask(ctx, s, f)
	return either(err, refused)
}

// either is the first error of two; a nil *kerr.Error is none.
func either(err error, refused *kerr.Error) error {
	if err != nil {
		return err
	}
	if refused != nil {
		return refused
	}
	return nil
}

// errorList is an answer with an error for each of several things, or one for all.
type errorList struct {
	errs []*kerr.Error
	err  *kerr.Error
}

func askErrors(ctx context.Context, s *shard, f func(*turn) ([]*kerr.Error, *kerr.Error)) ([]*kerr.Error, error) {
	answer, err := ask(ctx, s, func(t *turn) (list errorList) {
		list.errs, list.err = f(t)
		return list
	})
	return answer.errs, either(err, answer.err)
}

// Leave handles a LeaveGroup; see group.State.Leave.
func (c *Coordinator) Leave(ctx context.Context, req *group.LeaveRequest) ([]*kerr.Error, error) {
	return askErrors(ctx, c.shardOf(req.Group), func(t *turn) ([]*kerr.Error, *kerr.Error) {
		return t.state.Leave(t.now, req, t.out)
	})
}

// Describe describes a classic group; found is false when there is none of that id.
func (c *Coordinator) Describe(ctx context.Context, id string) (d group.Description, found bool, err error) {
	d, err = ask(ctx, c.shardOf(id), func(t *turn) (d group.Description) {
		d, found = t.state.Describe(id)
		return d
	})
	return d, found, err
}

// List lists the groups that the filter chooses.
func (c *Coordinator) List(ctx context.Context, f group.Filter) ([]group.Listed, error) {
	var list []group.Listed
	err := eachInUse(ctx, c, func(t *turn) []group.Listed { return t.state.List(f) },
		func(found []group.Listed) { list = append(list, found...) })
	return list, err
}

// eachInUse asks all shards that hold something, at the same time, and collects what they
// answer in their order. It returns the first error.
func eachInUse[T any](ctx context.Context, c *Coordinator, f func(*turn) T, collect func(T)) error {
	shards := c.inUse()
	answers := make([]T, len(shards))
	var all errgroup.Group
	for i, s := range shards {
		p := begin(s, f)
		all.Go(func() (err error) {
			answers[i], err = p.Wait(ctx)
			return err
		})
	}
	if err := all.Wait(); err != nil {
		return err
	}
	for _, a := range answers {
		collect(a)
	}
	return nil
}

// Empty tells whether a group has no members, or does not exist.
func (c *Coordinator) Empty(ctx context.Context, id string) (bool, error) {
	return ask(ctx, c.shardOf(id), func(t *turn) bool { return t.state.Empty(id) })
}

// Delete deletes a group without members, with its offsets. Before anything is written it
// calls alsoDelete, if not nil, which is to delete what else is kept for the group; should
// the broker stop in between, the group is there to be deleted again.
func (c *Coordinator) Delete(ctx context.Context, id string, alsoDelete func(context.Context) error) error {
	s := c.shardOf(id)
	if alsoDelete != nil {
		if err := askError(ctx, s, func(t *turn) *kerr.Error { return t.state.CheckDelete(id) }); err != nil {
			return err
		}
		if err := alsoDelete(ctx); err != nil {
			return err
		}
	}
	return askError(ctx, s, func(t *turn) *kerr.Error { return t.state.DeleteGroup(id, t.out) })
}
