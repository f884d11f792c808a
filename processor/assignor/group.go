package assignor

import (
	"fmt"
	"maps"

	"github.com/lacunamq/lacuna/keyfilter"
)

// UnitsPerBucket is how many units an initial bucket has. So it can be split 16 times over.
const UnitsPerBucket = keyfilter.Slots

// Group is what a group remembers for its life.
type Group struct {
	// Initial is the number of buckets that it began with.
	Initial int32
	// Topics are its inputs, by name.
	Topics map[string]Topic
}

// Slots are some slots of a partition, both ends included.
type Slots struct {
	Partition int32
	Lo, Hi    uint16
}

// Unit is the unit that a slot of a partition belongs to; -1 of a topic that the group does
// not know. Unit u begins at the point floor(u*Fold/Initial) of the topic's line
// (keyfilter.Line).
func (g *Group) Unit(topic string, partition int32, slot uint16) int64 {
	p := int64(g.Topics[topic].Fold)
	if p <= 0 {
		return -1
	}
	point := int64(partition)%p*keyfilter.Slots + int64(slot)
	n := int64(g.Initial)
	return ((point+1)*n+p-1)/p - 1 // the last that begins at or before the point
}

// Slots are the slots of an area in each partition of a topic, in order.
func (g *Group) Slots(topic string, a Area) (all []Slots) {
	line, err := keyfilter.NewLine(g.Topics[topic].Fold)
	if err != nil {
		return nil // a topic that the group does not know yet
	}
	var parts []keyfilter.PartitionSlots
	for _, s := range a {
		at := func(unit int64) int64 { return unit * int64(line.Partitions()) / int64(g.Initial) }
		parts = line.AppendSlots(parts, keyfilter.Interval{Start: at(s.From), End: at(s.To)}, g.Topics[topic].Partitions)
	}
	for _, p := range parts {
		if p.Start < p.End {
			all = append(all, Slots{Partition: p.Partition, Lo: uint16(p.Start), Hi: uint16(p.End - 1)})
		}
	}
	return all
}

// Bucket is the area of a bucket when there are so many; none if it is not one of them.
func (g *Group) Bucket(bucket, buckets int32) Area {
	all, err := keyfilter.NewBuckets(g.Initial, buckets)
	if err != nil || bucket < 0 || bucket >= buckets {
		return nil
	}
	return g.bucket(all, bucket)
}

// bucket is the area of a bucket. The line of as many partitions as there are initial buckets
// has units for points.
func (g *Group) bucket(buckets keyfilter.Buckets, bucket int32) Area {
	line, err := keyfilter.NewLine(g.Initial)
	if err != nil {
		panic(fmt.Sprintf("a group with %d initial buckets", g.Initial)) // checked where it is made or read
	}
	i := buckets.Interval(bucket, line)
	return NewArea(Span{i.Start, i.End})
}

// all is the area of all units.
func (g *Group) all() Area { return NewArea(Span{0, int64(g.Initial) * UnitsPerBucket}) }

// MeasuresAs tells whether a unit is the same to both groups. It is unless they were founded
// each for itself, or one has seen a topic grow so that its keys moved. One that is not known
// has no units.
func (g *Group) MeasuresAs(other *Group) bool {
	if other == nil {
		return true
	}
	for name, t := range other.Topics {
		if mine, ok := g.Topics[name]; ok && mine.Fold != t.Fold {
			return false
		}
	}
	return g.Initial == other.Initial
}

// Equal tells whether two groups know the same.
func (g *Group) Equal(other *Group) bool {
	return g.Initial == other.Initial && maps.EqualFunc(g.Topics, other.Topics, Topic.equal)
}

// limit is how many buckets there may be: as many as the narrowest line takes.
func (g *Group) limit() int32 {
	most := int32(0)
	narrow := func(partitions int32) {
		if line, err := keyfilter.NewLine(partitions); err == nil {
			if n := keyfilter.MaxBuckets(g.Initial, line); most == 0 || n < most {
				most = n
			}
		}
	}
	narrow(g.Initial)
	for _, t := range g.Topics {
		narrow(t.Fold)
	}
	return max(most, g.Initial)
}
