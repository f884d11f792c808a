package broker

import (
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DeleteRecords (21), versions 0 to 2: moves a partition's log start up. -1 stands for
// the high watermark.
//
// v2 added flexible versions.
func (b *Broker) deleteRecords(c *call, req *kmsg.DeleteRecordsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DeleteRecordsResponse)
	for _, topic := range req.Topics {
		t := kmsg.NewDeleteRecordsResponseTopic()
		t.Topic = topic.Topic
		for _, p := range topic.Partitions {
			at := kmsg.NewDeleteRecordsResponseTopicPartition()
			at.Partition, at.LowWatermark = p.Partition, -1
			start, err := b.deleteBefore(c, topic.Topic, p.Partition, p.Offset)
			if err != nil {
				at.ErrorCode, _ = b.errorCode(err)
			} else {
				at.LowWatermark = start
			}
			t.Partitions = append(t.Partitions, at)
		}
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func (b *Broker) deleteBefore(c *call, name string, partition int32, offset int64) (int64, error) {
	t, refused := b.topics.find(name, metadata.TopicID{}, false)
	if refused != nil {
		return 0, refused
	}
	_, log, err := t.open(partition)
	if err != nil {
		return 0, err
	}
	if settings := t.settings.Load().log; t.internal || settings.Compact && !settings.Delete {
		return 0, kerr.PolicyViolation // what compaction keeps is not to be cut off
	}
	if bounds := settled(c.ctx, log); offset == -1 {
		offset = bounds.HighWatermark
	}
	return log.DeleteRecords(offset)
}
