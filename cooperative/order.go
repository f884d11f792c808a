package cooperative

// The records of a key are a list in the order of their offsets, whose links lead forward
// only. So the first can be taken out of it, but not one in the middle, since what is before
// that is not known: it is marked as left, and goes when it is the first, or when the list is
// swept, which is when more than one has left for every leftPart others. Where the records of
// a key are done in order, which is what the order is for, none is ever marked.

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
		prev = d.before(ki, offset)
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
	d.inserted = r
	return r
}

// before is the last in the list of a key before an offset, none if there is none. It is
// looked for from where a record was put last, since often several come one after another.
func (d *Dispatcher) before(ki uint32, offset int64) ref {
	prev, next := none, d.keys.at(ki).head
	if wi, bit := splitRef(d.inserted); int(wi>>pageShift) < len(d.pages.all.items) && d.pages.linked(wi)&bit != 0 {
		if l := d.pages.link(d.inserted); l.key&^leftBit == ki && d.pages.offsetOf(d.inserted) < offset {
			prev, next = d.inserted, l.next
		}
	}
	for next != none && d.pages.offsetOf(next) < offset {
		prev, next = next, d.pages.link(next).next
	}
	return prev
}

// leave takes a record from its key, and tells whether its link is to be removed; else that
// is still needed.
func (d *Dispatcher) leave(k *key, r ref) bool {
	l := d.pages.link(r)
	if k.wait == r {
		k.wait = d.nextWaiting(l.next)
	}
	if k.head != r {
		l.key |= leftBit
		k.left++
		return false
	}
	if k.head = l.next; k.head == none {
		k.tail = none
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
			d.pages.removeLinks(wi, bit)
			d.pages.tidy(wi)
		}
		r = l.next
	}
	k.tail = last
}

func (d *Dispatcher) tooManyLeft(k *key) bool { return d.leftPart*k.left > k.taken+k.waiting }

// nextWaiting is the first record from r on that no member and no transaction has.
func (d *Dispatcher) nextWaiting(r ref) ref {
	for r != none && (d.pages.link(r).hasLeft() || d.hasTaker(r)) {
		r = d.pages.link(r).next
	}
	return r
}
