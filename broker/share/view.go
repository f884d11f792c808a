package share

import (
	"bytes"
	"slices"
	"sort"

	"github.com/lacunamq/lacuna/keyfilter"
)

// View says who is a member of a group and what each member may fetch, as of one
// assignment. It never changes, and may be read by anybody.
type View struct {
	group   string
	epoch   int32
	mode    Mode
	ids     []string // sorted
	members map[string][]string
	topics  map[[16]byte]*topicView
}

// topicView is a topic that the group works on.
type topicView struct {
	name       string
	partitions int32
	slices     [][]Slice // by partition; nil in modes without ranges
	buckets    *Buckets  // nil in modes without ranges
}

// Buckets are the key ranges of a topic's line, with the member that each is dealt to, ""
// while there is none. They never change.
type Buckets struct {
	Line    keyfilter.Line
	buckets keyfilter.Buckets
	holders []string
}

// Buckets are the buckets there are.
func (b *Buckets) Buckets() keyfilter.Buckets { return b.buckets }

// Holder is the member that a bucket is dealt to.
func (b *Buckets) Holder(bucket int32) string { return b.holders[bucket] }

// Equal tells whether the same members are dealt the same buckets.
func (b *Buckets) Equal(other *Buckets) bool {
	return b == other || b != nil && other != nil && b.Line == other.Line && b.buckets == other.buckets && slices.Equal(b.holders, other.holders)
}

// Slice is a range of key slots of a partition, [Start, End) with End up to 65536, and the
// member that it is dealt to.
type Slice struct {
	Start, End int32
	Member     string
}

// Group is the group's id.
func (v *View) Group() string { return v.group }

// Epoch is the assignment epoch. It rises with every assignment, so that of two views of a
// group the one with the higher epoch is the later.
func (v *View) Epoch() int32 { return v.epoch }

// Mode is how the group's records are dealt.
func (v *View) Mode() Mode { return v.mode }

// Members lists the members, in order. The slice is shared.
func (v *View) Members() []string { return v.ids }

// Member tells whether somebody is a member. The epoch of a member does not count here: an
// older one is fine as long as it is a member.
func (v *View) Member(id string) bool {
	_, ok := v.members[id]
	return ok
}

// MayFetch tells whether a member is dealt records of a partition. In the mode key-range
// those are the records of its slices, which may be none.
func (v *View) MayFetch(member string, topic [16]byte, partition int32) bool {
	t := v.topics[topic]
	if t == nil || partition < 0 || partition >= t.partitions {
		return false
	}
	_, subscribes := slices.BinarySearch(v.members[member], t.name)
	return subscribes
}

// Slices tells who is dealt which key slots of a partition: sorted, without a hole, so that
// they cover all slots. It is nil in modes without ranges, and for a partition that nobody
// may fetch. The slice is shared.
func (v *View) Slices(topic [16]byte, partition int32) []Slice {
	t := v.topics[topic]
	if t == nil || partition < 0 || int(partition) >= len(t.slices) {
		return nil
	}
	return t.slices[partition]
}

// Buckets gives the buckets of a topic; nil in modes without ranges, and for a topic that
// nobody may fetch.
func (v *View) Buckets(topic [16]byte) *Buckets {
	if t := v.topics[topic]; t != nil {
		return t.buckets
	}
	return nil
}

// Holder is the member that a key slot of a partition is dealt to, "" if it is nobody in
// particular.
func (v *View) Holder(topic [16]byte, partition int32, slot uint16) string {
	list := v.Slices(topic, partition)
	at, found := slices.BinarySearchFunc(list, int32(slot), func(s Slice, slot int32) int {
		switch {
		case s.End <= slot:
			return -1
		case s.Start > slot:
			return 1
		}
		return 0
	})
	if !found {
		return ""
	}
	return list[at].Member
}

// WorkedOn is a topic that somebody may fetch, with all its partitions [0, Partitions).
type WorkedOn struct {
	Topic      [16]byte
	Name       string
	Partitions int32
}

// Topics lists what the group works on, by topic id.
func (v *View) Topics() []WorkedOn {
	list := make([]WorkedOn, 0, len(v.topics))
	for id, t := range v.topics {
		list = append(list, WorkedOn{id, t.name, t.partitions})
	}
	sort.Slice(list, func(i, j int) bool { return bytes.Compare(list[i].Topic[:], list[j].Topic[:]) < 0 })
	return list
}
