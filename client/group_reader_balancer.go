package client

import (
	"fmt"
	"slices"
	"sync"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AssignedSlots is a range of key slots of one partition that a member of a group holds.
type AssignedSlots struct {
	TopicPartition
	Slots SlotRange
}

// allSlots is a whole partition.
var allSlots = SlotRange{Lo: 0, Hi: keyfilter.Slots - 1}

// String is such as "orders[3] slots 0-16383".
func (a AssignedSlots) String() string {
	return fmt.Sprintf("%v slots %d-%d", a.TopicPartition, a.Slots.Lo, a.Slots.Hi)
}

// splittingBalancer is the wrapped balancer of a member that can split. It keeps what the
// member is assigned to itself: kgo is told that it is nothing, so kgo neither fetches nor
// commits.
type splittingBalancer struct {
	splitBalancer

	mu struct {
		sync.Mutex
		held []AssignedSlots
		said splitData // of what is held, for the next join
	}
}

func newSplittingBalancer(inner kgo.GroupBalancer) *splittingBalancer {
	b := &splittingBalancer{splitBalancer: splitBalancer{inner}}
	b.mu.said.generation = -1
	return b
}

// JoinGroupMetadata is that of the inner balancer, with what the member held. To the inner
// balancer a partition was held by the member that had its first slot.
func (b *splittingBalancer) JoinGroupMetadata(topics []string, _ map[string][]int32, generation int32) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := make(map[string][]int32)
	for _, h := range b.mu.held {
		if h.Slots.Lo == 0 {
			held[h.Topic] = append(held[h.Topic], h.Partition)
		}
	}
	inner := b.inner.JoinGroupMetadata(topics, held, generation)
	meta := kmsg.NewConsumerMemberMetadata()
	if meta.ReadFrom(inner) != nil {
		return inner // not Kafka's consumer protocol: we are one that cannot split
	}
	meta.UserData = appendSplitData(meta.UserData, &b.mu.said)
	return meta.AppendTo(nil)
}

// ParseSyncAssignment keeps what the leader has assigned, and hides it from kgo.
func (b *splittingBalancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	held, topics, err := parseSplitAssignment(assignment)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.held, b.mu.said = held, splitData{generation: -1, topics: topics}
	return map[string][]int32{}, nil
}

// began is called when the generation of the last assignment has begun. It returns what is
// held in it, ordered by topic and partition.
func (b *splittingBalancer) began(generation int32) []AssignedSlots {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.said.generation = generation
	return b.mu.held
}

// parseSplitAssignment reads an assignment: what is held, ordered by topic and partition,
// and what to say of it at the next join. A topic of which the leader has not said
// otherwise is assigned by whole partitions.
func parseSplitAssignment(assignment []byte) (held []AssignedSlots, said []splitTopic, err error) {
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(assignment); err != nil {
		return nil, nil, fmt.Errorf("read an assignment: %w", err)
	}
	var data splitData
	if _, ours, ok := cutSplitData(a.UserData); ok {
		if data, err = parseSplitData(ours); err != nil {
			return nil, nil, fmt.Errorf("read an assignment: %w", err)
		}
	}
	for _, t := range a.Topics {
		slices.Sort(t.Partitions)
		at := slices.IndexFunc(data.topics, func(d splitTopic) bool { return d.name == t.Topic })
		if at >= 0 {
			d := &data.topics[at]
			for _, p := range t.Partitions {
				if !slices.ContainsFunc(d.ranges, func(r AssignedSlots) bool { return r.Partition == p }) {
					return nil, nil, fmt.Errorf("read an assignment: %w: no slots of %s[%d]", errSplitData, t.Topic, p)
				}
			}
			held = append(held, d.ranges...)
			said = append(said, splitTopic{name: t.Topic, slice: d.slice})
			continue
		}
		for _, p := range t.Partitions {
			held = append(held, AssignedSlots{TopicPartition{t.Topic, p}, allSlots})
		}
		if len(t.Partitions) > 0 {
			said = append(said, splitTopic{name: t.Topic, slice: splitSlice{bucket: t.Partitions[0]}})
		}
	}
	slices.SortFunc(held, func(x, y AssignedSlots) int { return compareTopicPartitions(x.TopicPartition, y.TopicPartition) })
	return held, said, nil
}
