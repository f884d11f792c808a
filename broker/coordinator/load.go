package coordinator

import (
	"bytes"
	"context"
	"fmt"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// viewState is the state of a shard as its log and its view see it. The view keeps
// records as they are in the log, those of other kinds of groups too, and apart from them
// what transactions may commit.
type viewState struct {
	state  *group.State
	config group.Config
	log    *zap.Logger
	unseen journal.Mirror // by the view
	// foreign are keys that mean nothing to this package, malformed their records that
	// should.
	foreign, malformed int
}

// Reset is part of journal.State.
func (v *viewState) Reset() {
	v.state = group.NewState(v.config)
	v.unseen = make(journal.Mirror)
	v.foreign, v.malformed = 0, 0
}

// Load is part of journal.State.
func (v *viewState) Load(key, value []byte) error {
	if group.ForView(key) {
		return v.state.LoadView(key, value)
	}
	v.apply(journal.Record{Key: key, Value: value})
	return nil
}

// Apply is part of journal.State.
func (v *viewState) Apply(_ int64, r journal.Record) error {
	if group.ForView(r.Key) {
		v.ignore(fmt.Errorf("%w: its version is that of a key in views", group.ErrBadRecord))
		return nil
	}
	v.apply(r)
	if r.Transaction == nil {
		v.unseen.Note(r.Key, bytes.Clone(r.Value))
	}
	v.state.ViewChanges(v.unseen.Note)
	return nil
}

// End is part of journal.Transactional.
func (v *viewState) End(_ int64, t journal.Transaction, commit bool) error {
	v.state.EndTransaction(t.ProducerID, commit)
	v.state.ViewChanges(v.unseen.Note)
	return nil
}

// apply goes on without a record that can't be read: one bad record, which a client may
// have produced, must not take down a partition's groups.
func (v *viewState) apply(record journal.Record) {
	r, err := group.DecodeRecord(record.Key, record.Value)
	switch t := record.Transaction; {
	case err != nil:
		v.ignore(err)
		return
	case !r.Known():
		v.foreign++
		return
	case t != nil:
		r.Producer = &group.Producer{ID: t.ProducerID, Epoch: t.ProducerEpoch}
	}
	v.state.Apply(&r)
}

func (v *viewState) ignore(err error) {
	v.malformed++
	v.log.Error("a record of __consumer_offsets cannot be read and is ignored", zap.Error(err))
}

// Lost is part of journal.Tolerant: what a damaged batch held falls back to what was
// before it, so that records are read again.
func (v *viewState) Lost(e *journal.CorruptError) error {
	dropped := v.state.DropPending()
	v.state.ViewChanges(v.unseen.Note)
	v.log.Error("committed offsets and groups of a damaged batch are lost; "+
		"groups go on from what they had committed before",
		zap.Error(e), zap.Int("offsets of transactions before it, whose end may be lost", dropped))
	return nil
}

// Checkpoint is part of journal.State.
func (v *viewState) Checkpoint(w journal.Writer) error {
	v.unseen.Checkpoint(w)
	return nil
}

// load brings the shard to what its log holds.
func (s *shard) load() error {
	v := &viewState{config: *s.c.config.Load(), log: s.log}
	v.Reset()
	w := &s.owner
	if s.c.opts.Written(s.index) {
		if err := s.open(v); err != nil {
			s.drop(err)
			s.log.Error("cannot load groups", zap.Error(err))
			return err
		}
	} else {
		w.view = v
	}
	w.state, w.config, w.cluster = v.state, s.c.config.Load(), s.c.cluster.Load()
	if w.cluster != nil {
		w.state.SetCluster(s.c.opts.Now(), *w.cluster, &w.out)
	}
	w.state.Loaded(s.c.opts.Now(), &w.out)
	return nil
}

// open opens the partition, and brings v to what it holds.
func (s *shard) open(v *viewState) error {
	part, err := s.c.opts.Open(s.index)
	if err != nil {
		return fmt.Errorf("open partition %d of the group coordinator: %w: %w", s.index, kerr.NotCoordinator, err)
	}
	s.committing.Lock()
	defer s.committing.Unlock()
	s.committing.checkpointer = nil
	recovered, err := journal.Recover(s.c.ctx, part.View, part.Source, part.Log, v)
	if err != nil {
		return fmt.Errorf("load partition %d of the group coordinator: %w: %w", s.index, kerr.CoordinatorNotAvailable, err)
	}
	if recovered.Dropped != "" {
		s.log.Warn("the view of committed offsets was dropped and built anew", zap.String("why", recovered.Dropped))
	}
	if v.state.Len() > 0 {
		s.log.Info("groups loaded", zap.Int("groups", v.state.Len()), zap.Int("replayed", recovered.Replayed))
	}
	w := &s.owner
	w.view, w.applied = v, recovered.Applied
	w.journal = journal.Open(part.Log, part.Source)
	w.checkpointer = journal.NewCheckpointer(part.View, part.Source, part.Log)
	s.committing.checkpointer = w.checkpointer
	s.viewAt.Store(recovered.From)
	return nil
}

// openEmpty opens a partition that was not written before, for the state that the shard
// has already.
func (s *shard) openEmpty() error {
	mine := s.owner.view
	found := &viewState{config: mine.config, log: s.log}
	if err := s.open(found); err != nil {
		return err
	}
	if found.state.Len() > 0 || s.owner.applied > 0 {
		return fmt.Errorf("partition %d of the group coordinator was taken for empty, and ends at offset %d", s.index, s.owner.applied)
	}
	s.owner.view = mine
	return nil
}

// durable is the error of an answer whose records did not come to be durable.
func durable(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return fmt.Errorf("group coordinator: %w: %w", kerr.NotCoordinator, err)
}
