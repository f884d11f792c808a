package group

import (
	"fmt"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/broker/deadline"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Kind is the protocol by which the members of a group coordinate. A group id belongs
// to one kind.
type Kind string

// The kinds, spelled as ListGroups does.
const (
	Classic  Kind = "classic"
	Consumer Kind = "consumer" // KIP-848
	Share    Kind = "share"    // KIP-932
)

// State is the groups of one partition of __consumer_offsets. It is not safe for
// concurrent use.
type State struct {
	config    Config
	cluster   share.Cluster
	groups    map[string]*entry
	pending   pendingOffsets
	deadlines deadline.Queue[ending]
	live      bool // loaded: sessions count
}

// entry is one group id. Either classic or share is set.
type entry struct {
	id       string
	classic  *classic
	share    *share.Group
	sessions map[string]*groupDeadline // of the members of share, by id
	offsets  map[TopicPartition]Committed
	// pending are offsets of transactions that have not ended, by when they were written.
	pending map[TopicPartition][]*pendingOffset
}

// NewState returns a State without groups. Apply what the log holds, then call Loaded.
func NewState(config Config) *State {
	return &State{config: config, cluster: noCluster{}, groups: make(map[string]*entry), pending: newPendingOffsets()}
}

// Loaded ends the loading: the sessions of the members found begin at now.
func (s *State) Loaded(now time.Time, out *Output) {
	s.live = true
	for _, id := range s.ids() {
		e := s.groups[id]
		if e.share != nil {
			s.loadedShare(e, now, out)
			continue
		}
		c := e.classic
		for _, m := range c.members {
			s.deadlines.Set(&m.session, now.Add(m.sessionTimeout))
		}
		if len(c.members) > s.config.MaxSize {
			s.rebalance(c, now, fmt.Sprintf("%d members are more than the %d allowed", len(c.members), s.config.MaxSize), out)
		}
	}
}

// NextDeadline is a moment by which Tick should be called, if there is any.
func (s *State) NextDeadline() (time.Time, bool) { return s.deadlines.Next() }

// Tick ends what is due: sessions, and the phases of rebalances.
func (s *State) Tick(now time.Time, out *Output) {
	for {
		d := s.deadlines.Due(now)
		if d == nil {
			return
		}
		switch c := d.Of.group; d.Of.kind {
		case sessionEnds:
			s.endSession(c, c.byID[d.Of.member], now, out)
		case pendingEnds:
			s.endPending(c, d.Of.member, now, out)
		case joinEnds:
			s.endJoinPhase(c, now, out)
		case syncEnds:
			s.endSyncPhase(c, now, out)
		case shareSessionEnds:
			s.endShareSession(&d.Of, now, out)
		}
	}
}

// Apply carries out a record, live or in recovery. A record that is not this package's
// changes nothing, nor does one in a transaction that is no offset.
func (s *State) Apply(r *Record) {
	switch {
	case r.Producer != nil:
		if r.offset != nil {
			s.applyPending(r.offset, *r.Producer)
		}
	case r.offset != nil:
		s.applyOffset(r.offset)
	case r.group != nil:
		s.applyGroup(r.group)
	case r.share != nil:
		s.applyShare(r.share)
	}
}

func (s *State) emit(r Record, out *Output) {
	out.Records = append(out.Records, r)
	s.Apply(&r)
}

func (s *State) applyOffset(change *offsetChange) {
	e := s.groups[change.group]
	if change.value == nil {
		if e == nil {
			return
		}
		delete(e.offsets, change.tp)
		for len(e.pending[change.tp]) > 0 {
			s.unstage(e, e.pending[change.tp][0]) // so that no marker brings them back
		}
		return
	}
	if e == nil {
		e = s.add(change.group)
	}
	s.overtake(e, change.tp, s.pending.lastOrder+1)
	e.commit(change.tp, change.value)
}

// commit sets what is committed of a partition.
func (e *entry) commit(tp TopicPartition, c *Committed) {
	if e.offsets == nil {
		e.offsets = make(map[TopicPartition]Committed)
	}
	e.offsets[tp] = *c
}

// committed is what is committed of a partition; of no entry nothing is.
func (e *entry) committed(tp TopicPartition) (Committed, bool) {
	if e == nil {
		return Committed{}, false
	}
	c, ok := e.offsets[tp]
	return c, ok
}

func (s *State) applyGroup(change *groupChange) {
	e := s.groups[change.group]
	if change.value == nil {
		if e != nil && e.classic != nil {
			s.forget(e)
		}
		return
	}
	if e == nil {
		e = s.add(change.group)
	}
	if e.classic == nil {
		return // an id belongs to one kind; the records of the other came later
	}
	s.install(e.classic, change.value)
}

// add makes a classic group without members, which is all that a group of mere offsets
// needs.
func (s *State) add(id string) *entry {
	e := &entry{id: id}
	e.classic = newClassic(id)
	s.groups[id] = e
	return e
}

// forget removes a group. Offsets that are still there, or may come to be, keep its id.
func (s *State) forget(e *entry) {
	s.release(e)
	if !e.keepsOffsets() {
		delete(s.groups, e.id)
		return
	}
	e.classic, e.share, e.sessions = newClassic(e.id), nil, nil
}

// release ends all deadlines of a group.
func (s *State) release(e *entry) {
	for _, d := range e.sessions {
		s.deadlines.Clear(d)
	}
	c := e.classic
	if c == nil {
		return
	}
	for _, m := range c.members {
		s.deadlines.Clear(&m.session)
	}
	for _, p := range c.pending {
		s.deadlines.Clear(p)
	}
	s.deadlines.Clear(&c.joinPhase)
	s.deadlines.Clear(&c.syncPhase)
}

// classicGroup finds a group that members may talk to.
func (s *State) classicGroup(id string) (*classic, *kerr.Error) {
	e := s.groups[id]
	if e == nil || e.classic == nil {
		return nil, kerr.GroupIDNotFound
	}
	return e.classic, nil
}

// ids lists the groups in order, so that nothing depends on that of a map.
func (s *State) ids() []string {
	ids := make([]string, 0, len(s.groups))
	for id := range s.groups {
		ids = append(ids, id)
	}
	slices.Sort(ids)
	return ids
}

// Empty tells whether the group has no members; a group that does not exist has none.
func (s *State) Empty(group string) bool {
	e := s.groups[group]
	switch {
	case e == nil:
		return true
	case e.share != nil:
		return e.share.Empty()
	}
	return len(e.classic.members) == 0
}

// Len is the number of groups.
func (s *State) Len() int { return len(s.groups) }

// SetConfig changes the settings from now on.
func (s *State) SetConfig(config Config) { s.config = config }
