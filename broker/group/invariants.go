package group

import "fmt"

// CheckInvariants tells what is wrong with the state, for tests: nil is well.
func (s *State) CheckInvariants() error {
	for _, id := range s.ids() {
		e := s.groups[id]
		if e.id != id || (e.classic == nil) == (e.share == nil) || e.classic != nil && e.classic.id != id {
			return fmt.Errorf("group %q is filed under another id, or of no one kind", id)
		}
		if e.share != nil {
			if err := s.checkShare(e); err != nil {
				return fmt.Errorf("share group %q: %w", id, err)
			}
			continue
		}
		if err := e.classic.checkInvariants(); err != nil {
			return fmt.Errorf("group %q in %s: %w", id, e.classic.state, err)
		}
		if err := e.classic.checkWaits(s.live); err != nil {
			return fmt.Errorf("group %q in %s: %w", id, e.classic.state, err)
		}
	}
	if err := s.checkPending(); err != nil {
		return err
	}
	return s.deadlines.CheckInvariants()
}

func (c *classic) checkInvariants() error {
	awaiting, statics := 0, 0
	supported := make(map[string]int)
	for _, m := range c.members {
		if c.byID[m.id] != m || m.session.Of.member != m.id {
			return fmt.Errorf("member %q is filed under another id", m.id)
		}
		if m.instanceID != "" {
			statics++
			if c.static[m.instanceID] != m.id {
				return fmt.Errorf("instance %q of member %q belongs to %q", m.instanceID, m.id, c.static[m.instanceID])
			}
		}
		if m.awaitingJoin() {
			awaiting++
		}
		for _, p := range m.protocols {
			supported[p.Name]++
		}
		if c.pending[m.id] != nil {
			return fmt.Errorf("member %q is pending too", m.id)
		}
	}
	switch {
	case len(c.byID) != len(c.members) || len(c.static) != statics:
		return fmt.Errorf("%d members, %d by id, %d static, %d by instance", len(c.members), len(c.byID), statics, len(c.static))
	case awaiting != c.awaiting:
		return fmt.Errorf("%d members await, counted are %d", awaiting, c.awaiting)
	case fmt.Sprint(supported) != fmt.Sprint(c.supported):
		return fmt.Errorf("supported are %v, counted are %v", supported, c.supported)
	case c.leader != "" && c.byID[c.leader] == nil:
		return fmt.Errorf("leader %q is no member", c.leader)
	case len(c.members) > 0 && c.leader == "":
		return fmt.Errorf("nobody leads %d members", len(c.members))
	}
	return nil
}

// checkWaits holds that everybody who waits is answered in bounded time, and that
// silence is noticed.
func (c *classic) checkWaits(live bool) error {
	unsynced := false
	for _, m := range c.members {
		unsynced = unsynced || m.unsynced
		switch {
		case m.awaitingJoin() && c.state != PreparingRebalance:
			return fmt.Errorf("member %q waits to join", m.id)
		case m.sync != 0 && c.state != CompletingRebalance:
			return fmt.Errorf("member %q waits for its assignment", m.id)
		case live && !m.session.IsSet() && !m.awaitingJoin() && m.sync == 0:
			return fmt.Errorf("member %q may be silent for ever", m.id)
		}
	}
	for id, d := range c.pending {
		if !d.IsSet() {
			return fmt.Errorf("member id %q is pending for ever", id)
		}
	}
	switch {
	case c.state == PreparingRebalance && !c.joinPhase.IsSet():
		return fmt.Errorf("members join for ever")
	case c.state != PreparingRebalance && c.joinPhase.IsSet():
		return fmt.Errorf("a join phase ends that is not under way")
	case c.state == CompletingRebalance && !c.syncPhase.IsSet():
		return fmt.Errorf("members wait for their assignment for ever")
	case unsynced != c.syncPhase.IsSet():
		return fmt.Errorf("members that have not synced: %v; sync phase ends: %v", unsynced, c.syncPhase.IsSet())
	case (c.state == Empty) && len(c.members) > 0:
		return fmt.Errorf("%d members", len(c.members))
	case (c.state == Stable || c.state == CompletingRebalance) && (len(c.members) == 0 || c.protocolType == ""):
		return fmt.Errorf("%d members of protocol type %q", len(c.members), c.protocolType)
	}
	return nil
}
