package group

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Join handles a JoinGroup. The reply comes with this or a later operation, at the latest
// when the rebalance times out.
func (s *State) Join(now time.Time, t Ticket, req *JoinRequest, out *Output) {
	refuse := func(memberID string, err *kerr.Error) { out.join(t, joinError(memberID, err)) }
	switch {
	case req.Group == "":
		refuse(req.MemberID, kerr.InvalidGroupID)
		return
	case req.SessionTimeout < s.config.MinSessionTimeout || req.SessionTimeout > s.config.MaxSessionTimeout:
		refuse(req.MemberID, kerr.InvalidSessionTimeout)
		return
	}
	e := s.groups[req.Group]
	if e == nil {
		switch {
		case req.MemberID != "":
			refuse(req.MemberID, kerr.UnknownMemberID)
			return
		case req.ProtocolType == "" || len(req.Protocols) == 0:
			refuse("", kerr.InconsistentGroupProtocol)
			return
		}
		// A group begins with a record, so that it is there for others once somebody
		// was told of it.
		s.emit(groupRecord(req.Group, &groupValue{sinceMs: now.UnixMilli()}), out)
		e = s.groups[req.Group]
	}
	c := e.classic
	if c == nil {
		refuse(req.MemberID, kerr.InconsistentGroupProtocol)
		return
	}
	if !s.admits(c, req.MemberID) {
		s.turnAway(c, req.MemberID, now, out)
		refuse("", kerr.GroupMaxSizeReached)
		return
	}
	if !c.supports(req.ProtocolType, req.Protocols) {
		refuse(req.MemberID, kerr.InconsistentGroupProtocol)
		return
	}
	switch {
	case req.MemberID != "":
		s.joinKnown(c, now, t, req, out)
	case req.InstanceID != "":
		s.joinStatic(c, now, t, req, out)
	case req.RequireMemberID:
		s.addPending(c, req.NewMemberID, now, req.SessionTimeout)
		refuse(req.NewMemberID, kerr.MemberIDRequired)
	default:
		s.enter(c, req.NewMemberID, now, t, req, out)
	}
}

// admits tells whether the group has room. During a rebalance those that have joined
// count, so that a group that is too large sheds the last to rejoin.
func (s *State) admits(c *classic, memberID string) bool {
	m := c.byID[memberID]
	switch c.state {
	case PreparingRebalance:
		return m != nil && m.awaitingJoin() || c.awaiting < s.config.MaxSize
	case CompletingRebalance, Stable:
		return m != nil || len(c.members) < s.config.MaxSize
	default:
		return true
	}
}

// turnAway forgets somebody for whom there is no room.
func (s *State) turnAway(c *classic, memberID string, now time.Time, out *Output) {
	s.removePending(c, memberID)
	if m := c.byID[memberID]; m != nil {
		s.remove(c, m, out)
	}
	s.finishJoinPhase(c, now, out)
}

// joinKnown is a JoinGroup with a member id.
func (s *State) joinKnown(c *classic, now time.Time, t Ticket, req *JoinRequest, out *Output) {
	if c.pending[req.MemberID] != nil {
		if req.InstanceID != "" { // only dynamic members are given an id first
			out.join(t, joinError(req.MemberID, kerr.UnknownMemberID))
			return
		}
		s.enter(c, req.MemberID, now, t, req, out)
		return
	}
	if err := c.check(req.MemberID, req.InstanceID); err != nil {
		out.join(t, joinError(req.MemberID, err))
		return
	}
	m := c.byID[req.MemberID]
	changed := !m.says(req.Protocols)
	switch c.state {
	case PreparingRebalance:
		s.rejoin(c, m, now, t, req, "a member joins", out)
	case CompletingRebalance:
		if changed {
			s.rejoin(c, m, now, t, req, "a member changed its metadata", out)
			return
		}
		out.join(t, c.joined(m)) // it may not have seen the first answer
	case Stable:
		switch {
		case c.leader == m.id:
			// The leader sees reasons that metadata does not show, such as new partitions.
			s.rejoin(c, m, now, t, req, "the leader joins again", out)
		case changed:
			s.rejoin(c, m, now, t, req, "a member changed its metadata", out)
		default:
			out.join(t, c.joined(m))
		}
	}
}

