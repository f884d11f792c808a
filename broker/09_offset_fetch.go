package broker

import (
	"context"
	"maps"
	"slices"

	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetFetch (9), versions 1 to 10.
//
// v2 added all topics at once and an error of the whole, v5 leader epochs, v6 flexible
// versions, v7 the wish for stable offsets, v8 many groups at once, v9 members of KIP-848,
// v10 topic ids. Versions below 8 are answered as if they named one group.
//
// From version 8 on a group may carry GapsRequest, and each of its partitions is then
// answered with IndividualGaps (docs/protocol.md).
func (b *Broker) offsetFetch(c *call, req *kmsg.OffsetFetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
	if c.version >= 8 {
		for i := range req.Groups {
			resp.Groups = append(resp.Groups, b.fetchOffsets(c, req.RequireStable, &req.Groups[i]))
			if !c.take(fetchedOffsetBytes(&resp.Groups[i])) {
				return nil
			}
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
	answer := b.fetchOffsets(c, req.RequireStable, &asked)
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

// fetchedOffsetBytes is what the offsets of a group take in an answer, decoded and encoded.
func fetchedOffsetBytes(g *kmsg.OffsetFetchResponseGroup) (n int) {
	for i := range g.Topics {
		for j := range g.Topics[i].Partitions {
			p := &g.Topics[i].Partitions[j]
			n += 150
			if p.Metadata != nil {
				n += len(*p.Metadata)
			}
			field, _ := extensionField(&p.UnknownTags)
			n += 3 * len(field)
		}
	}
	return n
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
func (b *Broker) fetchOffsets(c *call, requireStable bool, asked *kmsg.OffsetFetchRequestGroup) kmsg.OffsetFetchResponseGroup {
	answer := kmsg.OffsetFetchResponseGroup{Group: asked.Group}
	f, err := b.newOffsetFetch(c, requireStable, asked)
	if err == nil {
		err = f.run(asked, &answer)
	}
	if err != nil {
		answer.ErrorCode, answer.Topics = b.codeOf(err), nil
	}
	return answer
}

// offsetFetching reads the committed offsets of one group: from the primary topic, and
// from the ledgers of partitions that have one.
type offsetFetching struct {
	b             *Broker
	ctx           context.Context
	version       int16
	group         string
	requireStable bool
	gaps          *ledgers.GapsQuery // nil: gaps are not asked for

	of     []coordinator.PartitionOf
	places []*kmsg.OffsetFetchResponseGroupTopicPartition
}

func (b *Broker) newOffsetFetch(c *call, requireStable bool, asked *kmsg.OffsetFetchRequestGroup) (*offsetFetching, error) {
	f := &offsetFetching{b: b, ctx: c.ctx, version: c.version, group: asked.Group, requireStable: requireStable}
	field, ok := extensionField(&asked.UnknownTags)
	if !ok {
		shared, err := b.groups.Share(c.ctx, asked.Group)
		if err == nil && shared != nil {
			err = group.ErrShareGroup // what it has done is more than one offset says
		}
		return f, err
	}
	if !b.individualCommitEnabled() {
		return nil, refusal(kerr.InvalidRequest, "individual.commit.enable is false for this broker")
	}
	gaps, err := protocol.ParseGapsRequest(field)
	if err != nil {
		return nil, err
	}
	f.gaps = &ledgers.GapsQuery{From: gaps.From, MaxRuns: gaps.MaxRuns, MaxPending: gaps.MaxPending}
	return f, nil
}

func (f *offsetFetching) run(asked *kmsg.OffsetFetchRequestGroup, answer *kmsg.OffsetFetchResponseGroup) error {
	topics := asked.Topics
	if topics == nil {
		var err error
		if topics, err = f.all(); err != nil {
			return err
		}
	}
	f.place(topics, answer)
	found, err := f.b.groups.Committed(f.ctx, f.group, f.of)
	if err != nil {
		return err
	}
	views, err := f.ledgers()
	if err != nil {
		return err
	}
	for i, at := range f.places {
		var c *group.Committed
		if f.b.isCurrent(f.of[i].Topic, found[i].TopicID) && found[i].OK {
			c = &found[i].Committed
		}
		// Somebody who wants stable offsets waits for the end of transactions, whether they
		// hold a plain offset of the group or individual ones.
		if f.requireStable && (found[i].Pending || views[i].Pending) {
			*at = offsetAnswer(at.Partition, nil, kerr.UnstableOffsetCommit.Code)
			continue
		}
		f.answer(at, c, &views[i])
	}
	return nil
}

// place makes room for the answer to each partition.
func (f *offsetFetching) place(topics []kmsg.OffsetFetchRequestGroupTopic, answer *kmsg.OffsetFetchResponseGroup) {
	answer.Topics = make([]kmsg.OffsetFetchResponseGroupTopic, len(topics))
	for i := range topics {
		topic, at := &topics[i], &answer.Topics[i]
		at.Topic, at.TopicID = topic.Topic, topic.TopicID
		t, refused := f.b.topics.find(topic.Topic, metadata.TopicID(topic.TopicID), f.version >= 10)
		at.Partitions = make([]kmsg.OffsetFetchResponseGroupTopicPartition, len(topic.Partitions))
		for j, p := range topic.Partitions {
			if refused != nil && f.version >= 10 {
				at.Partitions[j] = offsetAnswer(p, nil, refused.Code)
				continue
			}
			of := coordinator.PartitionOf{TopicPartition: group.TopicPartition{Topic: topic.Topic, Partition: p}}
			if t != nil {
				of.Topic, of.TopicID = t.name, t.id
			}
			at.Partitions[j].Partition = p
			f.of, f.places = append(f.of, of), append(f.places, &at.Partitions[j])
		}
	}
}

// all names every partition of which the group has committed anything.
func (f *offsetFetching) all() ([]kmsg.OffsetFetchRequestGroupTopic, error) {
	committed, err := f.b.groups.AllCommitted(f.ctx, f.group)
	if err != nil {
		return nil, err
	}
	partitions, err := f.b.ledgers.Partitions(f.ctx, f.group)
	if err != nil {
		return nil, err
	}
	byTopic := make(map[string]map[int32]bool)
	add := func(topic string, partition int32) {
		if byTopic[topic] == nil {
			byTopic[topic] = make(map[int32]bool)
		}
		byTopic[topic][partition] = true
	}
	for i := range committed {
		if o := &committed[i]; f.b.isCurrent(o.Topic, o.TopicID) {
			add(o.Topic, o.Partition)
		}
	}
	for _, tp := range partitions {
		if t, refused := f.b.topics.find("", metadata.TopicID(tp.Topic), true); refused == nil {
			add(t.name, tp.Partition)
		}
	}
	topics := []kmsg.OffsetFetchRequestGroupTopic{}
	for _, name := range slices.Sorted(maps.Keys(byTopic)) {
		at := kmsg.OffsetFetchRequestGroupTopic{Topic: name, Partitions: slices.Sorted(maps.Keys(byTopic[name]))}
		t, refused := f.b.topics.find(name, metadata.TopicID{}, false)
		if refused == nil {
			at.TopicID = t.id
		} else if f.version >= 10 {
			continue // it has no id to be named by
		}
		topics = append(topics, at)
	}
	return topics, nil
}

// ledgers gives what the ledgers say, one view for each partition asked for.
func (f *offsetFetching) ledgers() ([]ledgers.View, error) {
	partitions := make([]extension.TopicPartition, len(f.of))
	for i := range f.of {
		partitions[i] = extension.TopicPartition{Topic: f.of[i].TopicID, Partition: f.of[i].Partition}
	}
	return f.b.ledgers.Fetch(f.ctx, f.group, partitions, f.gaps)
}

// answer answers for one partition: by its ledger if there is one, else by what is
// committed in the primary topic, nil for nothing.
func (f *offsetFetching) answer(at *kmsg.OffsetFetchResponseGroupTopicPartition, c *group.Committed, v *ledgers.View) {
	gaps := protocol.IndividualGaps{MaxCommit: -1, CompleteTo: protocol.GapsComplete}
	if v.Founded {
		c = &group.Committed{Offset: v.Offset, LeaderEpoch: v.LeaderEpoch, Metadata: v.Metadata}
		gaps = protocol.IndividualGaps{MaxCommit: v.MaxCommit, Gaps: v.Gaps, CompleteTo: v.CompleteTo, Pending: v.InTransactions}
	} else if c != nil {
		gaps.MaxCommit = c.Offset
	}
	*at = offsetAnswer(at.Partition, c, 0)
	if f.gaps != nil {
		if f.gaps.MaxPending > 0 && gaps.Pending == nil {
			gaps.Pending = &protocol.Pending{CompleteTo: protocol.GapsComplete}
		}
		at.UnknownTags.Set(protocol.ExtensionTag, gaps.AppendTo(nil))
	}
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
