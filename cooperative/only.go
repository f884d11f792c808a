package cooperative

import "slices"

// Candidate is a record that a fetch with a filter would take. RoundRobin needs no key.
type Candidate struct {
	Offset int64
	Key    Key
}

// AcquireOnly is Acquire for a fetch that takes some records only: of the candidates, which
// rise, those that its member can have. Such a fetch does not wait in line (Wait): who runs
// the dispatcher tries it again after every change.
//
// In the modes with an order the candidates must hold of each key that occurs among them
// every record that is open, up to the last candidate: a filter goes by keys, so that it
// takes all records of a key or none. It does not matter whether they were fed. BatchEnd
// does not count, since other records of a batch may not match. What is in the Commit of out
// already is not dealt: out is to hold what the ledger was not told yet.
func (d *Dispatcher) AcquireOnly(dst []Delivery, memberID string, candidates []Candidate, w Want, nowMs int64, out *Changes) []Delivery {
	if len(candidates) == 0 {
		d.Expire(nowMs, out)
		return dst
	}
	limit := d.openHand(memberID, w, nowMs, out)
	if limit == 0 {
		return dst
	}
	out.Tidy()
	d.dealOnly(candidates, limit, len(out.Commit))
	return d.closeHand(dst, w, nowMs)
}

// dealOnly fills the hand to limit from the candidates. The first `decided` runs of the
// commit are not in the ledger yet.
func (d *Dispatcher) dealOnly(candidates []Candidate, limit, decided int) {
	commit := slices.Clone(d.hand.out.Commit[:decided])
	stale := false // the fresh records hold some that were looked at
	d.offsets = d.offsets[:0]
	for i := range candidates {
		c := &candidates[i]
		if len(d.hand.offsets) >= limit || d.hand.full {
			break
		}
		for len(commit) > 0 && commit[0].End <= c.Offset {
			commit = commit[1:]
		}
		if d.ledger.IsCommitted(c.Offset) || len(commit) > 0 && commit[0].Start <= c.Offset {
			continue
		}
		if c.Offset >= d.frontier {
			d.refed = max(d.refed, c.Offset+1) // it will be fed, and known then
		}
		switch {
		case d.config.Mode == RoundRobin || c.Key.Null:
			d.dealLoose(c)
		case d.isTaken(c.Offset):
			if d.mayHave(d.laneOf(c.Key.Hash)) { // else what comes before it was not looked at
				d.adopt(c.Offset, c.Key)
			}
		case d.isTracked(c.Offset):
			d.dealTracked(c, limit)
		default:
			stale = d.dealFirst(c, limit) || stale
		}
	}
	if stale {
		d.forgetLookedAt(d.offsets)
	}
}

// mayHave tells whether the lane is one that the hand's member may be dealt from.
func (d *Dispatcher) mayHave(li uint32) bool {
	l := &d.lanes[li]
	return d.config.Mode != KeyRange || l.holder == d.hand.member && l.foreign == 0
}

// dealLoose deals a record without order.
func (d *Dispatcher) dealLoose(c *Candidate) {
	li := d.laneOfOffset(c.Offset)
	if !d.mayHave(li) || d.isTaken(c.Offset) {
		return
	}
	if d.offer(c.Offset) != keep {
		d.lanes[li].pool.Remove(Run{Start: c.Offset, End: c.Offset + 1})
	}
}

// dealTracked deals what is next of the key of a record, if the member may have that.
func (d *Dispatcher) dealTracked(c *Candidate, limit int) {
	number, _ := wordOf(c.Offset)
	ki := d.pages.link(refOf(d.pages.find(number), c.Offset)).key
	k := d.keys.at(ki)
	own := memberList | listName(d.hand.member)
	if k.in == noList || k.in != own && (k.in >= memberList || !d.mayHave(d.laneOf(k.hash))) {
		return
	}
	d.dealKey(ki, limit)
	d.delist(ki)
	d.place(ki)
}

// dealFirst deals a record that was not looked at, or puts it behind the others of its key,
// and tells whether it did either.
func (d *Dispatcher) dealFirst(c *Candidate, limit int) bool {
	if !d.mayHave(d.laneOf(c.Key.Hash)) {
		return false
	}
	ki, known := d.keyBy.find(c.Key.Hash)
	if known && !d.mayExtend(ki) {
		d.addBehind(ki, c.Offset)
		if d.isTracked(c.Offset) { // and may be the next, if it was reopened
			d.dealTracked(c, limit)
		}
		return true
	}
	switch d.offer(c.Offset) {
	case keep:
		return false
	case gone:
		d.offsets = append(d.offsets, c.Offset)
		return true
	case dealt:
	}
	if !known {
		ki = d.addKey(c.Key.Hash)
	}
	d.insert(ki, c.Offset)
	k := d.keys.at(ki)
	k.startTaken(c.Offset)
	k.holder = d.hand.member
	return true
}

// forgetLookedAt takes records out of the fresh ones that were looked at out of turn; gone
// are those that were archived.
func (d *Dispatcher) forgetLookedAt(gone []int64) {
	for i := range d.lanes {
		l := &d.lanes[i]
		n := l.fresh.n
		l.fresh.retain(func(f freshRecord) bool {
			if d.isTracked(f.offset) || d.isTaken(f.offset) || slices.Contains(gone, f.offset) {
				return false
			}
			ki, known := d.keyBy.find(f.hash)
			if !known {
				return true
			}
			from, to := d.stretch(d.keys.at(ki))
			return f.offset < from || f.offset >= to // else it is read again
		})
		d.fresh -= n - l.fresh.n
	}
}
