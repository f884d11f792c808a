package broker

import (
	"slices"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTopicPartitions (75), version 0: Metadata in pages (KIP-966). A cursor says
// where the next page begins.
func (b *Broker) describeTopicPartitions(_ *call, req *kmsg.DescribeTopicPartitionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeTopicPartitionsResponse)
	left := max(1, int(min(req.ResponsePartitionLimit, b.settings().DescribePartitionsMax)))
	for _, name := range b.describedNames(req) {
		first := int32(0)
		if c := req.Cursor; c != nil && c.Topic == name {
			first = max(c.Partition, 0)
		}
		if left == 0 {
			resp.NextCursor = cursorAt(name, first)
			return resp
		}
		at, next := b.topicPartitions(name, first, left)
		left -= len(at.Partitions)
		resp.Topics = append(resp.Topics, at)
		if next >= 0 {
			resp.NextCursor = cursorAt(name, next)
			return resp
		}
	}
	return resp
}

// describedNames are the topics asked for, all when none is named, in order and from the
// cursor on.
func (b *Broker) describedNames(req *kmsg.DescribeTopicPartitionsRequest) []string {
	var names []string
	for i := range req.Topics {
		names = append(names, req.Topics[i].Topic)
	}
	if len(req.Topics) == 0 {
		for _, t := range b.topics.all() {
			names = append(names, t.name)
		}
	}
	slices.Sort(names)
	names = slices.Compact(names)
	if req.Cursor != nil {
		from, _ := slices.BinarySearch(names, req.Cursor.Topic)
		names = names[from:]
	}
	return names
}

func cursorAt(topic string, partition int32) *kmsg.DescribeTopicPartitionsResponseNextCursor {
	c := kmsg.NewDescribeTopicPartitionsResponseNextCursor()
	c.Topic, c.Partition = topic, partition
	return &c
}

// topicPartitions describes at most limit partitions of a topic from first on, and tells
// with which to go on, -1 when that was all.
func (b *Broker) topicPartitions(name string, first int32, limit int) (at kmsg.DescribeTopicPartitionsResponseTopic, next int32) {
	at = kmsg.NewDescribeTopicPartitionsResponseTopic()
	at.Topic = kmsg.StringPtr(name)
	t, refused := b.topics.find(name, metadata.TopicID{}, false)
	if refused != nil {
		at.ErrorCode = refused.Code
		return at, -1
	}
	at.TopicID, at.IsInternal = t.id, t.internal
	replicas := []int32{b.nodeID}
	for _, p := range t.partitions()[min(int(first), len(t.partitions())):] {
		if len(at.Partitions) == limit {
			return at, p.index
		}
		mp := kmsg.NewDescribeTopicPartitionsResponseTopicPartition()
		mp.Partition, mp.LeaderID, mp.LeaderEpoch = p.index, b.nodeID, p.leaderEpoch()
		mp.Replicas, mp.ISR = replicas, replicas
		// Java's admin client does not expect the nulls that the protocol allows here.
		mp.EligibleLeaderReplicas, mp.LastKnownELR = []int32{}, []int32{}
		at.Partitions = append(at.Partitions, mp)
	}
	return at, -1
}
