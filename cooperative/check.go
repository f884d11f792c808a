package cooperative

import (
	"fmt"
	"math/bits"
	"slices"
)

// CheckInvariants says what is wrong with the dispatcher, for tests. It looks at all
// there is.
func (d *Dispatcher) CheckInvariants() error {
	for _, check := range []func() error{d.checkHolds, d.checkPages, d.checkDeliveries, d.checkKeys, d.checkLanes, d.checkMembers} {
		if err := check(); err != nil {
			return err
		}
	}
	return nil
}

func (d *Dispatcher) checkHolds() error {
	var count [Settled]int
	records := make(map[uint32]uint32) // by the hold
	for i := range d.pages.all.items {
		p := d.pages.all.at(uint32(i))
		if p.empty() {
			continue
		}
		if err := d.checkGroups(p); err != nil {
			return fmt.Errorf("page %d: %w", p.number, err)
		}
		for wi := uint32(i) << pageShift; wi>>pageShift == uint32(i); wi++ {
			d.eachPart(wi, func(hi uint32, part uint64) {
				records[hi] += uint32(bits.OnesCount64(part))
				count[d.holds.at(hi).state] += bits.OnesCount64(part)
			})
		}
	}
	if count != d.holds.count {
		return fmt.Errorf("records by state: %v counted, %v in pages", d.holds.count, count)
	}
	for hi, n := range records {
		if h := d.holds.at(hi); h.records != n {
			return fmt.Errorf("hold %d says %d records, has %d", hi, h.records, n)
		}
		d.eachWordOf(hi, func(_ uint32, mask uint64) { records[hi] -= uint32(bits.OnesCount64(mask)) })
		if records[hi] != 0 {
			return fmt.Errorf("hold %d: %d records are not found", hi, records[hi])
		}
	}
	if len(records) != d.holds.all.used() {
		return fmt.Errorf("%d holds, %d have records", d.holds.all.used(), len(records))
	}
	for i, hi := range d.holds.due {
		h := d.holds.at(hi)
		if int(h.heapAt) != i || h.records == 0 || (i > 0 && d.holds.before(hi, d.holds.due[(i-1)/2])) {
			return fmt.Errorf("hold %d with %d records is at %d of the heap, says %d", hi, h.records, i, h.heapAt)
		}
	}
	return nil
}

// checkGroups: each hold of a page is so once, and has some of what is taken.
func (d *Dispatcher) checkGroups(p *page) error {
	rest, holds := p.taken, []uint32{p.hold}
	for gi := p.first; gi != none; gi = d.holds.group(gi).next {
		g := d.holds.group(gi)
		if g.mask == [pageWords]uint64{} || slices.Contains(holds, g.hold) {
			return fmt.Errorf("group %d of hold %d with mask %x beside those of %d", gi, g.hold, g.mask, holds)
		}
		for w, mask := range g.mask {
			if rest[w]&mask != mask {
				return fmt.Errorf("group %d with mask %x, of %x", gi, g.mask, rest)
			}
			rest[w] &^= mask
		}
		holds = append(holds, g.hold)
	}
	if p.first != none && rest == [pageWords]uint64{} {
		return fmt.Errorf("nothing for the hold of the page, beside %d", holds)
	}
	return nil
}

func (d *Dispatcher) checkPages() error {
	pages := 0
	for i := range d.pages.all.items {
		p := d.pages.all.at(uint32(i))
		if p.empty() {
			continue // removed, or the next check finds it
		}
		pages++
		if found := d.pages.find(p.number << pageShift); found != uint32(i)<<pageShift {
			return fmt.Errorf("page %d is at %d, found at %d", p.number, i, found>>pageShift)
		}
		for w, mask := range p.linked {
			if n, b := bits.OnesCount64(mask), p.links[w]; (n == 0) != (b == noBlock) || n > 0 && n > d.pages.links.room(b) {
				return fmt.Errorf("page %d: linked %x with room at %d", p.number, p.linked, p.links)
			}
		}
	}
	if pages != d.pages.all.used() || pages != d.pages.by.used {
		return fmt.Errorf("%d pages say something, of %d, of which %d are found", pages, d.pages.all.used(), d.pages.by.used)
	}
	return nil
}

