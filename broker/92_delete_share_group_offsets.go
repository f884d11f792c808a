package broker

import (
	"context"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteShareGroupOffsets (92), version 0 (KIP-932): an operator makes a share group without
// members forget topics, as if it had never worked on them.
func (b *Broker) deleteShareGroupOffsets(c *call, req *kmsg.DeleteShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteShareGroupOffsetsResponse)
	if err := b.groups.CheckShareEmpty(c.ctx, req.GroupID); err != nil {
		resp.ErrorCode, resp.ErrorMessage = b.coordinatorAnswer(err)
		return resp
	}
	for i := range req.Topics {
		at := kmsg.NewDeleteShareGroupOffsetsResponseTopic()
		at.Topic = req.Topics[i].Topic
		t, refused := b.topics.find(at.Topic, metadata.TopicID{}, false)
		var err error = kerr.UnknownTopicOrPartition
		if refused == nil {
			err = b.deleteShareOffsets(c.ctx, req.GroupID, t)
		}
		if err != nil {
			at.ErrorCode, at.ErrorMessage = b.coordinatorAnswer(err)
		} else {
			at.TopicID = t.id
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

// deleteShareOffsets deletes the ledgers of a topic first, so that a crash between leaves
// none without an offset to fall back to.
func (b *Broker) deleteShareOffsets(ctx context.Context, group string, t *topic) error {
	var partitions []extension.TopicPartition
	begun, err := b.ledgers.Partitions(ctx, group)
	if err != nil {
		return err
	}
	for _, tp := range begun {
		if tp.Topic == [16]byte(t.id) {
			partitions = append(partitions, tp)
		}
	}
	if len(partitions) == 0 {
		return refusal(kerr.UnknownTopicOrPartition, "There is no offset information to delete.")
	}
	if err := b.ledgers.DeletePartitions(ctx, group, partitions); err != nil {
		return err
	}
	return b.groups.DeleteShareOffsets(ctx, group, t.name)
}
