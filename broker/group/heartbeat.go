package group

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Heartbeat keeps a member's session, and tells it of a rebalance.
func (s *State) Heartbeat(now time.Time, req *HeartbeatRequest) *kerr.Error {
	if req.Group == "" {
		return kerr.InvalidGroupID
	}
	c, err := s.classicGroup(req.Group)
	if err != nil {
		return kerr.UnknownMemberID
	}
	if err := c.checkGeneration(req.MemberID, req.InstanceID, req.Generation); err != nil {
		return err
	}
	s.keepSession(c.byID[req.MemberID], now)
	if c.state == PreparingRebalance {
		return kerr.RebalanceInProgress
	}
	return nil
}

// Leave takes members out. The errors are in the order of the members asked for, nil for
// those that left.
func (s *State) Leave(now time.Time, req *LeaveRequest, out *Output) ([]*kerr.Error, *kerr.Error) {
	if req.Group == "" {
		return nil, kerr.InvalidGroupID
	}
	errs := make([]*kerr.Error, len(req.Members))
	c, err := s.classicGroup(req.Group)
	if err != nil {
		for i := range errs {
			errs[i] = kerr.UnknownMemberID
		}
		return errs, nil
	}
	left := ""
	for i := range req.Members {
		m := &req.Members[i]
		if errs[i] = s.leave(c, m, out); errs[i] == nil {
			left = because("a member leaves", m.MemberID+m.InstanceID, m.Reason)
		}
	}
	if left != "" && c.state != Empty {
		s.rebalanceOrFinish(c, now, left, out)
	}
	return errs, nil
}

func (s *State) leave(c *classic, l *LeavingMember, out *Output) *kerr.Error {
	id := l.MemberID
	if id == "" { // an operator removes a static member
		id = c.static[l.InstanceID]
		if l.InstanceID == "" || id == "" {
			return kerr.UnknownMemberID
		}
	} else if c.pending[id] != nil {
		s.removePending(c, id)
		return nil
	} else if err := c.check(id, l.InstanceID); err != nil {
		return err
	}
	s.remove(c, c.byID[id], out)
	return nil
}
