package broker

import (
	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch (9), versions 1 to 10.
//
// v2 added all topics at once and an error of the whole, v5 leader epochs, v6 flexible
// versions, v7 the wish for stable offsets, v8 many groups at once, v9 members of KIP-848,
// v10 topic ids. Versions below 8 are answered as if they named one group.
func (b *Broker) offsetFetch(c *call, req *kmsg.OffsetFetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if c.version >= 8 {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, b.fetchOffsets(c, &req.Groups[i]))
		}
		return resp
	}
	asked := kmsg.OffsetFetchRequestGroup{Group: req.Group}
	if req.Topics != nil {
		asked.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, 0, len(req.Topics))
	}
	for _, t := range req.Topics {
		asked.Topics = append(asked.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: t.Topic, Partitions: t.Partitions})
	}
	answer := b.fetchOffsets(c, &asked)
	if c.version < 2 && answer.ErrorCode != 0 {
		answer = failedFetch(&asked, answer.ErrorCode)
	}
	resp.ErrorCode = answer.ErrorCode
	for _, t := range answer.Topics {
		at := kmsg.OffsetFetchResponseTopic{Topic: t.Topic}
		for _, p := range t.Partitions {
			at.Partitions = append(at.Partitions, kmsg.OffsetFetchResponseTopicPartition(p))
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

// failedFetch says an error for every partition, for clients that know no other place.
func failedFetch(asked *kmsg.OffsetFetchRequestGroup, code int16) kmsg.OffsetFetchResponseGroup {
	answer := kmsg.OffsetFetchResponseGroup{Group: asked.Group}
	for _, t := range asked.Topics {
		at := kmsg.OffsetFetchResponseGroupTopic{Topic: t.Topic, TopicID: t.TopicID}
		for _, p := range t.Partitions {
			at.Partitions = append(at.Partitions, offsetAnswer(p, nil, code))
		}
		answer.Topics = append(answer.Topics, at)
	}
	return answer
}

// fetchOffsets answers for one group.
func (b *Broker) fetchOffsets(c *call, asked *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	answer := kmsg.OffsetFetchResponseGroup{Group: asked.Group}
	var err error
	if asked.Topics == nil {
		err = b.fetchAllOffsets(c, &answer)
	} else {
		err = b.fetchSomeOffsets(c, asked, &answer)
	}
	if err != nil {
		answer.ErrorCode, answer.Topics = b.codeOf(err), nil
	}
	return answer
}

func (b *Broker) fetchSomeOffsets(c *call, asked *kmsg.OffsetFetchRequestGroup, answer *kmsg.OffsetFetchResponseGroup) error {
	var partitions []coordinator.PartitionOf
	var places []*kmsg.OffsetFetchResponseGroupTopicPartition
	answer.Topics = make([]kmsg.OffsetFetchResponseGroupTopic, len(asked.Topics))
	for i := range asked.Topics {
		topic, at := &asked.Topics[i], &answer.Topics[i]
		at.Topic, at.TopicID = topic.Topic, topic.TopicID
		t, refused := b.topics.find(topic.Topic, metadata.TopicID(topic.TopicID), c.version >= 10)
		at.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(topic.Partitions))
		for j, p := range topic.Partitions {
			if refused != nil && c.version >= 10 {
				at.Partitions[j] = offsetAnswer(p, nil, refused.Code)
				continue
			}
			of := coordinator.PartitionOf{TopicPartition: group.TopicPartition{Topic: topic.Topic, Partition: p}}
			if t != nil {
				of.Topic, of.TopicID = t.name, t.id
			}
			at.Partitions[j].Partition = p
			partitions, places = append(partitions, of), append(places, &at.Partitions[j])
		}
	}
	found, err := b.groups.Committed(c.ctx, asked.Group, partitions)
	if err != nil {
		return err
	}
	for i, at := range places {
		if f := &found[i]; f.OK && b.isCurrent(partitions[i].Topic, f.TopicID) {
			*at = offsetAnswer(at.Partition, &f.Committed, 0)
		} else {
			*at = offsetAnswer(at.Partition, nil, 0)
		}
	}
	return nil
}

// isCurrent tells whether an offset with that topic id belongs to the topic that has the
// name now. One without an id does, whether there is such a topic or not.
func (b *Broker) isCurrent(name string, id [16]byte) bool {
	if id == [16]byte{} {
		return true
	}
	t, _ := b.topics.find(name, metadata.TopicID{}, false)
	return t != nil && t.id == id
}

func (b *Broker) fetchAllOffsets(c *call, answer *kmsg.OffsetFetchResponseGroup) error {
	all, err := b.groups.AllCommitted(c.ctx, answer.Group)
	if err != nil {
		return err
	}
	answer.Topics = []kmsg.OffsetFetchResponseGroupTopic{}
	for i := range all {
		o := &all[i]
		if !b.isCurrent(o.Topic, o.TopicID) {
			continue
		}
		t, _ := b.topics.find(o.Topic, metadata.TopicID{}, false)
		if t == nil && c.version >= 10 {
			continue // it has no id to be named by
		}
		if n := len(answer.Topics); n == 0 || answer.Topics[n-1].Topic != o.Topic {
			at := kmsg.OffsetFetchResponseGroupTopic{Topic: o.Topic}
			if t != nil {
				at.TopicID = t.id
			}
			answer.Topics = append(answer.Topics, at)
		}
		at := &answer.Topics[len(answer.Topics)-1]
		at.Partitions = append(at.Partitions, offsetAnswer(o.Partition, &o.Committed, 0))
	}
	return nil
}

// offsetAnswer is the answer for one partition; nil: nothing is committed.
func offsetAnswer(partition int32, c *group.Committed, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	at := kmsg.OffsetFetchResponseGroupTopicPartition{
		Partition: partition, Offset: -1, LeaderEpoch: -1, Metadata: kmsg.StringPtr(""), ErrorCode: code,
	}
	if c != nil {
		at.Offset, at.LeaderEpoch, at.Metadata = c.Offset, c.LeaderEpoch, &c.Metadata
	}
	return at
}
