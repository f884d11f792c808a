package broker

import (
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ShareGroupDescribe (77), version 1 (KIP-932).
func (b *Broker) shareGroupDescribe(c *call, req *kmsg.ShareGroupDescribeRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareGroupDescribeResponse)
	for _, id := range req.GroupIDs {
		at := kmsg.NewShareGroupDescribeResponseGroup()
		at.GroupID = id
		d, err := b.groups.DescribeShare(c.ctx, id)
		if id == "" {
			err = kerr.InvalidGroupID
		}
		if err != nil {
			at.ErrorCode, at.ErrorMessage = b.coordinatorAnswer(err)
			resp.Groups = append(resp.Groups, at)
			continue
		}
		at.GroupState, at.GroupEpoch, at.AssignmentEpoch, at.Assignor = d.State, d.GroupEpoch, d.AssignmentEpoch, d.Assignor
		if req.IncludeAuthorizedOperations {
			at.AuthorizedOperations = groupOperations
		}
		for i := range d.Members {
			at.Members = append(at.Members, b.describedShareMember(&d.Members[i]))
		}
		resp.Groups = append(resp.Groups, at)
	}
	return resp
}

func (b *Broker) describedShareMember(m *share.MemberDescription) kmsg.ShareGroupDescribeResponseGroupMember {
	at := kmsg.NewShareGroupDescribeResponseGroupMember()
	at.MemberID, at.RackID, at.MemberEpoch = m.ID, m.RackID, m.Epoch
	at.ClientID, at.ClientHost, at.SubscribedTopicNames = m.ClientID, m.ClientHost, m.Topics
	for _, a := range m.Assignment {
		t, refused := b.topics.find("", metadata.TopicID(a.Topic), true)
		if refused != nil {
			continue // deleted, and the member has not heard of it yet
		}
		at.Assignment.TopicPartitions = append(at.Assignment.TopicPartitions, kmsg.ShareGroupDescribeResponseGroupMemberAssignmentTopicPartition{
			TopicID: a.Topic, Topic: t.name, Partitions: a.Partitions,
		})
	}
	return at
}
