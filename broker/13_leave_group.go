package broker

import (
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// LeaveGroup (13), versions 0 to 5.
//
// v3 added many members at once and instance ids (KIP-345), v4 flexible versions, v5 the
// reason (KIP-800).
func (b *Broker) leaveGroup(c *call, req *kmsg.LeaveGroupRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.LeaveGroupResponse)
	leave := &group.LeaveRequest{Group: req.Group}
	if c.version < 3 {
		leave.Members = []group.LeavingMember{{MemberID: req.MemberID}}
	}
	for i := range req.Members {
		m := &req.Members[i]
		leave.Members = append(leave.Members, group.LeavingMember{
			MemberID: m.MemberID, InstanceID: orEmpty(m.InstanceID), Reason: orEmpty(m.Reason),
		})
	}
	errs, err := b.groups.Leave(c.ctx, leave)
	switch {
	case err != nil:
		resp.ErrorCode = b.codeOf(err)
	case c.version < 3:
		resp.ErrorCode = code(errs[0])
	default:
		for i, m := range req.Members {
			resp.Members = append(resp.Members, kmsg.LeaveGroupResponseMember{
				MemberID: m.MemberID, InstanceID: m.InstanceID, ErrorCode: code(errs[i]),
			})
		}
	}
	return resp
}
