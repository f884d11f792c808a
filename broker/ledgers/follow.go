package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
)

// follow writes to the primary topic the committed offsets of the ledgers named, or of
// all that have changed since they were last written.
func (s *shard) follow(ctx context.Context, ids []individualcommit.ID) error {
	s.following.Lock()
	defer s.following.Unlock()
	behind, receipt := s.behind(ids)
	if len(behind) == 0 {
		return nil
	}
	// The primary topic is never ahead of the ledger.
	if err := s.await(ctx, receipt); err != nil {
		return err
	}
	var errs []error
	for group, offsets := range behind {
		offsets, err := s.unknown(ctx, group, offsets)
		if err != nil {
			errs = append(errs, err)
			continue
		}
		if len(offsets) == 0 {
			continue
		}
		if err := s.c.opts.Committed.Put(ctx, group, offsets); err != nil {
			errs = append(errs, fmt.Errorf("write the committed offsets of group %s: %w", group, err))
			continue
		}
		s.followed(group, offsets)
	}
	return errors.Join(errs...)
}

// behind gives, by group, the committed offsets that the primary topic does not have, and
// what they wait for.
func (s *shard) behind(ids []individualcommit.ID) (map[string][]extension.CommittedOffset, journal.Receipt) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.mu.loaded
	if l == nil {
		return nil, journal.Receipt{}
	}
	behind := make(map[string][]extension.CommittedOffset)
	check := func(e *individualcommit.Entry) {
		if offset, ok := l.committed(e); ok && l.followed[e.ID] != offset {
			behind[e.ID.Group] = append(behind[e.ID.Group], offset)
		}
	}
	if ids == nil {
		for e := range l.state.All() {
			check(e)
		}
	}
	for _, id := range ids {
		if e := l.state.Get(id); e != nil {
			check(e)
		}
	}
	return behind, l.last
}

// committed gives the committed offset of a ledger, with what the log says about it
// now; not of a partition that is gone.
func (l *loaded) committed(e *individualcommit.Entry) (extension.CommittedOffset, bool) {
	tp := partitionOf(e.ID)
	bounds, err := l.s.c.opts.Log.Bounds(tp)
	if err != nil {
		return extension.CommittedOffset{}, false
	}
	e.Ledger.AdvanceStart(bounds.Start)
	l.closeAbsent(e, bounds)
	offset := e.Ledger.Committed()
	return extension.CommittedOffset{
		TopicPartition: tp, Offset: offset, LeaderEpoch: l.s.c.opts.Log.LeaderEpoch(tp, offset-1), Metadata: e.Metadata,
	}, true
}

func (s *shard) followed(group string, offsets []extension.CommittedOffset) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l := s.mu.loaded
	if l == nil {
		return
	}
	for _, o := range offsets {
		if id := idOf(group, o.TopicPartition); l.state.Get(id) != nil {
			l.followed[id] = o
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
