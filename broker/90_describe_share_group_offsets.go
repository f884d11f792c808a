package broker

import (
	"context"
	"slices"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeShareGroupOffsets (90), versions 0 to 1 (KIP-932): how far share groups have come,
// as their ledgers say. The start offset is the stable offset.
//
// v1 added the lag (KIP-1226): how many offsets from the stable one on are not done. A group
// that does not exist, or is of another kind, has begun nothing.
func (b *Broker) describeShareGroupOffsets(c *call, req *kmsg.DescribeShareGroupOffsetsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeShareGroupOffsetsResponse)
	for i := range req.Groups {
		asked := &req.Groups[i]
		at := kmsg.NewDescribeShareGroupOffsetsResponseGroup()
		at.GroupID = asked.GroupID
		topics, err := b.shareOffsets(c.ctx, asked)
		if err != nil {
			at.ErrorCode, at.ErrorMessage = b.coordinatorAnswer(err)
		}
		at.Topics = topics
		resp.Groups = append(resp.Groups, at)
	}
	return resp
}

// shareOffsets describes the topics of a group that are asked for, all if there is no list.
func (b *Broker) shareOffsets(ctx context.Context, asked *kmsg.DescribeShareGroupOffsetsRequestGroup) ([]kmsg.DescribeShareGroupOffsetsResponseGroupTopic, error) {
	group, err := b.groups.Share(ctx, asked.GroupID)
	if err != nil {
		return nil, err
	}
	wanted := asked.Topics
	if wanted == nil && group != nil {
		if wanted, err = b.begunTopics(ctx, asked.GroupID); err != nil {
			return nil, err
		}
	}
	topics := make([]kmsg.DescribeShareGroupOffsetsResponseGroupTopic, 0, len(wanted))
	for i := range wanted {
		t, err := b.shareTopicOffsets(ctx, group, &wanted[i])
		if err != nil {
			return nil, err
		}
		topics = append(topics, t)
	}
	return topics, nil
}

// begunTopics are the topics of whose partitions a group has ledgers, with these.
func (b *Broker) begunTopics(ctx context.Context, group string) ([]kmsg.DescribeShareGroupOffsetsRequestGroupTopic, error) {
	begun, err := b.ledgers.Partitions(ctx, group)
	if err != nil {
		return nil, err
	}
	var topics []kmsg.DescribeShareGroupOffsetsRequestGroupTopic
	for _, tp := range begun {
		t, refused := b.topics.find("", metadata.TopicID(tp.Topic), true)
		if refused != nil {
			continue
		}
		at := slices.IndexFunc(topics, func(r kmsg.DescribeShareGroupOffsetsRequestGroupTopic) bool { return r.Topic == t.name })
		if at < 0 {
			at = len(topics)
			topics = append(topics, kmsg.DescribeShareGroupOffsetsRequestGroupTopic{Topic: t.name})
		}
		topics[at].Partitions = append(topics[at].Partitions, tp.Partition)
	}
	return topics, nil
}

// shareTopicOffsets describes partitions of one topic. One that the group has not begun, or
// that is not there, has no start offset; nor has any of a group that is nil.
func (b *Broker) shareTopicOffsets(ctx context.Context, group *share.View, asked *kmsg.DescribeShareGroupOffsetsRequestGroupTopic) (kmsg.DescribeShareGroupOffsetsResponseGroupTopic, error) {
	at := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopic()
	at.Topic = asked.Topic
	var views []ledgers.View
	t, refused := b.topics.find(asked.Topic, metadata.TopicID{}, false)
	if refused == nil {
		at.TopicID = t.id
	}
	if refused == nil && group != nil {
		partitions := make([]extension.TopicPartition, len(asked.Partitions))
		for i, p := range asked.Partitions {
			partitions[i] = extension.TopicPartition{Topic: t.id, Partition: p}
		}
		var err error
		if views, err = b.ledgers.Fetch(ctx, group.Group(), partitions, nil); err != nil {
			return at, err
		}
	}
	for i, p := range asked.Partitions {
		answer := kmsg.NewDescribeShareGroupOffsetsResponseGroupTopicPartition()
		answer.Partition, answer.StartOffset = p, -1
		if views != nil && views[i].Founded {
			answer.StartOffset, answer.LeaderEpoch = views[i].Offset, max(views[i].LeaderEpoch, 0)
			if _, log, err := t.open(p); err == nil {
				answer.Lag = max(log.Bounds().HighWatermark-views[i].MaxCommit, 0) + views[i].Open
			}
		}
		at.Partitions = append(at.Partitions, answer)
	}
	return at, nil
}
