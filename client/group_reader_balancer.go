package client

import (
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// splittingBalancer is the wrapped balancer of a member that can split. It keeps what the
// member is assigned to itself: kgo is told that it is nothing, so kgo neither fetches nor
// commits, and has nothing to take away in a cooperative rebalance either.
type splittingBalancer struct {
	splitBalancer

	mu struct {
		sync.Mutex
		// held is what was assigned last, and not lost since. If the balancer is
		// cooperative it is read until the next assignment.
		held []AssignedSlots
		said splitData // of what was assigned, for the next join
		// rejoin: the member is to join again when it has given up what it lost.
		rejoin bool
	}
}

func newSplittingBalancer(inner kgo.GroupBalancer) *splittingBalancer {
	b := &splittingBalancer{splitBalancer: splitBalancer{inner}}
	b.mu.said.generation = -1
	return b
}

// JoinGroupMetadata is that of the inner balancer, with what the member held. An eager inner
// balancer, which wants to know it to assign the same again, hears of a partition from the
// member that had its first slot. A cooperative one assigns to nobody else what somebody
// holds, and hears of it from all that hold a part.
func (b *splittingBalancer) JoinGroupMetadata(topics []string, _ map[string][]int32, generation int32) []byte {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := make(map[string][]int32)
	for _, h := range b.mu.held {
		if h.Slots.Lo == 0 || b.IsCooperative() && !slices.Contains(held[h.Topic], h.Partition) {
			held[h.Topic] = append(held[h.Topic], h.Partition)
		}
	}
	inner := b.inner.JoinGroupMetadata(topics, held, generation)
	meta := kmsg.NewConsumerMemberMetadata()
	if meta.ReadFrom(inner) != nil {
		return inner // not Kafka's consumer protocol: we are one that cannot split
	}
	said := splitData{generation: b.mu.said.generation}
	for _, t := range b.mu.said.topics {
		for _, h := range b.mu.held {
			if b.IsCooperative() && h.Topic == t.name {
				t.ranges = append(t.ranges, h)
			}
		}
		said.topics = append(said.topics, t)
	}
	meta.UserData = appendSplitData(meta.UserData, &said)
	return meta.AppendTo(nil)
}

// ParseSyncAssignment keeps what the leader has assigned, and hides it from kgo.
func (b *splittingBalancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	held, topics, splits, err := parseSplitAssignment(assignment)
	if err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.IsCooperative() {
		before := b.mu.held
		if !splits {
			held = cautious(held, before)
		}
		b.mu.rejoin = !allWithin(before, held)
	}
	b.mu.held, b.mu.said = held, splitData{generation: -1, topics: topics}
	return map[string][]int32{}, nil
}

// cautious is what a member may read of whole partitions, assigned by a cooperative leader
// that does not know of slots: if the member had a part of one, others may be reading the
// rest of it, and the leader takes it for the holder of the whole. So it gives its part up
// and joins again without it. Then the leader assigns the partition to nobody for as long as
// anyone claims it, be it a member that missed this generation.
func cautious(assigned, held []AssignedSlots) []AssignedSlots {
	return slices.DeleteFunc(assigned, func(r AssignedSlots) bool {
		part := within([]AssignedSlots{r}, held)
		return len(part) > 0 && !allWithin([]AssignedSlots{r}, part)
	})
}

// began is called when the generation of the last assignment has begun. It returns what is
// held in it, ordered by topic, partition and slots, and whether the member is to join again
// as soon as it has given up what it held before and holds no more.
func (b *splittingBalancer) began(generation int32) (held []AssignedSlots, rejoin bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.mu.said.generation = generation
	return b.mu.held, b.mu.rejoin
}

// lost is called when nothing of what is held is read any more, and the member did not give
// it up as members do.
func (b *splittingBalancer) lost() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.IsCooperative() {
		b.mu.held = nil
	}
}

// parseSplitAssignment reads an assignment: what is held, ordered by topic, partition and
// slots, what to say of it at the next join, and whether the leader splits. A topic of which
// the leader has not said otherwise is assigned by whole partitions.
func parseSplitAssignment(assignment []byte) (held []AssignedSlots, said []splitTopic, splits bool, err error) {
	var a kmsg.ConsumerMemberAssignment
	if err := a.ReadFrom(assignment); err != nil {
		return nil, nil, false, fmt.Errorf("read an assignment: %w", err)
	}
	var data splitData
	_, ours, splits := cutSplitData(a.UserData)
	if splits {
		if data, err = parseSplitData(ours); err != nil {
			return nil, nil, false, fmt.Errorf("read an assignment: %w", err)
		}
	}
	for _, t := range data.topics {
		held = append(held, t.ranges...)
		said = append(said, splitTopic{name: t.name, slice: t.slice})
	}
	for _, t := range a.Topics {
		slices.Sort(t.Partitions)
		at := slices.IndexFunc(data.topics, func(d splitTopic) bool { return d.name == t.Topic })
		if at < 0 {
			for _, p := range t.Partitions {
				held = append(held, AssignedSlots{TopicPartition{t.Topic, p}, allSlots})
			}
			if len(t.Partitions) > 0 {
				said = append(said, splitTopic{name: t.Topic, slice: splitSlice{bucket: t.Partitions[0]}})
			}
			continue
		}
		for _, p := range t.Partitions {
			if !slices.ContainsFunc(data.topics[at].ranges, func(r AssignedSlots) bool { return r.Partition == p }) {
				return nil, nil, false, fmt.Errorf("read an assignment: %w: no slots of %s[%d]", errSplitData, t.Topic, p)
			}
		}
	}
	sortAssigned(held)
	return held, said, splits, nil
}
