// Package deadline orders by time what ends unless it is put off: sessions, the phases of a
// rebalance, transactions. It is plain values, for state machines that are given the time.
package deadline

import (
	"container/heap"
	"fmt"
	"time"
)

// Deadline is a moment at which something ends. Its zero value is not set. It is set in one
// Queue, and not copied while it is.
type Deadline[T any] struct {
	// Of is what ends. The queue does not look at it.
	Of T

	at     time.Time
	queued time.Time // the moment by which the queue is ordered, never after at
	seq    uint64    // order of those of one moment
	place  int       // index in the queue plus one; zero: not set
}

// IsSet tells whether the deadline is still to come, or to be taken.
func (d *Deadline[T]) IsSet() bool { return d.place != 0 }

// At is the moment of a deadline that is set.
func (d *Deadline[T]) At() time.Time { return d.at }

// Queue holds deadlines by time; those of one moment in the order in which they were first
// set. Its zero value is empty.
type Queue[T any] struct {
	order ordered[T]
	seq   uint64
}

// Len is how many deadlines are set.
func (q *Queue[T]) Len() int { return len(q.order) }

// Set moves d to a moment. Moving it to a later one, which each heartbeat does, costs
// nothing until it is the first of the queue.
func (q *Queue[T]) Set(d *Deadline[T], at time.Time) {
	d.at = at
	switch {
	case d.place == 0:
		q.seq++
		d.queued, d.seq = at, q.seq
		heap.Push(&q.order, d)
	case at.Before(d.queued):
		d.queued = at
		heap.Fix(&q.order, d.place-1)
	}
}

// Clear takes d out if it is set.
func (q *Queue[T]) Clear(d *Deadline[T]) {
	if d.place != 0 {
		heap.Remove(&q.order, d.place-1)
	}
}

// Due takes out the first deadline that has come, nil if none has.
func (q *Queue[T]) Due(now time.Time) *Deadline[T] {
	d := q.first()
	if d == nil || d.at.After(now) {
		return nil
	}
	heap.Pop(&q.order)
	return d
}

// Next is the moment of the first deadline, if there is any.
func (q *Queue[T]) Next() (time.Time, bool) {
	if d := q.first(); d != nil {
		return d.at, true
	}
	return time.Time{}, false
}

// first is the first deadline, once those before it in the queue are where they were moved.
func (q *Queue[T]) first() *Deadline[T] {
	for len(q.order) > 0 {
		d := q.order[0]
		if d.at.Equal(d.queued) {
			return d
		}
		d.queued = d.at
		heap.Fix(&q.order, 0)
	}
	return nil
}

// CheckInvariants tells what is wrong with the queue, for tests: nil is well.
func (q *Queue[T]) CheckInvariants() error {
	for i, d := range q.order {
		if d.place != i+1 || d.at.Before(d.queued) || i > 0 && q.order.Less(i, (i-1)/2) {
			return fmt.Errorf("the deadline of %v at %v, queued for %v, is at place %d of the queue and says %d", d.Of, d.at, d.queued, i+1, d.place)
		}
	}
	return nil
}

// ordered is the heap of a Queue.
type ordered[T any] []*Deadline[T]

// Len implements heap.Interface, like the methods below.
func (o ordered[T]) Len() int { return len(o) }

func (o ordered[T]) Less(i, j int) bool {
	if c := o[i].queued.Compare(o[j].queued); c != 0 {
		return c < 0
	}
	return o[i].seq < o[j].seq
}

func (o ordered[T]) Swap(i, j int) {
	o[i], o[j] = o[j], o[i]
	o[i].place, o[j].place = i+1, j+1
}

// Push adds a deadline at the end.
func (o *ordered[T]) Push(x any) {
	d := x.(*Deadline[T])
	*o = append(*o, d)
	d.place = len(*o)
}

// Pop removes the last deadline.
func (o *ordered[T]) Pop() any {
	last := len(*o) - 1
	d := (*o)[last]
	(*o)[last] = nil
	*o = (*o)[:last]
	d.place = 0
	return d
}