func (d *Dispatcher) checkDeliveries() error {
	n := 0
	for i := range d.ended.all.items {
		c := d.ended.all.at(uint32(i))
		if c.mask == 0 {
			continue // removed, or the next check finds it
		}
		n++
		if d.ended.find(c.number) != c {
			return fmt.Errorf("deliveries of page %d are not found", c.number)
		}
		for bit, count := range c.counts {
			if (c.mask>>bit&1 == 1) != (count > 0) {
				return fmt.Errorf("offset %d of page %d has %d deliveries, mask %x", bit, c.number, count, c.mask)
			}
		}
	}
	if n != d.ended.all.used() || n != d.ended.by.used {
		return fmt.Errorf("%d pages have deliveries, of %d, of which %d are found", n, d.ended.all.used(), d.ended.by.used)
	}
	return nil
}

func (d *Dispatcher) checkKeys() error {
	waiting, tracked, extras := 0, 0, 0
	for ki := range d.keys.items {
		k := d.keys.at(uint32(ki))
		if !k.live {
			continue
		}
		if err := d.checkKey(uint32(ki), k, &tracked); err != nil {
			return fmt.Errorf("key %x: %w", k.hash, err)
		}
		waiting += int(k.waiting)
		if k.extra != none {
			extras++
		}
	}
	for i := range d.pages.all.items {
		for _, mask := range d.pages.all.at(uint32(i)).linked {
			tracked -= bits.OnesCount64(mask)
		}
	}
	if extras != d.extras.used() {
		return fmt.Errorf("%d keys have something besides, of %d", extras, d.extras.used())
	}
	if waiting != d.waiting || tracked != 0 {
		return fmt.Errorf("%d records wait for their keys, counted %d; in lists less linked: %d", waiting, d.waiting, tracked)
	}
	return nil
}

func (d *Dispatcher) checkKey(ki uint32, k *key, tracked *int) error {
	taken, waiting, gone, first, last, prev := uint32(0), uint32(0), uint32(0), none, int64(-1), none
	near := k.near == none
	for r := k.head; r != none; r = d.pages.link(r).next {
		l := d.pages.link(r)
		if l.key&^leftBit != ki || d.pages.offsetOf(r) <= last {
			return fmt.Errorf("offset %d after %d, of key %d", d.pages.offsetOf(r), last, l.key)
		}
		near = near || r == k.near
		prev, last = r, d.pages.offsetOf(r)
		switch {
		case l.hasLeft():
			if gone++; d.hasTaker(r) || r == k.head {
				return fmt.Errorf("offset %d left, and is taken or the first", last)
			}
		case d.hasTaker(r):
			if taken++; last > k.last {
				return fmt.Errorf("offset %d is taken, none should be above %d", last, k.last)
			}
		default:
			if waiting++; first == none {
				first = r
			}
		}
		*tracked++
	}
	if found, ok := d.keyBy.find(k.hash); !ok || found != ki {
		return fmt.Errorf("at %d, found at %d", ki, found)
	}
	switch {
	case taken != k.taken || waiting != k.waiting || first != k.wait || prev != k.tail:
		return fmt.Errorf("%d taken and %d waiting from %d on, says %d and %d from %d on", taken, waiting, first, k.taken, k.waiting, k.wait)
	case !near:
		return fmt.Errorf("near %d, which is not of it", k.near)
	case gone != uint32(k.left) || d.tooManyLeft(k):
		return fmt.Errorf("%d left beside %d, says %d", gone, taken+waiting, k.left)
	case taken == 0 && k.holder != none || d.orphans(k) > k.taken:
		return fmt.Errorf("held by %q without records", d.idOf(k.holder))
	case k.head == none && !d.isSpilt(k):
		return fmt.Errorf("of nothing")
	case d.readyIn(k) != k.in:
		return fmt.Errorf("in list %d, should be in %d", k.in, d.readyIn(k))
	case d.isSpilt(k) && (k.waiting == 0 || d.behindStretch(k)) && !k.asked:
		return fmt.Errorf("does not ask for %v", d.extraOf(k))
	}
	return d.checkOneHolder(k)
}

