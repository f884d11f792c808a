package ledgers

import (
	"context"
	"fmt"
	"math"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Founded tells whether there is a ledger, so that its origin need not be found out.
func (c *Coordinator) Founded(ctx context.Context, group string, tp extension.TopicPartition) (bool, error) {
	s := c.shardOf(group)
	l, err := s.lock(ctx, false)
	if err != nil {
		return false, err
	}
	defer s.mu.Unlock()
	return l != nil && l.state.Get(idOf(group, tp)) != nil, nil
}

// OpenShare gives the ledger of a share partition. Without one it is founded, at the
// group's committed offset, else at origin, cut to the log's bounds: durably, and the
// primary topic has followed, before it returns. The owner that was given before for the
// same ledger is told Gone. Without an owner the ledger is only founded, and there is no
// Share.
func (c *Coordinator) OpenShare(ctx context.Context, group string, tp extension.TopicPartition, origin int64, owner ShareOwner) (*Share, error) {
	if len(group) > math.MaxInt16 {
		return nil, fmt.Errorf("a group's name of %d bytes does not fit into a record: %w", len(group), kerr.InvalidGroupID)
	}
	s, id := c.shardOf(group), idOf(group, tp)
	for {
		founded, err := c.Founded(ctx, group, tp)
		if err != nil {
			return nil, err
		}
		if !founded {
			if err := s.foundShare(ctx, id, origin); err != nil {
				return nil, fmt.Errorf("%s: found the ledger: %w", id, err)
			}
		}
		if err := s.follow(ctx, []individualcommit.ID{id}); err != nil {
			return nil, err
		}
		share, founded, err := s.openShare(ctx, id, owner)
		if founded || err != nil {
			return share, err
		}
		// It was deleted meanwhile.
	}
}

// foundShare makes the ledger of a share partition, if there still is none, and returns
// when it is durable.
func (s *shard) foundShare(ctx context.Context, id individualcommit.ID, origin int64) error {
	s.founding.Lock()
	receipt, err := s.foundShareAt(ctx, id, origin)
	s.founding.Unlock()
	if err != nil {
		return err
	}
	return s.await(ctx, receipt)
}

func (s *shard) foundShareAt(ctx context.Context, id individualcommit.ID, origin int64) (journal.Receipt, error) {
	committed, err := s.c.opts.Committed.Get(ctx, id.Group, []extension.TopicPartition{partitionOf(id)})
	if err != nil {
		return journal.Receipt{}, fmt.Errorf("read the committed offset: %w", err)
	}
	l, err := s.lock(ctx, true)
	if err != nil {
		return journal.Receipt{}, err
	}
	defer s.mu.Unlock()
	bounds, err := s.c.opts.Log.Bounds(partitionOf(id))
	if err != nil {
		return journal.Receipt{}, fmt.Errorf("%w: %w", kerr.UnknownTopicOrPartition, err)
	}
	if l.state.Get(id) != nil {
		return l.last, nil
	}
	if err := s.c.room(ledgerBytes); err != nil {
		return journal.Receipt{}, err
	}
	p := PartitionCommit{Origin: min(max(origin, bounds.Start), bounds.HighWatermark)}
	at := extension.CommittedOffset{Offset: -1}
	if len(committed) > 0 {
		at = committed[0]
	}
	ledger, err := newLedger(&p, at, bounds)
	if err != nil {
		return journal.Receipt{}, err
	}
	l.state.Found(&l.records, id, ledger, individualcommit.Delta{}, &at.Metadata, s.c.nowMs())
	l.moved[id] = struct{}{}
	if err := s.appendLocked(); err != nil {
		return journal.Receipt{}, err
	}
	return l.last, nil
}

// openShare gives a ledger that is there to its owner.
func (s *shard) openShare(ctx context.Context, id individualcommit.ID, owner ShareOwner) (share *Share, founded bool, err error) {
	l, err := s.lock(ctx, true)
	if err != nil {
		return nil, false, err
	}
	defer s.mu.Unlock()
	e := l.state.Get(id)
	if e == nil {
		return nil, false, nil
	}
	if err := e.Trouble(); err != nil {
		return nil, true, fmt.Errorf("%s: %w: %w", id, kerr.UnsupportedVersion, err)
	}
	if owner == nil {
		return nil, true, nil
	}
	bounds, err := s.c.opts.Log.Bounds(partitionOf(id))
	if err != nil {
		return nil, true, fmt.Errorf("%s: %w: %w", id, kerr.UnknownTopicOrPartition, err)
	}
	l.end(id)
	l.advance(e, bounds.Start)
	l.dropDoneCounts(e)
	if err := s.appendLocked(); err != nil {
		return nil, true, err
	}
	share = &Share{l: l, e: e, owner: owner}
	l.shares[id] = share
	return share, true, nil
}
