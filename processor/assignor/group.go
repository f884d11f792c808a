package assignor

import (
	"fmt"

	"github.com/lacunamq/lacuna/keyfilter"
)

// UnitsPerBucket is how many units an initial bucket has. So it can be split 16 times over.
const UnitsPerBucket = keyfilter.Slots

// Group is what a group remembers for its life.
type Group struct {
	// Initial is the number of buckets that it began with.
	Initial int32
	// Partitions are those that each topic had when the group first saw it. A partition
	// added later is folded onto its number modulo that.
	Partitions map[string]int32
}

// Slots are some slots of a partition, both ends included.
type Slots struct {
	Partition int32
	Lo, Hi    uint16
}

// Unit is the unit that a slot of a partition belongs to; -1 of a topic that the group does
// not know. Unit u begins at the point floor(u*P/Initial) of the topic's line (keyfilter.Line).
func (g *Group) Unit(topic string, partition int32, slot uint16) int64 {
	p := int64(g.Partitions[topic])
	if p <= 0 {
		return -1
	}
	point := int64(partition)%p*keyfilter.Slots + int64(slot)
	n := int64(g.Initial)
	return ((point+1)*n+p-1)/p - 1 // the last that begins at or before the point
}

// Slots are the slots of an area in each partition of a topic, which has so many partitions
// now, in order.
func (g *Group) Slots(topic string, a Area, partitionsNow int32) (all []Slots) {
	line, err := keyfilter.NewLine(g.Partitions[topic])
	if err != nil {
		return nil // a topic that the group does not know yet
	}
	var parts []keyfilter.PartitionSlots
	for _, s := range a {
		at := func(unit int64) int64 { return unit * int64(line.Partitions()) / int64(g.Initial) }
		parts = line.AppendSlots(parts, keyfilter.Interval{Start: at(s.From), End: at(s.To)}, partitionsNow)
	}
	for _, p := range parts {
		if p.Start < p.End {
			all = append(all, Slots{Partition: p.Partition, Lo: uint16(p.Start), Hi: uint16(p.End - 1)})
		}
	}
	return all
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

// measuresAs tells whether a unit is the same to both groups. It is unless they were founded
// each for itself. One that is not known has no units.
func (g *Group) measuresAs(other *Group) bool {
	if other == nil {
		return true
	}
	for topic, partitions := range other.Partitions {
		if mine, ok := g.Partitions[topic]; ok && mine != partitions {
			return false
		}
	}
	return g.Initial == other.Initial
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
	for _, partitions := range g.Partitions {
		narrow(partitions)
	}
	return max(most, g.Initial)
}
