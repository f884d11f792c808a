package client

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TopicPartition names a partition of a topic.
type TopicPartition struct {
	Topic     string
	Partition int32
}

// String is the usual short form, such as "orders[3]".
func (tp TopicPartition) String() string { return fmt.Sprintf("%s[%d]", tp.Topic, tp.Partition) }

// compareTopicPartitions orders by topic, then by partition.
func compareTopicPartitions(a, b TopicPartition) int {
	return cmp.Or(cmp.Compare(a.Topic, b.Topic), cmp.Compare(a.Partition, b.Partition))
}

// topicID is the id that a topic keeps from its creation to its deletion.
type topicID = [16]byte

// topicInfo is what a metadata answer says of one topic.
type topicInfo struct {
	name       string
	id         topicID
	partitions map[int32]partitionInfo
	err        error // the topic is unknown, or not ours to see
}

// partitionInfo is where a partition is led.
type partitionInfo struct {
	leader int32 // node id, -1: nobody leads it now
	epoch  int32 // leader epoch, -1: unknown
}

// numbers are the topic's partitions in order.
func (t topicInfo) numbers() []int32 {
	ps := make([]int32, 0, len(t.partitions))
	for p := range t.partitions {
		ps = append(ps, p)
	}
	slices.Sort(ps)
	return ps
}

// loadTopics asks for the metadata of the named topics, never creating one. Each topic of
// the result has an error of its own.
func loadTopics(ctx context.Context, cl *kgo.Client, names ...string) (map[string]topicInfo, error) {
	if len(names) == 0 {
		return nil, nil // an empty list would ask for the brokers only
	}
	req := kmsg.NewPtrMetadataRequest()
	for _, name := range names {
		t := kmsg.NewMetadataRequestTopic()
		t.Topic = kmsg.StringPtr(name)
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("load metadata of topics %q: %w", names, err)
	}
	topics := make(map[string]topicInfo, len(names))
	for i := range resp.Topics {
		t := parseTopic(&resp.Topics[i])
		topics[t.name] = t
	}
	for _, name := range names {
		if _, ok := topics[name]; !ok {
			return nil, fmt.Errorf("load metadata of topic %s: the broker did not answer for it", name)
		}
	}
	return topics, nil
}

// findTopics is loadTopics for callers that need every one of the topics.
func findTopics(ctx context.Context, cl *kgo.Client, names ...string) (map[string]topicInfo, error) {
	topics, err := loadTopics(ctx, cl, names...)
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := topics[name].err; err != nil {
			return nil, err
		}
	}
	return topics, nil
}

func parseTopic(t *kmsg.MetadataResponseTopic) topicInfo {
	info := topicInfo{id: t.TopicID, partitions: make(map[int32]partitionInfo, len(t.Partitions))}
	if t.Topic != nil {
		info.name = *t.Topic
	}
	if err := kerr.ErrorForCode(t.ErrorCode); err != nil {
		info.err = fmt.Errorf("load metadata of topic %s: %w%s", info.name, err, advice(err))
		return info
	}
	for i := range t.Partitions {
		p := &t.Partitions[i]
		pi := partitionInfo{leader: p.Leader, epoch: p.LeaderEpoch}
		if p.ErrorCode == kerr.LeaderNotAvailable.Code {
			pi.leader = -1
		}
		info.partitions[p.Partition] = pi
	}
	return info
}
