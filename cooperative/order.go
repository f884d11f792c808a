package cooperative

import "math"

// The records of a key are a list in the order of their offsets, whose links lead forward
// only. To take one out, what is before it has to be known: it is looked for from a record near
// which others left or came last, a few steps far. So it is found where the records of a key
// are done in order, which is what the order is for, and some stay behind. Else the record is
// marked as left, and goes when it is the first, or when the list is swept, which is when more
// than one has left for every eight others.

// isTracked tells whether a record is in the list of its key.
func (d *Dispatcher) isTracked(offset int64) bool {
	number, bit := wordOf(offset)
	wi := d.pages.find(number)
	return wi != none && d.pages.linked(wi)&bit != 0 && !d.pages.link(refOf(wi, offset)).hasLeft()
}

func (l *link) hasLeft() bool { return l.key&leftBit != 0 }

// insert puts a record in the list of its key, by default at the end.
func (d *Dispatcher) insert(ki uint32, offset int64) ref {
	k := d.keys.at(ki)
	r := refOf(d.pages.get(offset>>wordShift), offset)
	if wi, bit := splitRef(r); d.pages.linked(wi)&bit != 0 { // it left, and was reopened
		d.pages.link(r).key = ki
		k.left--
		return r
	}
	prev := k.tail
	if prev != none && d.pages.offsetOf(prev) > offset {
		prev, _ = d.before(k, offset, math.MaxInt)
		k.near = r // the next one will be behind it
	} else if k.near == none {
		k.near = prev
	}
	next := k.head
	if prev != none {
		next = d.pages.link(prev).next
		d.pages.link(prev).next = r
	} else {
		k.head = r
	}
	if next == none {
		k.tail = r
	}
	d.pages.addLink(r, link{key: ki, next: next})
	return r
}

// before is the last in the list of a key before an offset, none if there is none. It is not
// ok if that is too many steps away.
func (d *Dispatcher) before(k *key, offset int64, steps int) (prev ref, ok bool) {
	next := k.head
	if k.near != none && d.pages.offsetOf(k.near) < offset {
		prev, next = k.near, d.pages.link(k.near).next
	} else {
		prev = none
	}
	for next != none && d.pages.offsetOf(next) < offset {
		if steps--; steps < 0 {
			return none, false
		}
		prev, next = next, d.pages.link(next).next
	}
	return prev, true
}

// leaving says how records leave their keys.
type leaving struct {
	steps int    // so far what is before one is looked for
	part  uint32 // one that left is kept for so many others at least
}

var defaultLeaving = leaving{steps: 8, part: 8}

// leave takes a record from its key, and tells whether its link is to be removed; else that
// is still needed.
func (d *Dispatcher) leave(k *key, r ref) bool {
	l := d.pages.link(r)
	if k.wait == r {
		k.wait = d.nextWaiting(l.next)
	}
	if k.head == r {
		if k.head = l.next; k.head == none {
			k.tail = none
		}
		if k.near == r {
			k.near = none
		}
		return true
	}
	prev, found := d.before(k, d.pages.offsetOf(r), d.leaving.steps)
	if k.near = prev; !found {
		l.key |= leftBit
		k.left++
		return false
	}
	if d.pages.link(prev).next = l.next; l.next == none {
		k.tail = prev
	}
	return true
}

// unlink takes a record out of the list of its key.
func (d *Dispatcher) unlink(ki uint32, r ref) {
	if d.leave(d.keys.at(ki), r) {
		d.pages.removeLinks(splitRef(r))
	}
}

// sweep takes out of the list of a key the records that left: those at its beginning, and all
// if they are many.
func (d *Dispatcher) sweep(k *key) {
	if k.left == 0 {
		return
	}
	all := d.tooManyLeft(k)
	last := none
	for r := k.head; r != none; {
		l := *d.pages.link(r)
		switch wi, bit := splitRef(r); {
		case !l.hasLeft() && !all:
			return
		case !l.hasLeft():
			last = r
		default:
			if k.left--; last == none {
				k.head = l.next
			} else {
				d.pages.link(last).next = l.next
			}
			if k.near == r {
				k.near = none
			}
			d.pages.removeLinks(wi, bit)
			d.pages.tidy(wi)
		}
		r = l.next
	}
	k.tail = last
}

func (d *Dispatcher) tooManyLeft(k *key) bool {
	return d.leaving.part*uint32(k.left) > k.taken+k.waiting || k.left == math.MaxUint16
}

// nextWaiting is the first record from r on that no member and no transaction has.
func (d *Dispatcher) nextWaiting(r ref) ref {
	for r != none && (d.pages.link(r).hasLeft() || d.hasTaker(r)) {
		r = d.pages.link(r).next
	}
	return r
}
