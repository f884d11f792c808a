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
	for pi := range d.pages.all.items {
		p := d.pages.at(uint32(pi))
		if p.taken == 0 {
			continue
		}
		union := uint64(0)
		for gi := p.first; gi != none; gi = d.holds.group(gi).nextInPage {
			g := d.holds.group(gi)
			if g.mask == 0 || g.mask&union != 0 || g.page != uint32(pi) {
				return fmt.Errorf("page %d: group %d of page %d with mask %x beside %x", p.number, gi, g.page, g.mask, union)
			}
			union |= g.mask
			count[d.holds.at(g.hold).state] += bits.OnesCount64(g.mask)
		}
		if union != p.taken {
			return fmt.Errorf("page %d: taken %x, in groups %x", p.number, p.taken, union)
		}
	}
	if count != d.holds.count {
		return fmt.Errorf("records by state: %v counted, %v in groups", d.holds.count, count)
	}
	for i, hi := range d.holds.due {
		h := d.holds.at(hi)
		if int(h.heapAt) != i || h.records == 0 || (i > 0 && d.holds.before(hi, d.holds.due[(i-1)/2])) {
			return fmt.Errorf("hold %d with %d records is at %d of the heap, says %d", hi, h.records, i, h.heapAt)
		}
	}
	return nil
}

func (d *Dispatcher) checkPages() error {
	pages := 0
	for pi := range d.pages.all.items {
		p := d.pages.at(uint32(pi))
		if p.taken|p.tracked == 0 {
			continue // removed, or the next check finds it
		}
		pages++
		if found := d.pages.find(p.number); found != uint32(pi) {
			return fmt.Errorf("page %d is at %d, found at %d", p.number, pi, found)
		}
		if (p.tracked == 0) != (p.links == noBlock) {
			return fmt.Errorf("page %d: tracked %x with room at %d", p.number, p.tracked, p.links)
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
	waiting, tracked := 0, 0
	for ki := range d.keys.items {
		k := d.keys.at(uint32(ki))
		if !k.live {
			continue
		}
		if err := d.checkKey(uint32(ki), k, &tracked); err != nil {
			return fmt.Errorf("key %x: %w", k.hash, err)
		}
		waiting += int(k.waiting)
	}
	for pi := range d.pages.all.items {
		tracked -= bits.OnesCount64(d.pages.at(uint32(pi)).tracked)
	}
	if waiting != d.waiting || tracked != 0 {
		return fmt.Errorf("%d records wait for their keys, counted %d; in lists less tracked: %d", waiting, d.waiting, tracked)
	}
	return nil
}

func (d *Dispatcher) checkKey(ki uint32, k *key, tracked *int) error {
	taken, waiting, first, last, prev := uint32(0), uint32(0), none, int64(-1), none
	for r := k.head; r != none; r = d.pages.link(r).next {
		l := d.pages.link(r)
		if l.key != ki || l.prev != prev || d.pages.offsetOf(r) <= last {
			return fmt.Errorf("offset %d after %d, of key %d, before it %d", d.pages.offsetOf(r), last, l.key, l.prev)
		}
		if prev, last = r, d.pages.offsetOf(r); d.hasTaker(r) {
			if taken++; last > k.last {
				return fmt.Errorf("offset %d is taken, none should be above %d", last, k.last)
			}
		} else if waiting++; first == none {
			first = r
		}
		*tracked++
	}
	if found, ok := d.keyBy.find(k.hash); !ok || found != ki {
		return fmt.Errorf("at %d, found at %d", ki, found)
	}
	in, ready := d.readyIn(k)
	switch {
	case taken != k.taken || waiting != k.waiting || first != k.wait || prev != k.tail:
		return fmt.Errorf("%d taken and %d waiting from %d on, says %d and %d from %d on", taken, waiting, first, k.taken, k.waiting, k.wait)
	case taken == 0 && k.holder != none || k.orphans > k.taken:
		return fmt.Errorf("held by %q without records", d.idOf(k.holder))
	case k.head == none && k.from == k.to:
		return fmt.Errorf("of nothing")
	case ready != k.listed || ready && in != k.in:
		return fmt.Errorf("ready %v for %v, listed %v in %v", ready, in, k.listed, k.in)
	case k.from < k.to && (k.waiting == 0 || d.behindStretch(k)) && !k.asked:
		return fmt.Errorf("does not ask for [%d,%d)", k.from, k.to)
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
		gi := d.groupOf(r>>pageShift, 1<<(r&(pageBits-1)))
		if d.isOrphan(gi) {
			orphans++
			continue
		}
		if m := d.holds.at(d.holds.group(gi).hold).member; m != k.holder {
			return fmt.Errorf("offset %d is with %q, the key with %q", d.pages.offsetOf(r), d.idOf(m), d.idOf(k.holder))
		}
	}
	if orphans != k.orphans {
		return fmt.Errorf("%d pending of a member that is gone, says %d", orphans, k.orphans)
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
