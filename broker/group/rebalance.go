package group

import (
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// patience is the least time between two looks at a group whose members may name any
// rebalance timeout, zero too.
const patience = time.Second

// rebalanceOrFinish begins a rebalance, or ends the joining of the one under way when
// nobody is waited for any more.
func (s *State) rebalanceOrFinish(c *classic, now time.Time, why string, out *Output) {
	if c.canRebalance() {
		s.rebalance(c, now, why, out)
		return
	}
	s.finishJoinPhase(c, now, out)
}

// rebalance asks all members to join again.
func (s *State) rebalance(c *classic, now time.Time, why string, out *Output) {
	if c.state == CompletingRebalance {
		for _, m := range c.members {
			m.assignment = nil
			if c.answerSync(m, SyncAnswer{Err: kerr.RebalanceInProgress}, out) {
				s.keepSession(m, now)
			}
		}
	}
	s.endSync(c)
	c.initial = c.state == Empty
	c.become(PreparingRebalance, now.UnixMilli())
	out.Events = append(out.Events, c.event("rebalance begins", why))
	switch {
	case c.initial:
		c.grew = false
		c.initialStep = s.config.InitialRebalanceDelay
		c.initialLeft = max(c.rebalanceTimeout()-c.initialStep, 0)
		s.deadlines.Set(&c.joinPhase, now.Add(c.initialStep))
	case c.allJoined():
		s.completeJoin(c, now, out)
	default:
		s.deadlines.Set(&c.joinPhase, now.Add(c.rebalanceTimeout()))
	}
}

// finishJoinPhase ends the joining when all have joined. An empty group's first rebalance
// is not ended early: more members may come.
func (s *State) finishJoinPhase(c *classic, now time.Time, out *Output) {
	if c.state == PreparingRebalance && c.before != Empty && c.allJoined() {
		s.completeJoin(c, now, out)
	}
}

// endJoinPhase is called when the time for joining is up.
func (s *State) endJoinPhase(c *classic, now time.Time, out *Output) {
	if c.initial && c.grew && c.initialLeft > 0 {
		c.grew = false
		step := min(s.config.InitialRebalanceDelay, c.initialLeft)
		c.initialLeft = max(c.initialLeft-c.initialStep, 0)
		c.initialStep = step
		s.deadlines.Set(&c.joinPhase, now.Add(step))
		return
	}
	s.completeJoin(c, now, out)
}

// completeJoin begins the next generation with those that have joined. Static members
// stay although they have not.
func (s *State) completeJoin(c *classic, now time.Time, out *Output) {
	s.deadlines.Clear(&c.joinPhase)
	c.initial = false
	for _, m := range absent(c) {
		out.Events = append(out.Events, c.event("member did not rejoin", m.id))
		s.remove(c, m, out)
	}
	if len(c.members) == 0 {
		s.becomeEmpty(c, now, out)
		return
	}
	if !c.electLeader() {
		// Only static members, none of which has joined. Their sessions end or they come.
		s.deadlines.Set(&c.joinPhase, now.Add(max(c.rebalanceTimeout(), patience)))
		return
	}
	c.generation++
	c.protocol = c.selectProtocol()
	c.noteSubscriptions()
	c.become(CompletingRebalance, now.UnixMilli())
	out.Events = append(out.Events, c.event("generation begins", "protocol "+c.protocol))
	for _, m := range c.members {
		c.answerJoin(m, c.joined(m), out)
		s.keepSession(m, now)
		m.fresh, m.unsynced = false, true
	}
	s.deadlines.Set(&c.syncPhase, now.Add(c.rebalanceTimeout()))
}

// absent lists the dynamic members that have not joined.
func absent(c *classic) []*member {
	var list []*member
	for _, m := range c.members {
		if !m.awaitingJoin() && m.instanceID == "" {
			list = append(list, m)
		}
	}
	return list
}

// electLeader makes sure that the leader is a member that has joined, and tells whether
// there is one.
func (c *classic) electLeader() bool {
	if c.byID[c.leader].awaitingJoin() {
		return true
	}
	for _, m := range c.members {
		if m.awaitingJoin() {
			c.leader = m.id
			return true
		}
	}
	return false
}

func (s *State) becomeEmpty(c *classic, now time.Time, out *Output) {
	v := c.value(now.UnixMilli(), nil)
	v.generation, v.protocol = c.generation+1, ""
	s.emit(groupRecord(c.id, v), out)
	out.Events = append(out.Events, c.event("group is empty", ""))
}

// endSync forgets who has not asked for its assignment.
func (s *State) endSync(c *classic) {
	for _, m := range c.members {
		m.unsynced = false
	}
	s.deadlines.Clear(&c.syncPhase)
}

// endSyncPhase removes the members that never asked for their assignment.
func (s *State) endSyncPhase(c *classic, now time.Time, out *Output) {
	var silent []*member
	for _, m := range c.members {
		if m.unsynced {
			silent = append(silent, m)
		}
	}
	for _, m := range silent {
		s.remove(c, m, out)
	}
	if len(silent) > 0 {
		s.rebalance(c, now, fmt.Sprintf("%d members did not ask for their assignment", len(silent)), out)
	}
}

// endSession is called when a member has been silent for too long.
func (s *State) endSession(c *classic, m *member, now time.Time, out *Output) {
	if !m.fresh && (m.awaitingJoin() || m.sync != 0) {
		return // it waits for us; its session begins anew with the answer
	}
	out.Events = append(out.Events, c.event("member's session ended", m.id))
	s.remove(c, m, out)
	switch c.state {
	case Stable, CompletingRebalance:
		s.rebalance(c, now, "session ended: "+m.id, out)
	case PreparingRebalance:
		if c.allJoined() {
			s.completeJoin(c, now, out)
		}
	}
}

// endPending is called when a member id has not been used in time.
func (s *State) endPending(c *classic, id string, now time.Time, out *Output) {
	s.removePending(c, id)
	if c.state == PreparingRebalance && c.allJoined() {
		s.completeJoin(c, now, out)
	}
}

func (c *classic) event(what, detail string) Event {
	return Event{Group: c.id, Generation: c.generation, Members: len(c.members), What: what, Detail: detail}
}
