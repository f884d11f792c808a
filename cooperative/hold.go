package cooperative

import "math/bits"

// hold is records that share an end: what one call acquired, one release delayed, one
// request of a transaction made pending, or one change archives. Each record that is
// taken, that is, Acquired, Delayed, Pending or Archiving, is in exactly one.
type hold struct {
	deadline int64  // in ms, when all of it ends by itself; see due
	since    int64  // Acquired: in ms, when it was, or was renewed last
	member   uint32 // whose it is, or none
	records  uint32
	first    uint32 // of its groups
	heapAt   int32  // in holds.due, -1: it has no deadline
	next     uint32 // of its member's holds
	prev     uint32
	state    State
	cause    Cause // of Archiving
}

// group is the records of a hold in one page.
type group struct {
	mask       uint64
	hold, page uint32
	nextInPage uint32
	next, prev uint32 // in the hold
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
	i := h.all.add(hold{deadline: deadline, member: member, state: s, first: none, next: none, prev: none, heapAt: -1})
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

// take puts the offsets of mask in page pi, none of which is taken, in the hold.
func (d *Dispatcher) take(hi, pi uint32, mask uint64) {
	p, h := d.pages.at(pi), d.holds.at(hi)
	n := bits.OnesCount64(mask)
	p.taken |= mask
	h.records += uint32(n)
	d.holds.count[h.state] += n
	if p.first != none && d.holds.group(p.first).hold == hi {
		d.holds.group(p.first).mask |= mask
		return
	}
	gi := d.holds.groups.add(group{mask: mask, hold: hi, page: pi, nextInPage: p.first, next: h.first, prev: none})
	if h.first != none {
		d.holds.group(h.first).prev = gi
	}
	p.first, h.first = gi, gi
}

// groupOf is the group that offset, which is taken, is in.
func (d *Dispatcher) groupOf(pi uint32, bit uint64) uint32 {
	gi := d.pages.at(pi).first
	for d.holds.group(gi).mask&bit == 0 {
		gi = d.holds.group(gi).nextInPage
	}
	return gi
}

// untake takes the offsets of mask, which are in the group, out of its hold; to is what
// becomes of them. The page may be left to be tidied.
func (d *Dispatcher) untake(gi uint32, mask uint64, to State) {
	g := d.holds.group(gi)
	hi, pi := g.hold, g.page
	h, p := d.holds.at(hi), d.pages.at(pi)
	if !h.state.mayBecome(to) {
		panic("cooperative: a record that is " + h.state.String() + " would become " + to.String())
	}
	d.forgetForeign(h, p, mask)
	n := bits.OnesCount64(mask)
	g.mask &^= mask
	p.taken &^= mask
	h.records -= uint32(n)
	d.holds.count[h.state] -= n
	if g.mask == 0 {
		d.dropGroup(gi, g, h, p)
	}
	if h.records == 0 {
		d.dropHold(hi)
	}
}

func (d *Dispatcher) dropGroup(gi uint32, g *group, h *hold, p *page) {
	if p.first == gi {
		p.first = g.nextInPage
	} else {
		before := p.first
		for d.holds.group(before).nextInPage != gi {
			before = d.holds.group(before).nextInPage
		}
		d.holds.group(before).nextInPage = g.nextInPage
	}
	if g.prev == none {
		h.first = g.next
	} else {
		d.holds.group(g.prev).next = g.next
	}
	if g.next != none {
		d.holds.group(g.next).prev = g.prev
	}
	d.holds.groups.remove(gi)
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
