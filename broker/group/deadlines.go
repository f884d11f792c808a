package group

import (
	"container/heap"
	"time"
)

// deadlineKind says what a deadline ends.
type deadlineKind int8

const (
	sessionEnds      deadlineKind = iota // of a member
	pendingEnds                          // of a member id that was given out and not used yet
	joinEnds                             // the phase in which members rejoin
	syncEnds                             // the phase in which members fetch their assignment
	shareSessionEnds                     // of a member of a share group
)

// deadline is a moment at which something in a group ends unless it is moved. Moving it
// to a later time, which each heartbeat does, costs nothing: the queue notices when the
// earlier moment comes.
type deadline struct {
	kind   deadlineKind
	group  *classic // nil in a share group
	share  *entry   // nil in a classic group
	member string

	at     time.Time // zero: not set
	queued time.Time // the moment by which the queue is ordered, never after at
	seq    uint64    // order of those of one moment
	place  int       // index in the queue plus one; zero: not queued
}

func (d *deadline) isSet() bool { return !d.at.IsZero() }

// deadlines are those of all groups of a State.
type deadlines struct {
	queue deadlineQueue
	seq   uint64
}

// set moves d to the given moment.
func (ds *deadlines) set(d *deadline, at time.Time) {
	d.at = at
	switch {
	case d.place == 0:
		ds.seq++
		d.queued, d.seq = at, ds.seq
		heap.Push(&ds.queue, d)
	case at.Before(d.queued):
		d.queued = at
		heap.Fix(&ds.queue, d.place-1)
	}
}

func (ds *deadlines) clear(d *deadline) {
	d.at = time.Time{}
	if d.place != 0 {
		heap.Remove(&ds.queue, d.place-1)
	}
}

// due takes one deadline that has come, or nil.
func (ds *deadlines) due(now time.Time) *deadline {
	for len(ds.queue) > 0 {
		d := ds.queue[0]
		if d.queued.After(now) {
			return nil
		}
		if d.at.After(d.queued) { // moved meanwhile
			d.queued = d.at
			heap.Fix(&ds.queue, 0)
			continue
		}
		heap.Pop(&ds.queue)
		d.at = time.Time{}
		return d
	}
	return nil
}

// next is a moment by which due should be asked. It may be earlier than needed.
func (ds *deadlines) next() (time.Time, bool) {
	if len(ds.queue) == 0 {
		return time.Time{}, false
	}
	return ds.queue[0].queued, true
}

type deadlineQueue []*deadline

func (q deadlineQueue) Len() int { return len(q) }

func (q deadlineQueue) Less(i, j int) bool {
	if c := q[i].queued.Compare(q[j].queued); c != 0 {
		return c < 0
	}
	return q[i].seq < q[j].seq
}

func (q deadlineQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i+1, j+1
}

func (q *deadlineQueue) Push(x any) {
	d := x.(*deadline)
	*q = append(*q, d)
	d.place = len(*q)
}

func (q *deadlineQueue) Pop() any {
	last := len(*q) - 1
	d := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	d.place = 0
	return d
}
