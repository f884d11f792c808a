package broker

import (
	"strings"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeProducers (61), version 0 (KIP-664): the producers that partitions remember, and
// their open transactions.
func (b *Broker) describeProducers(_ *call, req *kmsg.DescribeProducersRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeProducersResponse)
	for i := range req.Topics {
		at := kmsg.NewDescribeProducersResponseTopic()
		at.Topic = strings.Clone(req.Topics[i].Topic)
		t, refused := b.topics.find(at.Topic, metadata.TopicID{}, false)
		for _, index := range req.Topics[i].Partitions {
			part := kmsg.NewDescribeProducersResponseTopicPartition()
			part.Partition = index
			if refused != nil {
				part.ErrorCode = refused.Code
			} else {
				b.describeProducersOf(t, &part)
			}
			at.Partitions = append(at.Partitions, part)
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

func (b *Broker) describeProducersOf(t *topic, part *kmsg.DescribeProducersResponseTopicPartition) {
	_, log, err := t.open(part.Partition)
	if err != nil {
		part.ErrorCode, part.ErrorMessage = b.errorAnswer(err)
		return
	}
	for _, p := range log.Producers() {
		active := kmsg.NewDescribeProducersResponseTopicPartitionActiveProducer()
		active.ProducerID, active.ProducerEpoch = p.ID, int32(p.Epoch)
		active.LastSequence, active.LastTimestamp = p.LastSequence, p.LastTimestampMs
		active.CoordinatorEpoch, active.CurrentTxnStartOffset = p.CoordinatorEpoch, p.TxnFirstOffset
		part.ActiveProducers = append(part.ActiveProducers, active)
	}
}
