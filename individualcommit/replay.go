package individualcommit

import (
	"errors"
	"fmt"
)

// Apply takes one record of the internal log; a nil value is a tombstone. An error tells
// of a record that is corrupt or of an unknown version. It has then been dealt with: the
// ledger it belongs to is in trouble, if that can be told and no later record helps.
func (s *State) Apply(key, value []byte) error {
	k, err := ParseKey(key)
	if err != nil {
		if errors.Is(err, ErrUnknownVersion) {
			s.unknown++
		}
		return err
	}
	if value != nil {
		if k.OwnerEpoch < s.newest {
			return nil
		}
		s.newest = k.OwnerEpoch
	}
	switch k.Kind {
	case KindSnapshot:
		err = s.applySnapshot(&k, value, len(key)+len(value))
	case KindDelta:
		err = s.applyDelta(&k, value, len(key)+len(value))
	case KindPending:
		err = s.applyPending(&k, value)
	case KindCounts:
		err = s.applyCounts(&k, value)
	case KindOutcome:
		err = s.applyOutcome(&k, value)
	}
	if err != nil {
		return fmt.Errorf("%v: %w", k.ID, err)
	}
	return nil
}

func (s *State) applySnapshot(k *Key, value []byte, size int) error {
	if value == nil {
		if e := s.groups[k.ID.Group][topicPartition{k.ID.Topic, k.ID.Partition}]; e != nil && (!e.founded || e.epoch == k.OwnerEpoch) {
			s.forget(e)
		}
		return nil
	}
	e := s.entry(k.ID)
	snap, err := parseSnapshot(value)
	if err != nil {
		e.trouble = err
		return err
	}
	s.generation = max(s.generation, snap.generation)
	snap.ledger.pending = e.Ledger.pending
	snap.ledger.AdvanceStart(e.Ledger.start)
	e.Ledger, e.LastCommitMs, e.generation, e.epoch = snap.ledger, snap.lastCommitMs, snap.generation, k.OwnerEpoch
	e.Metadata = ""
	if snap.metadata != nil {
		e.Metadata = *snap.metadata
	}
	e.snapshotWritten(size)
	s.recount(e)
	return nil
}

// forget drops a ledger whose snapshot was tombstoned. Its pending offsets, its counts and
// the outcomes of its transactions are tombstoned one by one.
func (s *State) forget(e *Entry) {
	was := *e
	s.remove(e)
	if len(was.staged)+len(was.counts)+len(was.outcomes) > 0 {
		e = s.entry(e.ID)
		e.Ledger.pending, e.staged, e.outcomes, e.unread = was.Ledger.pending, was.staged, was.outcomes, was.unread
		e.counts, e.countsBytes, e.unknownCounts = was.counts, was.countsBytes, was.unknownCounts
		s.recount(e)
	}
}

func (s *State) applyDelta(k *Key, value []byte, size int) error {
	e := s.entry(k.ID)
	position := ringKey{k.OwnerEpoch, k.Position}
	if value == nil {
		delete(e.orphans, position)
		s.removeIfNothing(e)
		return nil
	}
	e.ring = max(e.ring, k.Position+1)
	c := &s.scratch
	if err := c.parse(value); err != nil {
		e.trouble = err
		return err
	}
	s.generation = max(s.generation, c.generation)
	switch {
	case !e.founded || c.generation > e.generation:
		if e.orphans == nil {
			e.orphans = make(map[ringKey]uint64)
		}
		e.orphans[position] = c.generation
	case c.generation < e.generation: // of a snapshot before the last
	case k.Position < e.position: // written twice
	case k.Position > e.position:
		e.trouble = fmt.Errorf("%w: deltas %d to %d of generation %d", ErrLost, e.position, k.Position-1, e.generation)
	default:
		s.apply(e, c)
		e.deltaWritten(size)
	}
	return nil
}

func (s *State) applyPending(k *Key, value []byte) error {
	e := s.entry(k.ID)
	key := stagedKey{k.OwnerEpoch, k.ProducerID, k.Counter}
	if value == nil {
		s.unstage(e, key)
		return nil
	}
	s.take(e, key) // which this record supersedes
	st, err := parseStaged(value)
	if err == nil {
		p := Producer{key.producerID, st.producerEpoch}
		if at, held := e.Ledger.pending.heldElsewhere(p, st.commit); held {
			err = fmt.Errorf("%w: offset %d of %s is pending in two transactions", ErrCorrupt, at, k.ID)
		}
	}
	if err != nil { // its key says enough for its transaction to be ended, and for it to be buried
		st = staged{producerEpoch: unreadEpoch, offset: NoOffset, unread: err}
	}
	s.stage(e, key, st)
	return err
}
