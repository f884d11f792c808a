package transaction

import (
	"container/heap"
	"time"
)

// maxTicked is how many transactional ids one Tick deals with, so that a broker that comes
// back after a week does not log all of them at once.
const maxTicked = 1000

// due is the moment, in Unix milliseconds, at which Tick has something to do about a
// transactional id: an ongoing transaction times out, or an idle id expires.
func (s *State) due(v *value) (int64, bool) {
	switch {
	case v.status.ending():
		return 0, false
	case v.status == Ongoing:
		return v.startMs + int64(v.timeoutMs), true
	}
	return v.updateMs + s.config.IDExpiration.Milliseconds(), true
}

// NextDeadline is a moment by which Tick should be called, if there is any. It is past if
// Tick has more to do.
func (s *State) NextDeadline() (time.Time, bool) {
	if len(s.queue) == 0 {
		return time.Time{}, false
	}
	return time.UnixMilli(s.queue[0].dueMs), true
}

// Tick aborts transactions whose time is up, and forgets transactional ids that have not
// been used for long.
func (s *State) Tick(now time.Time, out *Output) {
	for range maxTicked {
		if len(s.queue) == 0 || s.queue[0].dueMs > now.UnixMilli() {
			return
		}
		if e := s.queue[0]; e.status == Ongoing {
			s.abort(now, e, out)
		} else {
			s.emit(e.id, nil, out)
		}
	}
}

// deadlineQueue orders transactional ids by when they are due, and by name.
type deadlineQueue []*entry

func (q *deadlineQueue) set(e *entry, atMs int64) {
	e.dueMs = atMs
	if e.place == 0 {
		heap.Push(q, e)
		return
	}
	heap.Fix(q, e.place-1)
}

func (q *deadlineQueue) remove(e *entry) {
	if e.place != 0 {
		heap.Remove(q, e.place-1)
	}
}

// order is called after all have changed.
func (q *deadlineQueue) order() { heap.Init(q) }

// Len implements heap.Interface, like the methods below.
func (q deadlineQueue) Len() int { return len(q) }

func (q deadlineQueue) Less(i, j int) bool {
	if q[i].dueMs != q[j].dueMs {
		return q[i].dueMs < q[j].dueMs
	}
	return q[i].id < q[j].id
}

func (q deadlineQueue) Swap(i, j int) {
	q[i], q[j] = q[j], q[i]
	q[i].place, q[j].place = i+1, j+1
}

// Push adds an entry at the end.
func (q *deadlineQueue) Push(x any) {
	e := x.(*entry)
	*q = append(*q, e)
	e.place = len(*q)
}

// Pop removes the last entry.
func (q *deadlineQueue) Pop() any {
	last := len(*q) - 1
	e := (*q)[last]
	(*q)[last] = nil
	*q = (*q)[:last]
	e.place = 0
	return e
}
