package keyfilter

import (
	"fmt"
	"math/bits"
)

// Line is the interval [0, partitions*65536) on which linear hashing works: slot s of
// partition p of a topic is the point p*65536 + s. The number of partitions is the one
// remembered when the group was founded; the topic may have gained some since.
type Line struct {
	partitions int64
}

// NewLine is the line of a topic of so many partitions, at least 1.
func NewLine(partitions int32) (Line, error) {
	if partitions < 1 {
		return Line{}, fmt.Errorf("a line of %d partitions: at least 1", partitions)
	}
	return Line{partitions: int64(partitions)}, nil
}

// Partitions is the number of partitions that the line was made for.
func (l Line) Partitions() int32 { return int32(l.partitions) }

// Len is the length of the line in points.
func (l Line) Len() int64 { return l.partitions * Slots }

// Point is where slot of partition lies. A partition added after the line was made is
// folded onto its number modulo the line's partitions.
func (l Line) Point(partition int32, slot uint16) int64 {
	return int64(partition)%l.partitions*Slots + int64(slot)
}

// Interval is a half-open interval [Start, End) of a Line.
type Interval struct {
	Start, End int64
}

// Len is the number of points in the interval.
func (i Interval) Len() int64 { return i.End - i.Start }

// Contains tells whether the point lies in the interval.
func (i Interval) Contains(point int64) bool { return i.Start <= point && point < i.End }

// position is the q-th of n equal parts of the line. The bounds are floor(q*len/n), so
// the n of them cover the line exactly and differ by at most one point.
func (l Line) position(q, n int64) Interval {
	return Interval{Start: mulDiv(q, l.Len(), n), End: mulDiv(q+1, l.Len(), n)}
}

// positionAt is the q in [0, n) whose position holds point: the greatest with
// floor(q*len/n) <= point.
func (l Line) positionAt(point, n int64) int64 {
	// q*len < (point+1)*n, so q = ceil((point+1)*n / len) - 1.
	hi, lo := bits.Mul64(uint64(point+1), uint64(n))
	lo, borrow := bits.Sub64(lo, 1, 0)
	q, _ := bits.Div64(hi-borrow, lo, uint64(l.Len()))
	return int64(q)
}

// mulDiv is floor(a*b/c) for a <= c and any b >= 0; the product may exceed 64 bits.
func mulDiv(a, b, c int64) int64 {
	if a == c {
		return b
	}
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}

// PartitionSlots is what an interval of a line covers of one partition: the slots
// [Start, End), with End up to 65536.
type PartitionSlots struct {
	Partition  int32
	Start, End int32
}

// Whole tells whether all slots of the partition are covered.
func (p PartitionSlots) Whole() bool { return p.Start == 0 && p.End == Slots }

// AppendSlots appends what the interval covers of each partition of a topic that has
// count partitions now, in order of the partitions. Partitions beyond the line's are
// covered as the one they are folded onto.
func (l Line) AppendSlots(dst []PartitionSlots, i Interval, count int32) []PartitionSlots {
	if i.Start >= i.End {
		return dst
	}
	first, last := i.Start/Slots, (i.End-1)/Slots
	for base := int64(0); base < int64(count); base += l.partitions {
		for p := first; p <= last && base+p < int64(count); p++ {
			dst = append(dst, PartitionSlots{
				Partition: int32(base + p),
				Start:     int32(max(i.Start-p*Slots, 0)),
				End:       int32(min(i.End-p*Slots, Slots)),
			})
		}
	}
	return dst
}
