package broker

import (
	"net"
	"time"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// JoinGroup (11), versions 0 to 9. It waits for the rebalance.
//
// v1 added the rebalance timeout, v4 the second join with a given id (KIP-394), v5 static
// members (KIP-345), v6 flexible versions, v7 the protocol type in the answer (KIP-559),
// v8 the reason (KIP-800), v9 leaders that keep the assignment (KIP-814).
func (b *Broker) joinGroup(c *call, req *kmsg.JoinGroupRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.JoinGroupResponse)
	if req.Version < 1 {
		req.RebalanceTimeoutMillis = req.SessionTimeoutMillis
	}
	protocols := make([]group.Protocol, 0, len(req.Protocols))
	for i := range req.Protocols {
		protocols = append(protocols, group.Protocol{Name: req.Protocols[i].Name, Metadata: req.Protocols[i].Metadata})
	}
	answer, err := b.groups.Join(c.ctx, &group.JoinRequest{
		Group: req.Group, MemberID: req.MemberID, InstanceID: orEmpty(req.InstanceID),
		ClientID: c.clientID, ClientHost: c.clientHost(),
		SessionTimeout:   time.Duration(req.SessionTimeoutMillis) * time.Millisecond,
		RebalanceTimeout: time.Duration(req.RebalanceTimeoutMillis) * time.Millisecond,
		ProtocolType:     req.ProtocolType, Protocols: protocols,
		RequireMemberID: c.version >= 4, CanSkipAssignment: c.version >= 9, Reason: orEmpty(req.Reason),
	})
	if err != nil {
		resp.ErrorCode, resp.Generation, resp.MemberID = b.codeOf(err), -1, req.MemberID
		return resp
	}
	resp.ErrorCode, resp.Generation, resp.MemberID = code(answer.Err), answer.Generation, answer.MemberID
	resp.ProtocolType, resp.Protocol = orNull(answer.ProtocolType), orNull(answer.Protocol)
	resp.LeaderID, resp.SkipAssignment = answer.Leader, answer.SkipAssignment
	for _, m := range answer.Members {
		resp.Members = append(resp.Members, kmsg.JoinGroupResponseMember{
			MemberID: m.ID, InstanceID: orNull(m.InstanceID), ProtocolMetadata: m.Metadata,
		})
	}
	return resp
}

// clientHost is the client's address as groups show it, in Java's way.
func (c *call) clientHost() string {
	host, _, err := net.SplitHostPort(c.conn.peer)
	if err != nil {
		host = c.conn.peer
	}
	return "/" + host
}
