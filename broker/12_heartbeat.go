package broker

import (
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Heartbeat (12), versions 0 to 4.
//
// v3 added static members (KIP-345), v4 flexible versions.
func (b *Broker) heartbeat(c *call, req *kmsg.HeartbeatRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.HeartbeatResponse)
	resp.ErrorCode = b.codeOf(b.groups.Heartbeat(c.ctx, &group.HeartbeatRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: orEmpty(req.InstanceID), Generation: req.Generation,
	}))
	return resp
}
