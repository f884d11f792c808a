package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// This file keeps a group's members and what is derived from them in step. The
// operations decide; here nothing is decided.

// insert adds a member, the first of which leads.
func (c *classic) insert(m *member) {
	if len(c.members) == 0 && c.protocolType == "" {
		panic("group " + c.id + ": a member without a protocol type")
	}
	m.session = groupDeadline{Of: ending{kind: sessionEnds, group: c, member: m.id}}
	c.members = append(c.members, m)
	c.byID[m.id] = m
	if m.instanceID != "" {
		c.static[m.instanceID] = m.id
	}
	if c.leader == "" {
		c.leader = m.id
	}
	c.count(m, 1)
	if m.awaitingJoin() {
		c.awaiting++
	}
}

// count adds the member's protocols to, or takes them from, those supported.
func (c *classic) count(m *member, n int) {
	for i := range m.protocols {
		name := m.protocols[i].Name
		if c.supported[name] += n; c.supported[name] == 0 {
			delete(c.supported, name)
		}
	}
}

// park makes t the member's parked JoinGroup. One that was parked before is a request
// that its client has given up; it is told to join again.
func (c *classic) park(m *member, t Ticket, out *Output) {
	if m.awaitingJoin() {
		out.join(m.join, joinError(m.id, kerr.RebalanceInProgress))
	} else {
		c.awaiting++
	}
	m.join = t
}

// answerJoin answers the member's JoinGroup if it is parked.
func (c *classic) answerJoin(m *member, a JoinAnswer, out *Output) {
	if m.awaitingJoin() {
		out.join(m.join, a)
		m.join = 0
		c.awaiting--
	}
}

// answerSync answers the member's SyncGroup if it is parked, and says whether it was.
func (c *classic) answerSync(m *member, a SyncAnswer, out *Output) bool {
	if m.sync == 0 {
		return false
	}
	out.sync(m.sync, a)
	m.sync = 0
	return true
}

// setProtocols gives a member other protocols; they are copied already.
func (c *classic) setProtocols(m *member, protocols []Protocol) {
	c.count(m, -1)
	m.protocols = protocols
	c.count(m, 1)
}

// remove takes a member out, telling its parked requests that it is none any more.
func (s *State) remove(c *classic, m *member, out *Output) {
	c.answerJoin(m, joinError("", kerr.UnknownMemberID), out)
	c.answerSync(m, SyncAnswer{Err: kerr.UnknownMemberID}, out)
	s.deadlines.Clear(&m.session)
	delete(c.byID, m.id)
	for i, other := range c.members {
		if other == m {
			c.members = append(c.members[:i], c.members[i+1:]...)
			break
		}
	}
	if c.static[m.instanceID] == m.id {
		delete(c.static, m.instanceID)
	}
	c.count(m, -1)
	if c.leader == m.id {
		c.leader = ""
		if len(c.members) > 0 {
			c.leader = c.members[0].id
		}
	}
}

// rename gives the place of a static member to the process that took over its instance
// id, and fences the one before.
func (s *State) rename(c *classic, m *member, newID string, out *Output) {
	c.answerJoin(m, joinError(m.id, kerr.FencedInstanceID), out)
	c.answerSync(m, SyncAnswer{Err: kerr.FencedInstanceID}, out)
	delete(c.byID, m.id)
	if c.leader == m.id {
		c.leader = newID
	}
	m.id, m.session.Of.member = newID, newID
	c.byID[newID] = m
	c.static[m.instanceID] = newID
}

// addPending remembers a member id that was given out, for as long as a session.
func (s *State) addPending(c *classic, id string, now time.Time, timeout time.Duration) {
	d := &groupDeadline{Of: ending{kind: pendingEnds, group: c, member: id}}
	c.pending[id] = d
	s.deadlines.Set(d, now.Add(timeout))
}

func (s *State) removePending(c *classic, id string) {
	if d := c.pending[id]; d != nil {
		s.deadlines.Clear(d)
		delete(c.pending, id)
	}
}

// keepSession lets the member be silent for another session timeout.
func (s *State) keepSession(m *member, now time.Time) {
	s.deadlines.Set(&m.session, now.Add(m.sessionTimeout))
}
