package broker

import (
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetForLeaderEpoch (23), versions 2 to 4: where a leader epoch ends, so that a
// consumer finds out whether records that it read are gone (KIP-320).
//
// v3 added the replica id, v4 flexible versions.
func (b *Broker) offsetForLeaderEpoch(_ *call, req *kmsg.OffsetForLeaderEpochRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetForLeaderEpochResponse)
	for _, topic := range req.Topics {
		t := kmsg.NewOffsetForLeaderEpochResponseTopic()
		t.Topic = topic.Topic
		for i := range topic.Partitions {
			p := kmsg.NewOffsetForLeaderEpochResponseTopicPartition()
			p.Partition, p.LeaderEpoch, p.EndOffset = topic.Partitions[i].Partition, -1, -1
			if err := b.endOfEpoch(topic.Topic, &topic.Partitions[i], &p); err != nil {
				p.ErrorCode, _ = b.errorCode(err)
			}
			t.Partitions = append(t.Partitions, p)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (b *Broker) endOfEpoch(name string, req *kmsg.OffsetForLeaderEpochRequestTopicPartition, p *kmsg.OffsetForLeaderEpochResponseTopicPartition) error {
	t, refused := b.topics.find(name, metadata.TopicID{}, false)
	if refused != nil {
		return refused
	}
	_, log, err := t.open(req.Partition)
	if err != nil {
		return err
	}
	bounds := log.Bounds()
	if err := checkLeaderEpoch(req.CurrentLeaderEpoch, bounds.LeaderEpoch); err != nil {
		return err
	}
	epoch, end := log.EndOfEpoch(req.LeaderEpoch)
	if epoch >= 0 {
		// What is not yet durable is not there for a consumer.
		p.LeaderEpoch, p.EndOffset = epoch, min(end, bounds.HighWatermark)
	}
	return nil
}
