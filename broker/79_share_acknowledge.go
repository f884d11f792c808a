package broker

import (
	"context"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ShareAcknowledge (79), versions 1 to 2 (KIP-932): a member says what became of records
// that it acquired. The answer waits until that is durable.
//
// v2 added renewals (KIP-1222).
func (b *Broker) shareAcknowledge(c *call, req *kmsg.ShareAcknowledgeRequest) func(context.Context) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareAcknowledgeResponse)
	m, err := memberOf(req.GroupID, req.MemberID)
	if err == nil {
		if refused := b.shareSessions.acknowledge(m, req.ShareSessionEpoch); refused != nil {
			err = refused
		}
	}
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = b.errorAnswer(err)
		c.answer = resp
		return nil
	}
	acks := shareAcks{b: b, m: m, renew: req.IsRenewAck}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			acks.begin(extension.TopicPartition{Topic: t.TopicID, Partition: p.Partition}, len(p.AcknowledgementBatches),
				func(k int) *ackBatch { return &p.AcknowledgementBatches[k] })
		}
	}
	if req.ShareSessionEpoch == closeShareSession {
		b.endShareSession(m)
	}
	return func(ctx context.Context) kmsg.Response {
		acks.wait(ctx)
		resp.AcquisitionLockTimeoutMillis = int32(b.dealer.LockMs(m.group))
		b.answerAcks(resp, acks.parts)
		return resp
	}
}

// answerAcks fills in what became of the acknowledgements, which are in the order of the
// topics.
func (b *Broker) answerAcks(resp *kmsg.ShareAcknowledgeResponse, parts []shareAck) {
	for i := range parts {
		p := kmsg.NewShareAcknowledgeResponseTopicPartition()
		p.Partition = parts[i].Partition
		if err := parts[i].err; err != nil {
			p.ErrorCode, p.ErrorMessage = b.errorAnswer(err)
			if p.ErrorCode == kerr.NotLeaderForPartition.Code {
				p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = noLeader, noLeader
			}
		}
		if n := len(resp.Topics); n == 0 || resp.Topics[n-1].TopicID != parts[i].Topic {
			t := kmsg.NewShareAcknowledgeResponseTopic()
			t.TopicID = parts[i].Topic
			resp.Topics = append(resp.Topics, t)
		}
		t := &resp.Topics[len(resp.Topics)-1]
		t.Partitions = append(t.Partitions, p)
	}
}
