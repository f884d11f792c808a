package broker

import (
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ShareGroupHeartbeat (76), version 1 (KIP-932): a member joins, stays or leaves, and is
// told what to fetch.
func (b *Broker) shareGroupHeartbeat(c *call, req *kmsg.ShareGroupHeartbeatRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareGroupHeartbeatResponse)
	answer, err := b.groups.ShareHeartbeat(c.ctx, &share.Heartbeat{
		Group: req.GroupID, MemberID: req.MemberID, Epoch: req.MemberEpoch, RackID: req.RackID,
		Topics: req.SubscribedTopicNames, ClientID: c.clientID, ClientHost: c.clientHost(),
	})
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = b.coordinatorAnswer(err)
		return resp
	}
	resp.MemberID, resp.MemberEpoch = &req.MemberID, answer.Epoch
	resp.HeartbeatIntervalMillis = int32(answer.HeartbeatInterval.Milliseconds())
	if answer.Assigned {
		resp.Assignment = &kmsg.ShareGroupHeartbeatResponseAssignment{}
		for _, t := range answer.Assignment {
			resp.Assignment.TopicPartitions = append(resp.Assignment.TopicPartitions,
				kmsg.ShareGroupHeartbeatResponseAssignmentTopicPartition{TopicID: t.Topic, Partitions: t.Partitions})
		}
	}
	return resp
}
