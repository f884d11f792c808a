package broker

import (
	"context"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AlterShareGroupOffsets (91), version 0 (KIP-932): an operator says where a share group
// without members goes on. What was committed from there on is open again, and all before
// is done. A group that does not exist is made, unless there is nothing to set.
func (b *Broker) alterShareGroupOffsets(c *call, req *kmsg.AlterShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AlterShareGroupOffsetsResponse)
	var parts []ledgers.PartitionCommit
	var places []*kmsg.AlterShareGroupOffsetsResponseTopicPartition
	resp.Topics = make([]kmsg.AlterShareGroupOffsetsResponseTopic, len(req.Topics))
	for i := range req.Topics {
		asked, at := &req.Topics[i], &resp.Topics[i]
		at.Topic = asked.Topic
		t, refused := b.topics.find(asked.Topic, metadata.TopicID{}, false)
		if refused == nil {
			at.TopicID = t.id
		}
		at.Partitions = make([]kmsg.AlterShareGroupOffsetsResponseTopicPartition, len(asked.Partitions))
		for j := range asked.Partitions {
			p, answer := &asked.Partitions[j], &at.Partitions[j]
			answer.Partition = p.Partition
			switch {
			case refused != nil || t.partition(p.Partition) == nil:
				b.refusePartition(answer, kerr.UnknownTopicOrPartition)
			case p.StartOffset < 0:
				b.refusePartition(answer, refusal(kerr.InvalidRequest, "start offset %d of %s-%d", p.StartOffset, t.name, p.Partition))
			default:
				parts, places = append(parts, startAt(t, p)), append(places, answer)
			}
		}
	}
	if err := b.groups.FoundShare(c.ctx, req.GroupID, len(parts) > 0); err != nil {
		resp.ErrorCode, resp.ErrorMessage = b.coordinatorAnswer(err)
		resp.Topics = nil
		return resp
	}
	b.setShareOffsets(c.ctx, req.GroupID, parts, places)
	return resp
}

func startAt(t *topic, p *kmsg.AlterShareGroupOffsetsRequestTopicPartition) ledgers.PartitionCommit {
	commit := ledgers.PartitionCommit{
		TopicPartition: extension.TopicPartition{Topic: t.id, Partition: p.Partition},
		Individual:     true, Origin: p.StartOffset,
	}
	commit.Offset = p.StartOffset
	return commit
}

// setShareOffsets commits for the operator, and fills in what failed.
func (b *Broker) setShareOffsets(ctx context.Context, group string, parts []ledgers.PartitionCommit, places []*kmsg.AlterShareGroupOffsetsResponseTopicPartition) {
	if len(parts) == 0 {
		return
	}
	operator := &extension.Member{Group: group, Generation: -1, Operator: true}
	for i, result := range b.ledgers.Begin(ctx, operator, parts).Wait(ctx) {
		if result.Err != nil {
			b.refusePartition(places[i], result.Err)
		}
	}
}

func (b *Broker) refusePartition(at *kmsg.AlterShareGroupOffsetsResponseTopicPartition, err error) {
	at.ErrorCode, at.ErrorMessage = b.coordinatorAnswer(err)
}
