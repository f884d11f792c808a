package client

import (
	"cmp"
	"fmt"
	"sort"

	"github.com/lacunamq/lacuna/keyfilter"
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

// overlap is what two ranges have in common.
func (a AssignedSlots) overlap(b AssignedSlots) (common AssignedSlots, ok bool) {
	common = AssignedSlots{a.TopicPartition, SlotRange{Lo: max(a.Slots.Lo, b.Slots.Lo), Hi: min(a.Slots.Hi, b.Slots.Hi)}}
	return common, a.TopicPartition == b.TopicPartition && common.Slots.Lo <= common.Slots.Hi
}

// within are the parts of ranges that others cover, which do not overlap each other.
func within(ranges, others []AssignedSlots) (parts []AssignedSlots) {
	for _, r := range ranges {
		for _, o := range others {
			if common, ok := r.overlap(o); ok {
				parts = append(parts, common)
			}
		}
	}
	sortAssigned(parts)
	return parts
}

// allWithin tells whether every slot of ranges is in others, where neither overlap each other.
func allWithin(ranges, others []AssignedSlots) bool {
	return countSlots(within(ranges, others)) == countSlots(ranges)
}

func countSlots(ranges []AssignedSlots) (n int) {
	for _, r := range ranges {
		n += int(r.Slots.Hi) - int(r.Slots.Lo) + 1
	}
	return n
}

// sortAssigned orders by topic, partition and slots.
func sortAssigned(ranges []AssignedSlots) {
	sort.Slice(ranges, func(i, j int) bool {
		return cmp.Or(compareTopicPartitions(ranges[i].TopicPartition, ranges[j].TopicPartition), cmp.Compare(ranges[i].Slots.Lo, ranges[j].Slots.Lo)) < 0
	})
}