// joined is what a member learns of its generation.
func (c *classic) joined(m *member) JoinAnswer {
	a := JoinAnswer{
		Generation: c.generation, ProtocolType: c.protocolType, Protocol: c.protocol,
		Leader: c.leader, MemberID: m.id,
	}
	if c.leader == m.id {
		a.Members = make([]JoinedMember, 0, len(c.members))
		for _, other := range c.members {
			a.Members = append(a.Members, JoinedMember{
				ID: other.id, InstanceID: other.instanceID, Metadata: other.metadata(c.protocol),
			})
		}
	}
	return a
}

// rejoin parks a member's JoinGroup and sees to a rebalance.
func (s *State) rejoin(c *classic, m *member, now time.Time, t Ticket, req *JoinRequest, why string, out *Output) {
	c.renew(m, t, req, out)
	s.rebalanceOrFinish(c, now, because(why, m.id, req.Reason), out)
}

// renew takes over what a member says in a JoinGroup, and parks it.
func (c *classic) renew(m *member, t Ticket, req *JoinRequest, out *Output) {
	c.setProtocols(m, ownProtocols(req.Protocols))
	m.sessionTimeout, m.rebalanceTimeout = req.SessionTimeout, max(req.RebalanceTimeout, 0)
	c.park(m, t, out)
}

// enter makes a new member, with its JoinGroup parked.
func (s *State) enter(c *classic, id string, now time.Time, t Ticket, req *JoinRequest, out *Output) {
	s.removePending(c, id)
	if len(c.members) == 0 {
		c.protocolType = req.ProtocolType
	}
	if c.state == PreparingRebalance && c.before == Empty {
		c.grew = true
	}
	m := &member{
		id: id, instanceID: req.InstanceID, clientID: req.ClientID, clientHost: req.ClientHost,
		sessionTimeout: req.SessionTimeout, rebalanceTimeout: max(req.RebalanceTimeout, 0),
		protocols: ownProtocols(req.Protocols), join: t, fresh: true,
	}
	c.insert(m)
	// It can't send heartbeats yet, nor is a lost connection noticed while its request is
	// parked. A client that gave up and joins anew would leave members behind for ever.
	s.deadlines.Set(&m.session, now.Add(s.config.NewMemberJoinTimeout))
	s.rebalanceOrFinish(c, now, because("a member comes", id, req.Reason), out)
}

// joinStatic is the JoinGroup of a process that knows its instance id only.
func (s *State) joinStatic(c *classic, now time.Time, t Ticket, req *JoinRequest, out *Output) {
	oldID, ok := c.static[req.InstanceID]
	if !ok {
		s.enter(c, req.NewMemberID, now, t, req, out)
		return
	}
	m := c.byID[oldID]
	oldLeader := c.leader
	s.rename(c, m, req.NewMemberID, out)
	m.clientID, m.clientHost, m.fresh = req.ClientID, req.ClientHost, false
	c.renew(m, t, req, out)
	s.keepSession(m, now)
	why := because(fmt.Sprintf("instance %q takes over from member %q", req.InstanceID, oldID), m.id, req.Reason)
	switch {
	case c.state == CompletingRebalance:
		// The leader may be assigning to the old id.
		s.rebalance(c, now, why, out)
	case c.state == Stable && c.selectProtocol() != c.protocol:
		s.rebalanceOrFinish(c, now, why, out)
	case c.state == Stable:
		s.keepAssignment(c, m, oldLeader, req.CanSkipAssignment, now, out)
	default:
		s.finishJoinPhase(c, now, out)
	}
}

// keepAssignment answers a static member that is back, without a rebalance: its new
// member id is logged, its assignment stands.
func (s *State) keepAssignment(c *classic, m *member, oldLeader string, canSkip bool, now time.Time, out *Output) {
	s.emit(groupRecord(c.id, c.value(now.UnixMilli(), nil)), out)
	a := c.joined(m)
	switch {
	case canSkip:
		a.SkipAssignment = c.leader == m.id
	default:
		// An older client that leads would assign; the former id keeps it from that.
		a.Leader, a.Members = oldLeader, nil
	}
	c.answerJoin(m, a, out)
}

func because(why, memberID, reason string) string {
	if reason == "" {
		return fmt.Sprintf("%s: %s", why, memberID)
	}
	return fmt.Sprintf("%s: %s (%s)", why, memberID, reason)
}
