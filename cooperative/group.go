package cooperative

import "math/bits"

// group is the records of a page that are in a hold, if it is not the hold of the page: that
// has those that are in no group. Where a member acquires many records in a row, most pages
// need none.
type group struct {
	mask [pageWords]uint64
	hold uint32
	next uint32 // in the page
}

// take puts the offsets of a word's mask, none of which is taken, in a hold, and gives that
// or, if they are far away from its others, the one like it in which they are.
func (d *Dispatcher) take(hi, wi uint32, mask uint64) uint32 {
	hi = d.nearby(hi, d.pages.at(wi).number)
	p, w, h := d.pages.at(wi), wi&(pageWords-1), d.holds.at(hi)
	n := bits.OnesCount64(mask)
	h.records += uint32(n)
	d.holds.count[h.state] += n
	if p.taken == [pageWords]uint64{} {
		p.hold = hi
	}
	p.taken[w] |= mask
	if p.hold != hi {
		gi := d.groupOf(p, hi)
		if gi == none {
			gi = d.holds.groups.add(group{hold: hi, next: p.first})
			p.first = gi
		}
		d.holds.group(gi).mask[w] |= mask
	}
	return hi
}

// groupOf is the group of a hold in a page, none if there is none.
func (d *Dispatcher) groupOf(p *page, hi uint32) uint32 {
	gi := p.first
	for gi != none && d.holds.group(gi).hold != hi {
		gi = d.holds.group(gi).next
	}
	return gi
}

// partOf is the hold of the first record of a word's mask, all of which are taken, and the
// mask of those that are in it.
func (d *Dispatcher) partOf(wi uint32, mask uint64) (hi uint32, part uint64) {
	p, w, first := d.pages.at(wi), wi&(pageWords-1), mask&-mask
	for gi, prev := p.first, none; gi != none; {
		g := d.holds.group(gi)
		if g.mask[w]&first != 0 {
			if prev != none { // to the front, since that of the next record is likely the same
				d.holds.group(prev).next, g.next, p.first = g.next, p.first, gi
			}
			return g.hold, g.mask[w] & mask
		}
		mask &^= g.mask[w]
		gi, prev = g.next, gi
	}
	return p.hold, mask
}

// eachPart calls f with the holds that have records of a word, and the mask of these.
func (d *Dispatcher) eachPart(wi uint32, f func(hi uint32, part uint64)) {
	for left := d.pages.taken(wi); left != 0; {
		hi, part := d.partOf(wi, left)
		f(hi, part)
		left &^= part
	}
}

// eachWordOf calls f, which may untake them, with the records of a hold, in order.
func (d *Dispatcher) eachWordOf(hi uint32, f func(wi uint32, mask uint64)) {
	h := *d.holds.at(hi)
	for number := h.page << pageShift; h.records > 0 && number>>pageShift <= h.page+int64(h.more); number++ {
		wi := d.pages.find(number)
		if wi == none {
			continue
		}
		own := uint64(0)
		d.eachPart(wi, func(other uint32, part uint64) {
			if other == hi {
				own = part
			}
		})
		if own != 0 {
			h.records -= uint32(bits.OnesCount64(own))
			f(wi, own)
		}
	}
}

// untake takes the offsets of a word's mask out of the hold that they are in; to is what
// becomes of them. The page may be left to be tidied.
func (d *Dispatcher) untake(hi, wi uint32, mask uint64, to State) {
	p, w, h := d.pages.at(wi), wi&(pageWords-1), d.holds.at(hi)
	if !h.state.mayBecome(to) {
		panic("cooperative: a record that is " + h.state.String() + " would become " + to.String())
	}
	d.forgetForeign(h, wi, mask)
	n := bits.OnesCount64(mask)
	p.taken[w] &^= mask
	h.records -= uint32(n)
	d.holds.count[h.state] -= n
	if p.first != none {
		d.leaveGroup(p, hi, w, mask)
	}
	if h.records == 0 {
		d.dropHold(hi)
	}
}

// leaveGroup takes records out of their group, if they are in one. The hold of the page is to
// have some: if it has none any more, that of a group takes its place.
func (d *Dispatcher) leaveGroup(p *page, hi, w uint32, mask uint64) {
	gone := p.first
	if hi != p.hold {
		gone = d.groupOf(p, hi)
		g := d.holds.group(gone)
		if g.mask[w] &^= mask; g.mask != [pageWords]uint64{} {
			return
		}
	} else {
		rest := p.taken
		for gi := p.first; gi != none; gi = d.holds.group(gi).next {
			for i, m := range d.holds.group(gi).mask {
				rest[i] &^= m
			}
		}
		if rest != [pageWords]uint64{} {
			return
		}
		p.hold = d.holds.group(gone).hold
	}
	at := &p.first
	for *at != gone {
		at = &d.holds.group(*at).next
	}
	*at = d.holds.group(gone).next
	d.holds.groups.remove(gone)
}
