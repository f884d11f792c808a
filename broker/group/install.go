package group

import (
	"bytes"
	"time"
)

// install makes c what its record says: a stable generation, or an empty group. Live,
// the record describes the very members that are there, and only what it decides
// changes; in recovery it makes them.
func (s *State) install(c *classic, v *groupValue) {
	c.protocolType, c.protocol, c.leader = v.protocolType, v.protocol, v.leader
	c.generation = v.generation
	s.installMembers(c, v)
	next := Stable
	if len(c.members) == 0 {
		next = Empty
	}
	if c.state != next {
		c.before, c.state = c.state, next
	}
	c.sinceMs = v.sinceMs
	c.noteSubscriptions()
}

func (s *State) installMembers(c *classic, v *groupValue) {
	was := c.byID
	c.members = make([]*member, 0, len(v.members))
	c.byID = make(map[string]*member, len(v.members))
	c.static = make(map[string]string)
	clear(c.supported)
	c.awaiting = 0
	for i := range v.members {
		mv := &v.members[i]
		m := was[mv.id]
		if m == nil {
			m = &member{id: mv.id}
			m.session = groupDeadline{Of: ending{kind: sessionEnds, group: c, member: mv.id}}
		}
		delete(was, mv.id)
		m.take(mv, v.protocol)
		c.members = append(c.members, m)
		c.byID[m.id] = m
		if m.instanceID != "" {
			c.static[m.instanceID] = m.id
		}
		c.count(m, 1)
		if m.awaitingJoin() {
			c.awaiting++
		}
	}
	for _, gone := range was { // only in recovery, when the log holds an older generation
		s.deadlines.Clear(&gone.session)
	}
}

// take makes m what is logged of it. The log knows its metadata in the selected protocol
// only; the others are kept when they belong to the same subscription.
func (m *member) take(v *memberValue, protocol string) {
	m.instanceID, m.clientID, m.clientHost = v.instanceID, v.clientID, v.clientHost
	m.sessionTimeout = time.Duration(v.sessionTimeoutMs) * time.Millisecond
	m.rebalanceTimeout = time.Duration(v.rebalanceTimeoutMs) * time.Millisecond
	m.assignment = v.assignment
	if said, ok := m.knows(protocol); !ok || !bytes.Equal(said, v.subscription) {
		m.protocols = []Protocol{{Name: protocol, Metadata: v.subscription}}
	}
}
