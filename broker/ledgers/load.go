package ledgers

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// load reads the shard's ledgers from the internal log, unless they are there.
func (s *shard) load(ctx context.Context, unclean bool) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if there, err := s.isLoaded(); there || err != nil {
		return err
	}
	l, err := s.recover(ctx)
	if err == nil {
		err = l.mend(ctx, unclean)
	}
	if err != nil {
		return fmt.Errorf("load the ledgers of partition %d of %s: %w", s.index, individualcommit.TopicName, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return ErrStopped
	}
	s.mu.loaded = l
	s.accountLocked()
	return nil
}

// recover reads what can be read.
func (s *shard) recover(ctx context.Context) (*loaded, error) {
	epoch, owned := s.c.opts.Owner.Epoch(s.index)
	if !owned {
		return nil, kerr.NotCoordinator
	}
	l := &loaded{
		s:        s,
		moved:    make(map[individualcommit.ID]struct{}),
		followed: make(map[individualcommit.ID]extension.CommittedOffset),
		solid:    make(map[individualcommit.ID]solid),
		shares:   make(map[individualcommit.ID]*Share),
	}
	l.Reset()
	var err error
	l.journal, err = s.c.opts.Journal.Recover(ctx, s.index, epoch, l)
	if corrupt := (*journal.CorruptError)(nil); errors.As(err, &corrupt) && l.journal != nil {
		if err = nil; !slices.Contains(l.lost, error(corrupt)) {
			l.lost = append(l.lost, corrupt)
		}
	}
	for _, lost := range l.lost {
		s.c.opts.Logger.Error("records of "+individualcommit.TopicName+" are lost: all its ledgers are given up, their groups go on at the "+
			"committed offsets in the primary topic and read again what they had committed above",
			zap.Int32("partition", s.index), zap.Error(lost))
	}
	return l, err
}

// Reset is part of journal.State.
func (l *loaded) Reset() {
	epoch, _ := l.s.c.opts.Owner.Epoch(l.s.index)
	l.state = individualcommit.NewState(epoch)
	l.dirty = make(map[string]*unseen)
	l.lost = nil
}

// Load is part of journal.State. The view holds the newest record of each key.
func (l *loaded) Load(key, value []byte) error {
	if err := l.state.Apply(key, value); err != nil && !errors.Is(err, individualcommit.ErrUnknownVersion) {
		return err
	}
	return nil
}

// Apply is part of journal.State. A record that cannot be read puts its own ledger in
// trouble, and no other.
func (l *loaded) Apply(offset int64, record journal.Record) error {
	if err := l.state.Apply(record.Key, record.Value); err != nil {
		l.s.c.opts.Logger.Error("a record of "+individualcommit.TopicName+" cannot be read",
			zap.Int32("partition", l.s.index), zap.Int64("offset", offset), zap.Error(err))
	}
	l.note(record.Key, record.Value)
	return nil
}

// Lost is part of journal.Tolerant.
func (l *loaded) Lost(e *journal.CorruptError) error {
	l.lost = append(l.lost, e)
	return nil
}

// Checkpoint is part of journal.State. The view keeps the last record of each key.
func (l *loaded) Checkpoint(w journal.Writer) error {
	for key, u := range l.dirty {
		if u.tombstone {
			w.Delete([]byte(key))
		} else {
			w.Set([]byte(key), u.value)
		}
	}
	clear(l.dirty)
	return nil
}

// mend brings what was read to where it can be used: it forgets ledgers of topics that
// are gone, gives up those that cannot be trusted, and clamps the others to the end of
// their log after an unclean stop. Nothing is served before that is durable, so that no
// record can come to be at an offset that a ledger still takes for committed.
func (l *loaded) mend(ctx context.Context, unclean bool) error {
	for _, e := range slices.Collect(l.state.All()) {
		bounds, err := l.s.c.opts.Log.Bounds(partitionOf(e.ID))
		switch {
		case errors.Is(err, extension.ErrUnknownPartition):
			l.forget(e)
		case err != nil:
			return fmt.Errorf("%s: %w", e.ID, err)
		case l.givenUp(e):
		default:
			l.use(e, bounds)
			if unclean {
				l.clamp(e, bounds.HighWatermark)
			}
		}
	}
	l.state.BuryOrphans(&l.records)
	if err := l.append(l.s.c.nowMs()); err != nil {
		return err
	}
	if err := l.last.Wait(ctx); err != nil {
		return err
	}
	if len(l.lost) == 0 {
		return nil
	}
	// The next start begins behind what cannot be read.
	if err := l.journal.Stage(l); err != nil {
		return err
	}
	return l.journal.Commit(ctx)
}

// use brings a ledger up to date that was not in use.
func (l *loaded) use(e *individualcommit.Entry, bounds extension.Bounds) {
	e.Ledger.AdvanceStart(bounds.Start)
	l.state.SettleOutcomes(&l.records, e, bounds.HighWatermark, l.s.c.nowMs())
	l.moved[e.ID] = struct{}{}
}

func (l *loaded) clamp(e *individualcommit.Entry, end int64) {
	if top := e.Ledger.MaxCommit(); top > end {
		l.s.c.opts.Logger.Warn("a ledger was ahead of its partition after an unclean stop and is cut off",
			zap.Stringer("ledger", e.ID), zap.Int64("max_commit", top), zap.Int64("end", end))
	}
	l.state.Clamp(&l.records, e, end)
	l.cutCounts(e, individualcommit.Run{Start: end, End: math.MaxInt64})
}

// givenUp forgets a ledger that cannot be trusted, and tells whether it did, or must be
// left as it is. Its group goes on at the offset that the primary topic has, a second old
// at most: what it had committed above is read again.
//
// When a batch of the log was lost, every ledger may have lost a record, and that may
// have been one that reopened offsets.
func (l *loaded) givenUp(e *individualcommit.Entry) bool {
	why := errors.Join(append(slices.Clone(l.lost), e.Trouble())...)
	switch {
	case why == nil:
		return false
	case errors.Is(e.Trouble(), individualcommit.ErrUnknownVersion):
		l.s.c.opts.Logger.Error("a ledger was written by a later version and is left alone: it takes no commits",
			zap.Stringer("ledger", e.ID), zap.Error(e.Trouble()))
	default:
		l.s.c.opts.Logger.Error("a ledger cannot be trusted and is given up: its group goes on at the committed offset in the "+
			"primary topic and reads again what it had committed above",
			zap.Stringer("ledger", e.ID), zap.Int64("stable", e.Ledger.Stable()), zap.Int64("gaps", e.Ledger.GapCount()), zap.Error(why))
		l.forget(e)
	}
	return true
}