// checkOneHolder: what is acquired of a key, one member has.
func (d *Dispatcher) checkOneHolder(k *key) error {
	orphans := uint32(0)
	for r := k.head; r != none; r = d.pages.link(r).next {
		if !d.hasTaker(r) {
			continue
		}
		hi, _ := d.partOf(splitRef(r))
		if d.isOrphan(hi) {
			orphans++
			continue
		}
		if m := d.holds.at(hi).member; m != k.holder {
			return fmt.Errorf("offset %d is with %q, the key with %q", d.pages.offsetOf(r), d.idOf(m), d.idOf(k.holder))
		}
	}
	if orphans != d.orphans(k) {
		return fmt.Errorf("%d pending of a member that is gone, says %d", orphans, d.orphans(k))
	}
	return nil
}

func (d *Dispatcher) checkLanes() error {
	fresh, foreign, spilt := 0, 0, 0
	for i := range d.lanes {
		l := &d.lanes[i]
		fresh, foreign = fresh+l.fresh.n, foreign+l.foreign
		if l.spilt() {
			spilt++
		}
		if l.holder != none && (d.idOf(l.holder) != l.holderID || !slices.Contains(d.members.at(l.holder).lanes, uint32(i))) {
			return fmt.Errorf("lane %d of %q is with %q, who has %v", i, l.holderID, d.idOf(l.holder), d.members.at(l.holder).lanes)
		}
		for n := 1; n < l.fresh.n; n++ {
			if l.fresh.at(n-1).offset >= l.fresh.at(n).offset {
				return fmt.Errorf("lane %d: fresh offset %d before %d", i, l.fresh.at(n-1).offset, l.fresh.at(n).offset)
			}
		}
		for r := range l.pool.Runs(0) {
			for offset := r.Start; offset < r.End; offset++ {
				if d.isTaken(offset) || d.isTracked(offset) || offset >= max(d.frontier, d.ledger.Stable()) {
					return fmt.Errorf("lane %d: offset %d is in the pool, and taken, tracked or not fed", i, offset)
				}
			}
		}
	}
	if fresh != d.fresh || foreign != d.foreign || spilt != d.spilt {
		return fmt.Errorf("fresh %d, foreign %d, spilt lanes %d; counted %d, %d, %d", fresh, foreign, spilt, d.fresh, d.foreign, d.spilt)
	}
	for i := range d.lanes {
		d.lanes[i].foreign = -d.lanes[i].foreign
	}
	if d.config.Mode == KeyRange {
		d.countForeign() // to 0 where it was right
	}
	for i := range d.lanes {
		if left := d.lanes[i].foreign; left != 0 {
			return fmt.Errorf("lane %d: %d more foreign records than counted", i, left)
		}
	}
	d.foreign = 0
	if d.config.Mode == KeyRange {
		d.countForeign()
	}
	return nil
}

func (d *Dispatcher) checkMembers() error {
	held := 0
	for id, i := range d.members.by {
		m := d.members.at(i)
		if m.id != id {
			return fmt.Errorf("member %q is called %q", id, m.id)
		}
		for hi := m.holds; hi != none; hi = d.holds.at(hi).next {
			if h := d.holds.at(hi); h.member != i {
				return fmt.Errorf("member %q has a hold of %d", id, h.member)
			} else if h.state == Acquired {
				held += int(h.records)
			}
		}
	}
	if held != d.holds.count[Acquired] {
		return fmt.Errorf("members have %d records, %d are acquired", held, d.holds.count[Acquired])
	}
	return nil
}
