package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Sync handles a SyncGroup. The reply comes when the leader has assigned, or the
// generation ends.
func (s *State) Sync(now time.Time, t Ticket, req *SyncRequest, out *Output) {
	c, err := s.checkSync(req)
	if err != nil {
		out.sync(t, SyncAnswer{Err: err})
		return
	}
	m := c.byID[req.MemberID]
	switch c.state {
	case PreparingRebalance:
		out.sync(t, SyncAnswer{Err: kerr.RebalanceInProgress})
	case CompletingRebalance:
		c.answerSync(m, SyncAnswer{Err: kerr.RebalanceInProgress}, out) // given up by its client
		m.sync = t
		s.synced(c, m)
		if c.leader == m.id {
			s.assign(c, now, req.Assignments, out)
		}
	case Stable:
		s.synced(c, m)
		out.sync(t, c.assigned(m))
	}
}

func (s *State) checkSync(req *SyncRequest) (*classic, *kerr.Error) {
	if req.Group == "" {
		return nil, kerr.InvalidGroupID
	}
	c, err := s.classicGroup(req.Group)
	if err != nil {
		return nil, kerr.UnknownMemberID
	}
	if err := c.checkGeneration(req.MemberID, req.InstanceID, req.Generation); err != nil {
		return nil, err
	}
	if differ(req.ProtocolType, c.protocolType) || differ(req.Protocol, c.protocol) {
		return nil, kerr.InconsistentGroupProtocol
	}
	return c, nil
}

func differ(a, b string) bool { return a != "" && b != "" && a != b }

// synced notes that the member has asked for its assignment.
func (s *State) synced(c *classic, m *member) {
	m.unsynced = false
	for _, other := range c.members {
		if other.unsynced {
			return
		}
	}
	s.deadlines.Clear(&c.syncPhase)
}

// assign logs what the leader gave to whom, and answers those who wait for it. A member
// that the leader left out has an empty assignment.
func (s *State) assign(c *classic, now time.Time, list []Assignment, out *Output) {
	given := make(map[string][]byte, len(list))
	for _, a := range list {
		given[a.MemberID] = owned(a.Data)
	}
	s.emit(groupRecord(c.id, c.value(now.UnixMilli(), given)), out)
	out.Events = append(out.Events, c.event("assigned", "by leader "+c.leader))
	for _, m := range c.members {
		if c.answerSync(m, c.assigned(m), out) {
			s.keepSession(m, now)
		}
	}
}

func (c *classic) assigned(m *member) SyncAnswer {
	return SyncAnswer{ProtocolType: c.protocolType, Protocol: c.protocol, Assignment: m.assignment}
}

// value is the group as it is logged. With given, the assignments are those instead of
// what the members have.
func (c *classic) value(sinceMs int64, given map[string][]byte) *groupValue {
	v := &groupValue{
		protocolType: c.protocolType, protocol: c.protocol, leader: c.leader,
		generation: c.generation, sinceMs: sinceMs, members: make([]memberValue, 0, len(c.members)),
	}
	for _, m := range c.members {
		assignment := m.assignment
		if given != nil {
			assignment = given[m.id]
		}
		if assignment == nil {
			assignment = []byte{}
		}
		v.members = append(v.members, memberValue{
			id: m.id, instanceID: m.instanceID, clientID: m.clientID, clientHost: m.clientHost,
			rebalanceTimeoutMs: int32(m.rebalanceTimeout.Milliseconds()),
			sessionTimeoutMs:   int32(m.sessionTimeout.Milliseconds()),
			subscription:       m.metadata(c.protocol), assignment: assignment,
		})
	}
	return v
}
