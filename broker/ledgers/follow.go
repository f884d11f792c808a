package ledgers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
	"go.uber.org/zap"
)

// follow writes to the primary topic the committed offsets of the ledgers named, or with
// nil of all that may have moved since they were last written.
func (s *shard) follow(ctx context.Context, ids []individualcommit.ID) error {
	unlock, err := s.lockFollowing(ctx)
	if err != nil {
		return err
	}
	defer unlock()
	if ids == nil {
		s.advanceShares()
		ids = s.moved()
		s.settle(ids)
	}
	behind, receipt, err := s.behind(ids)
	if err != nil || len(behind) == 0 {
		return err
	}
	// The primary topic is never ahead of the ledger.
	if err := s.await(ctx, receipt); err != nil {
		return err
	}
	var errs []error
	for group, offsets := range behind {
		errs = append(errs, s.write(ctx, group, offsets))
	}
	return errors.Join(errs...)
}

// write writes the committed offsets of a group, those that the primary topic has not.
func (s *shard) write(ctx context.Context, group string, offsets []extension.CommittedOffset) error {
	offsets, err := s.unknown(ctx, group, offsets)
	if err != nil || len(offsets) == 0 {
		return err
	}
	if err := s.c.opts.Committed.Put(ctx, group, offsets); err != nil {
		return fmt.Errorf("write the committed offsets of group %s: %w", group, err)
	}
	s.followed(group, offsets)
	return nil
}

// advanceShares has the owners of ledgers hear where their logs start now.
func (s *shard) advanceShares() {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.mu.loaded
	if l == nil || len(l.shares) == 0 {
		return
	}
	for id, share := range l.shares {
		if bounds, err := s.c.opts.Log.Bounds(partitionOf(id)); err == nil {
			l.advance(share.e, bounds.Start)
		}
	}
	if err := s.appendLocked(); err != nil {
		s.c.opts.Logger.Error("cannot log what the starts of logs have changed", zap.Int32("partition", s.index), zap.Error(err))
	}
}

// moved are the ledgers that the primary topic may be behind.
func (s *shard) moved() []individualcommit.ID {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.loaded == nil {
		return nil
	}
	return slices.Collect(maps.Keys(s.mu.loaded.moved))
}

// behind gives, by group, the committed offsets that the primary topic does not have, and
// what they wait for.
func (s *shard) behind(ids []individualcommit.ID) (map[string][]extension.CommittedOffset, journal.Receipt, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	behind := make(map[string][]extension.CommittedOffset)
	for _, id := range ids {
		e := s.trustedLocked(id)
		if e == nil {
			continue
		}
		l := s.mu.loaded
		offset, ok := l.committed(e)
		if !ok || l.followed[id] == offset {
			delete(l.moved, id)
			continue
		}
		behind[id.Group] = append(behind[id.Group], offset)
	}
	if s.mu.loaded == nil {
		return nil, journal.Receipt{}, nil
	}
	if err := s.appendLocked(); err != nil {
		return nil, journal.Receipt{}, err
	}
	return behind, s.mu.loaded.last, nil
}

// committed gives the committed offset of a ledger, with what the log says about it
// now; not of a partition that is gone.
func (l *loaded) committed(e *individualcommit.Entry) (extension.CommittedOffset, bool) {
	tp := partitionOf(e.ID)
	bounds, err := l.s.c.opts.Log.Bounds(tp)
	if err != nil {
		return extension.CommittedOffset{}, false
	}
	l.advance(e, bounds.Start)
	offset := e.Ledger.Committed()
	return extension.CommittedOffset{
		TopicPartition: tp, Offset: offset, LeaderEpoch: l.s.c.opts.Log.LeaderEpoch(tp, offset-1), Metadata: e.Metadata,
	}, true
}

// followed notes what the primary topic has.
func (s *shard) followed(group string, offsets []extension.CommittedOffset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, o := range offsets {
		if e := s.trustedLocked(idOf(group, o.TopicPartition)); e != nil {
			s.mu.loaded.followed[e.ID] = o
		}
	}
}

// unknown leaves out the offsets that the primary topic turns out to have, which nobody
// knows after a start.
func (s *shard) unknown(ctx context.Context, group string, offsets []extension.CommittedOffset) ([]extension.CommittedOffset, error) {
	var ask []extension.TopicPartition
	s.mu.Lock()
	for _, o := range offsets {
		if l := s.mu.loaded; l != nil {
			if _, known := l.followed[idOf(group, o.TopicPartition)]; !known {
				ask = append(ask, o.TopicPartition)
			}
		}
	}
	s.mu.Unlock()
	if len(ask) == 0 {
		return offsets, nil
	}
	had, err := s.c.opts.Committed.Get(ctx, group, ask)
	if err != nil {
		return nil, fmt.Errorf("read the committed offsets of group %s: %w", group, err)
	}
	s.followed(group, had)
	return slices.DeleteFunc(offsets, func(o extension.CommittedOffset) bool { return slices.Contains(had, o) }), nil
}
