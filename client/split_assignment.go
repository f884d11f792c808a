package client

import (
	"cmp"
	"maps"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// splitAssignments are the assignments of members by their ids.
type splitAssignments map[string]*splitAssignment

// splitAssignment is what one member gets.
type splitAssignment struct {
	splits bool
	inner  kmsg.ConsumerMemberAssignment // the inner balancer's, for what is in it beside partitions
	topics map[string]*splitTopic
}

func (p splitAssignments) of(id string) *splitAssignment {
	if p[id] == nil {
		p[id] = &splitAssignment{inner: kmsg.NewConsumerMemberAssignment(), topics: make(map[string]*splitTopic)}
	}
	return p[id]
}

// addShare takes in a member's share of a topic that is split.
func (a *splitAssignment) addShare(topic string, share *splitShare) {
	if len(share.parts) == 0 {
		return
	}
	t := &splitTopic{name: topic, slice: share.slice}
	for _, p := range share.parts {
		t.ranges = append(t.ranges, AssignedSlots{
			TopicPartition: TopicPartition{topic, p.Partition},
			Slots:          protocol.SlotRange{Lo: uint16(p.Start), Hi: uint16(p.End - 1)},
		})
	}
	a.topics[topic] = t
}

// addWhole takes in what the inner balancer assigns.
func (a *splitAssignment) addWhole(assignment []byte) error {
	if err := a.inner.ReadFrom(assignment); err != nil {
		return err
	}
	for _, t := range a.inner.Topics {
		if len(t.Partitions) == 0 {
			continue
		}
		whole := &splitTopic{name: t.Topic, slice: splitSlice{bucket: slices.Min(t.Partitions)}}
		for _, p := range t.Partitions {
			whole.ranges = append(whole.ranges, AssignedSlots{TopicPartition{t.Topic, p}, allSlots})
		}
		a.topics[t.Topic] = whole
	}
	return nil
}

// handOver leaves of the assignments what can be read at once.
func (p splitAssignments) handOver(reading map[string][]AssignedSlots) {
	planned := make(map[string][]AssignedSlots, len(p))
	for id, a := range p {
		for _, t := range a.topics {
			planned[id] = append(planned[id], t.ranges...)
		}
	}
	handOver(planned, reading)
	for id, a := range p {
		for _, t := range a.topics {
			t.ranges = nil
		}
		for _, r := range planned[id] {
			a.topics[r.Topic].ranges = append(a.topics[r.Topic].ranges, r)
		}
	}
}

// IntoSyncAssignment implements [kgo.IntoSyncAssignment].
func (p splitAssignments) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment {
	all := make([]kmsg.SyncGroupRequestGroupAssignment, 0, len(p))
	for id, a := range p {
		sync := kmsg.NewSyncGroupRequestGroupAssignment()
		sync.MemberID, sync.MemberAssignment = id, a.appendTo(nil)
		all = append(all, sync)
	}
	slices.SortFunc(all, func(x, y kmsg.SyncGroupRequestGroupAssignment) int { return cmp.Compare(x.MemberID, y.MemberID) })
	return all
}

// appendTo appends the assignment as a member reads it: stock members their partitions, and
// those that can split the ranges in them as well.
func (a *splitAssignment) appendTo(dst []byte) []byte {
	out := kmsg.NewConsumerMemberAssignment()
	out.Version, out.UserData = a.inner.Version, a.inner.UserData
	var data splitData
	for _, name := range slices.Sorted(maps.Keys(a.topics)) {
		t := a.topics[name]
		sortAssigned(t.ranges)
		if len(t.ranges) > 0 {
			topic := kmsg.NewConsumerMemberAssignmentTopic()
			topic.Topic = name
			for _, r := range t.ranges {
				topic.Partitions = append(topic.Partitions, r.Partition)
			}
			topic.Partitions = slices.Compact(topic.Partitions)
			out.Topics = append(out.Topics, topic)
		}
		if t.slice.buckets > 0 || slices.ContainsFunc(t.ranges, func(r AssignedSlots) bool { return r.Slots != allSlots }) {
			data.topics = append(data.topics, *t)
		}
	}
	if a.splits {
		out.UserData = appendSplitData(out.UserData, &data)
	}
	return out.AppendTo(dst)
}
