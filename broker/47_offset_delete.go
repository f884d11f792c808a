package broker

import (
	"context"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetDelete (47), version 0.
func (b *Broker) offsetDelete(c *call, req *kmsg.OffsetDeleteRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetDeleteResponse)
	var known []group.TopicPartition
	resp.Topics = make([]kmsg.OffsetDeleteResponseTopic, len(req.Topics))
	for i := range req.Topics {
		topic, at := &req.Topics[i], &resp.Topics[i]
		at.Topic = topic.Topic
		t, _ := b.topics.find(topic.Topic, metadata.TopicID{}, false)
		for _, p := range topic.Partitions {
			answer := kmsg.OffsetDeleteResponseTopicPartition{Partition: p.Partition}
			if t == nil || t.partition(p.Partition) == nil {
				answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
			} else {
				known = append(known, group.TopicPartition{Topic: topic.Topic, Partition: p.Partition})
			}
			at.Partitions = append(at.Partitions, answer)
		}
	}
	errs, err := b.groups.DeleteOffsets(c.ctx, req.Group, known, func(ctx context.Context, free []group.TopicPartition) error {
		return b.deleteLedgers(ctx, req.Group, free)
	})
	if err != nil {
		resp.ErrorCode, resp.Topics = b.codeOf(err), nil
		return resp
	}
	for i := range resp.Topics {
		for j := range resp.Topics[i].Partitions {
			if at := &resp.Topics[i].Partitions[j]; at.ErrorCode == 0 {
				at.ErrorCode, errs = code(errs[0]), errs[1:]
			}
		}
	}
	return resp
}

// deleteLedgers deletes the ledgers of partitions whose offsets are about to be deleted:
// one that outlived its offset would write it anew.
func (b *Broker) deleteLedgers(ctx context.Context, id string, partitions []group.TopicPartition) error {
	var ledgers []extension.TopicPartition
	for _, tp := range partitions {
		if t, refused := b.topics.find(tp.Topic, metadata.TopicID{}, false); refused == nil {
			ledgers = append(ledgers, extension.TopicPartition{Topic: t.id, Partition: tp.Partition})
		}
	}
	return b.ledgers.DeletePartitions(ctx, id, ledgers)
}
