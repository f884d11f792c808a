package coordinator

import (
	"context"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// Commit is a commit that has its place in the queue.
type Commit struct{ pending *Pending[errorList] }

// BeginCommit begins to commit offsets; see group.State.Commit. Commits of a group are
// carried out in the order of the calls.
func (c *Coordinator) BeginCommit(req *group.CommitRequest) Commit {
	return Commit{begin(c.shardOf(req.Group), func(t *turn) (list errorList) {
		list.errs, list.err = t.state.Commit(t.now, req, t.out)
		return list
	})}
}

// Wait waits until the offsets are durable. The errors are in the order of the offsets,
// nil when all are well.
func (c Commit) Wait(ctx context.Context) ([]*kerr.Error, error) {
	answer, err := c.pending.Wait(ctx)
	return answer.errs, either(err, answer.err)
}

// Commit commits offsets and waits until they are durable.
func (c *Coordinator) Commit(ctx context.Context, req *group.CommitRequest) ([]*kerr.Error, error) {
	return c.BeginCommit(req).Wait(ctx)
}

// CheckCommit tells whether somebody may commit offsets of a group now, and keeps the
// session of a member. If so, then is called before anything else happens to the group,
// so that what a member commits elsewhere gets its place before that of the members of
// the next generation. It must not wait for anything; nil does nothing.
func (c *Coordinator) CheckCommit(ctx context.Context, id *group.Identity, then func()) error {
	return askError(ctx, c.shardOf(id.Group), func(t *turn) *kerr.Error {
		if err := t.state.CheckCommit(id); err != nil {
			return err
		}
		t.state.KeepSession(t.now, id)
		if then != nil {
			then()
		}
		return nil
	})
}

// Put sets committed offsets without asking who does it, and waits until they are
// durable; see group.State.Put.
func (c *Coordinator) Put(ctx context.Context, id string, offsets []group.PutOffset) error {
	_, err := ask(ctx, c.shardOf(id), func(t *turn) struct{} {
		t.state.Put(t.now, id, offsets, t.out)
		return struct{}{}
	})
	return err
}

// PartitionOf names a partition whose committed offset is asked for.
type PartitionOf struct {
	group.TopicPartition
	TopicID [16]byte // zero: whatever topic has that name
}

// Found is a committed offset, if there is one.
type Found struct {
	group.Committed
	OK bool
	// Pending says that a transaction that has not ended commits another.
	Pending bool
}

// Committed gives the committed offsets of partitions, in their order.
func (c *Coordinator) Committed(ctx context.Context, id string, partitions []PartitionOf) ([]Found, error) {
	return ask(ctx, c.shardOf(id), func(t *turn) []Found {
		found := make([]Found, len(partitions))
		for i, p := range partitions {
			found[i].Committed, found[i].OK = t.state.Committed(id, p.TopicPartition, p.TopicID)
			found[i].Pending = t.state.HasPending(id, p.TopicPartition, p.TopicID)
		}
		return found
	})
}

// AllCommitted gives all committed offsets of a group, in order of topic and partition.
func (c *Coordinator) AllCommitted(ctx context.Context, id string) ([]group.PartitionOffset, error) {
	return ask(ctx, c.shardOf(id), func(t *turn) []group.PartitionOffset { return t.state.AllCommitted(id) })
}

// DeleteOffsets forgets offsets; see group.State.DeleteOffsets. Before anything is written
// it calls alsoDelete, if not nil, with those that will be forgotten, which is to delete
// what else is kept for them; should the broker stop in between, the offsets are there to
// be deleted again.
func (c *Coordinator) DeleteOffsets(ctx context.Context, id string, partitions []group.TopicPartition,
	alsoDelete func(context.Context, []group.TopicPartition) error,
) ([]*kerr.Error, error) {
	s := c.shardOf(id)
	if alsoDelete != nil {
		errs, err := askErrors(ctx, s, func(t *turn) ([]*kerr.Error, *kerr.Error) {
			return t.state.CheckDeleteOffsets(id, partitions)
		})
		if err != nil {
			return nil, err
		}
		var free []group.TopicPartition
		for i, tp := range partitions {
			if errs[i] == nil {
				free = append(free, tp)
			}
		}
		if err := alsoDelete(ctx, free); err != nil {
			return nil, err
		}
	}
	return askErrors(ctx, s, func(t *turn) ([]*kerr.Error, *kerr.Error) {
		return t.state.DeleteOffsets(id, partitions, t.out)
	})
}

// DeleteTopic forgets what groups have committed of a topic that was deleted.
func (c *Coordinator) DeleteTopic(ctx context.Context, topic string, topicID [16]byte) error {
	return eachInUse(ctx, c, func(t *turn) struct{} {
		t.state.DeleteTopic(topic, topicID, t.out)
		return struct{}{}
	}, func(struct{}) {})
}

// Upkeep is what groups need from time to time (offsets.retention.check.interval.ms):
// offsets whose time is up are forgotten, unless keep spares them, and those of topics
// that are gone. Either may be nil.
func (c *Coordinator) Upkeep(ctx context.Context, keep group.Keep, gone func(topic string, topicID [16]byte) bool) error {
	return eachInUse(ctx, c, func(t *turn) struct{} {
		if gone != nil {
			t.state.Sweep(gone, t.out)
		}
		t.state.Expire(t.now, keep, t.out)
		return struct{}{}
	}, func(struct{}) {})
}

// Clamp lowers offsets that are past the end of their partition, for a start after a
// crash; see group.State.Clamp. It returns how many were lowered, and says which in the
// log.
func (c *Coordinator) Clamp(ctx context.Context, end func(topic string, topicID [16]byte, partition int32) (int64, bool)) (int, error) {
	n := 0
	err := eachInUse(ctx, c, func(t *turn) map[string][]group.PartitionOffset {
		return t.state.Clamp(end, t.out)
	}, func(lowered map[string][]group.PartitionOffset) {
		for id, offsets := range lowered {
			for _, o := range offsets {
				n++
				last, _ := end(o.Topic, o.TopicID, o.Partition)
				c.opts.Logger.Warn("a committed offset was past the end of its partition and is lowered to it",
					zap.String("group", id), zap.String("topic", o.Topic), zap.Int32("partition", o.Partition),
					zap.Int64("committed", o.Offset), zap.Int64("end", last))
			}
		}
	})
	return n, err
}
