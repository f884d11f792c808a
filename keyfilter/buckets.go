package keyfilter

import (
	"fmt"
	"math/bits"
)

// Buckets are the slices that linear hashing makes of a line, grown one at a time from
// an initial number. A topic's line does not belong to them: all topics of a group
// have the same buckets, each on its own line.
//
// At level L the line is divided into initial*2^L positions of equal length. Bucket
// b < initial starts at position b of level 0. Bucket initial*2^L + j, when added,
// splits bucket j of level L: j, at position q of level L, keeps position 2q of level
// L+1 and the new one takes 2q+1. So splits go by bucket number, and adding a bucket
// changes one other and no more.
//
// The zero value is not usable.
type Buckets struct {
	initial, count int64
}

// NewBuckets are count buckets grown from initial ones, which a group remembers for its
// life. The count is never below initial.
func NewBuckets(initial, count int32) (Buckets, error) {
	if initial < 1 || count < initial {
		return Buckets{}, fmt.Errorf("%d buckets grown from %d: at least 1, and never fewer than at first", count, initial)
	}
	return Buckets{initial: int64(initial), count: int64(count)}, nil
}

// MaxBuckets is how many buckets grown from initial ones the line can take, since none
// may be narrower than a slot; 0 if not even the initial ones fit. The first bucket
// that would get nothing is always 0, when a level is begun whose positions are
// shorter than a slot.
func MaxBuckets(initial int32, l Line) int32 {
	n := int64(initial)
	if n > l.Len() {
		return 0
	}
	for 2*n <= l.Len() && 2*n <= 1<<31-1 {
		n *= 2
	}
	return int32(n)
}

// Initial is the number the buckets were grown from.
func (b Buckets) Initial() int32 { return int32(b.initial) }

// Count is the number of buckets; they are numbered from 0.
func (b Buckets) Count() int32 { return int32(b.count) }

// Add is one bucket more. It splits the bucket Parent(Count()).
func (b Buckets) Add() Buckets { return Buckets{initial: b.initial, count: b.count + 1} }

// Remove is one bucket fewer: the last returns to its parent. The initial buckets stay.
func (b Buckets) Remove() Buckets {
	return Buckets{initial: b.initial, count: max(b.count-1, b.initial)}
}

// Parent is the bucket that was split when bucket was added, and -1 for an initial one.
func (b Buckets) Parent(bucket int32) int32 {
	if int64(bucket) < b.initial {
		return -1
	}
	return int32(int64(bucket) - b.initial<<b.birth(int64(bucket)))
}

// Interval is what bucket covers of the line. The line must be able to take the
// buckets (MaxBuckets).
func (b Buckets) Interval(bucket int32, l Line) Interval {
	level := b.level(int64(bucket))
	return l.position(b.positionOf(int64(bucket), level), b.initial<<level)
}

// At is the bucket that holds the point of the line.
func (b Buckets) At(point int64, l Line) int32 {
	level := b.birth(b.count)
	bucket := b.bucketOf(l.positionAt(point, b.initial<<level), level)
	if b.level(bucket) > level {
		level++
		bucket = b.bucketOf(l.positionAt(point, b.initial<<level), level)
	}
	return int32(bucket)
}

// birth is the level whose splits make bucket n: the L with initial*2^L <= n <
// initial*2^(L+1), or 0 for an initial bucket.
func (b Buckets) birth(n int64) int {
	if n < b.initial {
		return 0
	}
	return bits.Len64(uint64(n/b.initial)) - 1
}

// level is the level at which bucket stands now. The buckets that the current level has
// split, and those it made, are one further than the rest.
func (b Buckets) level(bucket int64) int {
	level := b.birth(b.count)
	unsplit := b.initial << level
	if bucket >= unsplit || bucket < b.count-unsplit {
		return level + 1
	}
	return level
}

// positionOf is where bucket, which exists at level, stands there. A bucket that is
// split keeps the left half, so since its birth its position was only doubled.
func (b Buckets) positionOf(bucket int64, level int) int64 {
	if bucket < b.initial {
		return bucket << level
	}
	birth := b.birth(bucket)
	parent := bucket - b.initial<<birth
	return (2*b.positionOf(parent, birth) + 1) << (level - birth - 1)
}

// bucketOf is the bucket that stands at position q of level when all of that level are
// made: the inverse of positionOf.
func (b Buckets) bucketOf(q int64, level int) int64 {
	switch {
	case level == 0:
		return q
	case q%2 == 0:
		return b.bucketOf(q/2, level-1)
	default:
		return b.initial<<(level-1) + b.bucketOf(q/2, level-1)
	}
}
