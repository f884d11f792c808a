package broker

import (
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SyncGroup (14), versions 0 to 5. It waits for the leader's assignment.
//
// v3 added static members (KIP-345), v4 flexible versions, v5 the protocol's type and
// name, which are checked (KIP-559).
func (b *Broker) syncGroup(c *call, req *kmsg.SyncGroupRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.SyncGroupResponse)
	resp.MemberAssignment = []byte{}
	if c.version >= 5 && (req.ProtocolType == nil || req.Protocol == nil) {
		resp.ErrorCode = kerr.InconsistentGroupProtocol.Code
		return resp
	}
	sync := &group.SyncRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: orEmpty(req.InstanceID), Generation: req.Generation,
		ProtocolType: orEmpty(req.ProtocolType), Protocol: orEmpty(req.Protocol),
	}
	for i := range req.GroupAssignment {
		a := &req.GroupAssignment[i]
		sync.Assignments = append(sync.Assignments, group.Assignment{MemberID: a.MemberID, Data: a.MemberAssignment})
	}
	answer, err := b.groups.Sync(c.ctx, sync)
	if err != nil {
		resp.ErrorCode = b.codeOf(err)
		return resp
	}
	resp.ErrorCode = code(answer.Err)
	resp.ProtocolType, resp.Protocol = orNull(answer.ProtocolType), orNull(answer.Protocol)
	if answer.Assignment != nil {
		resp.MemberAssignment = answer.Assignment
	}
	return resp
}
