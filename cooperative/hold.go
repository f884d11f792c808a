package cooperative

import "math"

// hold is records that share an end: what one call acquired, one release delayed, one
// request of a transaction made pending, or one change archives. Each record that is
// taken, that is, Acquired, Delayed, Pending or Archiving, is in exactly one.
type hold struct {
	deadline int64  // in ms, when all of it ends by itself; see due
	since    int64  // Acquired: in ms, when it was, or was renewed last
	page     int64  // what it has is in this page
	member   uint32 // whose it is, or none
	records  uint32
	heapAt   int32  // in holds.due, -1: it has no deadline
	next     uint32 // of its member's holds
	prev     uint32
	more     uint16 // and in so many after it
	state    State
	cause    Cause // of Archiving
}

// holds are the holds there are, and those with a deadline also as a heap, earliest first.
type holds struct {
	all    arena[hold]
	groups arena[group]
	due    []uint32
	count  [Settled]int // of the records that are in each state
}

func (h *holds) at(i uint32) *hold { return &h.all.items[i] }

func (h *holds) group(i uint32) *group { return &h.groups.items[i] }

// open makes a hold, which is to be filled at once: one without records is no hold.
func (h *holds) open(s State, member uint32, deadline int64, timed bool) uint32 {
	i := h.all.add(hold{deadline: deadline, member: member, state: s, next: none, prev: none, heapAt: -1})
	if timed {
		h.due = append(h.due, i)
		h.up(len(h.due) - 1)
	}
	return i
}

func (h *holds) close(i uint32) {
	h.undue(i)
	h.all.remove(i)
}

// undue takes a hold's deadline away.
func (h *holds) undue(i uint32) {
	if at := h.at(i).heapAt; at >= 0 {
		last := len(h.due) - 1
		h.due[at] = h.due[last]
		h.due = h.due[:last]
		if int(at) < last {
			h.at(h.due[at]).heapAt = at
			h.down(h.up(int(at)))
		}
		h.at(i).heapAt = -1
	}
}

func (h *holds) before(a, b uint32) bool { return h.at(a).deadline < h.at(b).deadline }

func (h *holds) up(i int) int {
	moving := h.due[i]
	for i > 0 {
		parent := (i - 1) / 2
		if !h.before(moving, h.due[parent]) {
			break
		}
		h.due[i] = h.due[parent]
		h.at(h.due[i]).heapAt = int32(i)
		i = parent
	}
	h.due[i] = moving
	h.at(moving).heapAt = int32(i)
	return i
}

func (h *holds) down(i int) {
	moving := h.due[i]
	for {
		kid := 2*i + 1
		if kid+1 < len(h.due) && h.before(h.due[kid+1], h.due[kid]) {
			kid++
		}
		if kid >= len(h.due) || !h.before(h.due[kid], moving) {
			break
		}
		h.due[i] = h.due[kid]
		h.at(h.due[i]).heapAt = int32(i)
		i = kid
	}
	h.due[i] = moving
	h.at(moving).heapAt = int32(i)
}

// apart is how many pages lie at most between two of a hold that have records of it, so that
// these are found without a list of them.
const apart = 64

// nearby is a hold like one, and mostly that itself, that may have records in a page.
func (d *Dispatcher) nearby(hi uint32, number int64) uint32 {
	h := d.holds.at(hi)
	if h.records == 0 {
		h.page = number
		return hi
	}
	first, last := h.page, h.page+int64(h.more)
	far := number < first-apart || number > last+apart
	if first, last = min(first, number), max(last, number); !far && last-first <= math.MaxUint16 {
		h.page, h.more = first, uint16(last-first)
		return hi
	}
	like := *h
	hi = d.holds.open(like.state, like.member, like.deadline, like.heapAt >= 0)
	h = d.holds.at(hi)
	h.since, h.cause, h.page = like.since, like.cause, number
	if like.member != none {
		d.own(hi)
	}
	return hi
}

// dropHold ends a hold without records.
func (d *Dispatcher) dropHold(hi uint32) {
	if h := d.holds.at(hi); h.member != none {
		d.disown(hi)
	}
	d.holds.close(hi)
}

// own puts a hold in its member's list.
func (d *Dispatcher) own(hi uint32) {
	h := d.holds.at(hi)
	m := d.members.at(h.member)
	if h.next = m.holds; h.next != none {
		d.holds.at(h.next).prev = hi
	}
	m.holds = hi
}

// disown takes a hold from its member.
func (d *Dispatcher) disown(hi uint32) {
	h := d.holds.at(hi)
	if h.prev == none {
		d.members.at(h.member).holds = h.next
	} else {
		d.holds.at(h.prev).next = h.next
	}
	if h.next != none {
		d.holds.at(h.next).prev = h.prev
	}
	h.member, h.next, h.prev = none, none, none
}
