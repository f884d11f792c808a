package ledgers

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
)

// DeleteGroup forgets all ledgers of a group, and returns when that is durable.
func (c *Coordinator) DeleteGroup(ctx context.Context, group string) error {
	return c.shardOf(group).deleteWhere(ctx, func(e *individualcommit.Entry) bool { return e.ID.Group == group })
}

// DeletePartitions forgets the ledgers that a group has of some partitions.
func (c *Coordinator) DeletePartitions(ctx context.Context, group string, partitions []extension.TopicPartition) error {
	gone := make(map[individualcommit.ID]bool, len(partitions))
	for _, tp := range partitions {
		gone[idOf(group, tp)] = true
	}
	return c.shardOf(group).deleteWhere(ctx, func(e *individualcommit.Entry) bool { return gone[e.ID] })
}

// DeleteTopic forgets all ledgers of a topic that was deleted.
func (c *Coordinator) DeleteTopic(ctx context.Context, topic [16]byte) error {
	var errs []error
	for _, s := range c.shards {
		errs = append(errs, s.deleteWhere(ctx, func(e *individualcommit.Entry) bool { return e.ID.Topic == topic }))
	}
	return errors.Join(errs...)
}

// LastCommit tells whether a group has a ledger of a partition, and when somebody last
// committed to it. It waits for nothing; of ledgers that are not loaded it says that the
// last commit is now.
func (c *Coordinator) LastCommit(group string, tp extension.TopicPartition) (at time.Time, founded bool) {
	s := c.shardOf(group)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.loaded == nil {
		return c.opts.Now(), s.c.opts.Journal.Written(s.index)
	}
	e := s.mu.loaded.state.Get(idOf(group, tp))
	if e == nil {
		return time.Time{}, false
	}
	return time.UnixMilli(e.LastCommitMs), true
}

// deleteWhere forgets the ledgers that which chooses. A write to the primary topic that
// is under way ends before, and none begins after.
func (s *shard) deleteWhere(ctx context.Context, which func(*individualcommit.Entry) bool) error {
	unlock, err := s.lockFollowing(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	receipt, err := s.delete(ctx, which)
	if err != nil {
		return err
	}
	return s.await(ctx, receipt)
}

func (s *shard) delete(ctx context.Context, which func(*individualcommit.Entry) bool) (journal.Receipt, error) {
	l, err := s.lock(ctx, false)
	if err != nil {
		return journal.Receipt{}, err
	}
	defer s.mu.Unlock()
	if l == nil {
		return journal.Receipt{}, nil
	}
	for _, e := range slices.Collect(l.state.All()) {
		if which(e) {
			l.forget(e)
		}
	}
	if err := s.appendLocked(); err != nil {
		return journal.Receipt{}, err
	}
	return l.last, nil
}
