package cooperative

import "slices"

// release ends the delivery of a record that is acquired or pending without its being
// done: it can be dealt again, or is archived if this was one delivery too many. Of its
// key, those acquired after it come back with it.
func (d *Dispatcher) release(wi uint32, offset int64, raise bool, backoff func(int) int64, nowMs int64, out *Changes) {
	_, bit := wordOf(offset)
	wait := int64(0)
	if raise {
		count := d.raise(offset, out)
		if count >= d.config.Limits.Deliveries {
			d.archiveTaken(wi, offset, out)
			return
		}
		wait = backoff(count)
	}
	r := refOf(wi, offset)
	hi, _ := d.partOf(wi, bit)
	orphan := d.isOrphan(hi)
	tracked := d.pages.linked(wi)&bit != 0
	if wait > 0 {
		d.untake(hi, wi, bit, Delayed)
		d.delay(wi, bit, nowMs+wait)
	} else {
		d.untake(hi, wi, bit, Available)
		if !tracked {
			d.toPool(offset)
		}
	}
	if !tracked {
		d.pages.tidy(wi)
		return
	}
	ki := d.pages.link(r).key
	d.keys.at(ki).taken--
	if orphan {
		d.dropOrphan(d.keys.at(ki))
	}
	d.startWaiting(ki, r)
	d.releaseLater(ki, r)
	d.place(ki)
}

// releaseLater releases what is acquired of a key after a record. It looks no further than
// at what is taken: what waits may be a million.
func (d *Dispatcher) releaseLater(ki uint32, r ref) {
	k := d.keys.at(ki)
	last := d.pages.offsetOf(r)
	for later := d.pages.link(r).next; later != none && d.pages.offsetOf(later) <= k.last; later = d.pages.link(later).next {
		switch d.stateOf(later) {
		case Acquired:
			wi, bit := splitRef(later)
			hi, _ := d.partOf(wi, bit)
			d.untake(hi, wi, bit, Available)
			k.taken--
			d.startWaiting(ki, later)
		case Pending:
			last = d.pages.offsetOf(later)
		default: // it is not taken
		}
	}
	k.last = last
}

// raise counts a delivery of a record that has ended, and gives how many there were.
func (d *Dispatcher) raise(offset int64, out *Changes) int {
	count := min(d.ended.of(offset)+1, 255)
	d.ended.set(offset, uint8(count))
	d.logCounts(offset, out)
	return count
}

// delay keeps records, which nobody has, from being dealt until a time.
func (d *Dispatcher) delay(wi uint32, mask uint64, untilMs int64) {
	if d.delayed == none || d.holds.at(d.delayed).deadline != untilMs {
		d.delayed = d.holds.open(Delayed, none, untilMs, true)
	}
	d.delayed = d.take(d.delayed, wi, mask)
}

// toPool makes a record without order available. Neighbours are collected to go there
// together.
func (d *Dispatcher) toPool(offset int64) {
	if d.config.Mode == KeyRange || offset != d.back.End {
		d.flushPool()
		d.back.Start = offset
	}
	d.back.End = offset + 1
}

func (d *Dispatcher) flushPool() {
	// What is not below the frontier will be fed.
	if d.back.End = min(d.back.End, d.frontier); d.back.Start < d.back.End {
		d.lanes[d.laneOfOffset(d.back.Start)].pool.Add(d.back)
	}
	d.back = Run{End: -1}
}

// archiveTaken ends a record that reached its delivery limit.
func (d *Dispatcher) archiveTaken(wi uint32, offset int64, out *Changes) {
	_, bit := wordOf(offset)
	if d.config.Limits.DeadLetters {
		d.deadLetter(wi, offset, Exhausted, out)
		return
	}
	d.settleTaken(wi, bit, out)
	out.commit(Run{Start: offset, End: offset + 1})
}

// deadLetter lets a record that is taken wait for its dead letter.
func (d *Dispatcher) deadLetter(wi uint32, offset int64, cause Cause, out *Changes) {
	_, bit := wordOf(offset)
	hi, _ := d.partOf(wi, bit)
	state, orphan := d.holds.at(hi).state, d.isOrphan(hi)
	d.untake(hi, wi, bit, Archiving)
	if d.pages.linked(wi)&bit != 0 {
		d.leaveKeys(wi, bit, state, orphan)
	}
	d.awaitDeadLetter(offset, cause, out)
}

func (d *Dispatcher) awaitDeadLetter(offset int64, cause Cause, out *Changes) {
	number, bit := wordOf(offset)
	hi := d.holds.open(Archiving, none, 0, false)
	d.holds.at(hi).cause = cause
	d.take(hi, d.pages.get(number), bit)
	d.logCounts(offset, out)
	out.DeadLetters = append(out.DeadLetters, DeadLetter{Offset: offset, Count: int16(d.ended.of(offset)), Cause: cause})
}

// archive ends an available record whose deliveries are at the limit; it is out of its
// lane and its key, or will be.
func (d *Dispatcher) archive(offset int64, was State, out *Changes) {
	number, bit := wordOf(offset)
	if d.config.Limits.DeadLetters && was.mayBecome(Archiving) {
		d.awaitDeadLetter(offset, Exhausted, out)
		return
	}
	d.forgetCounts(number, bit, out)
	out.commit(Run{Start: offset, End: offset + 1})
}

// Expire ends what has come to its time: locks, of which it counts a delivery, and
// backoffs. It is to be called at NextDeadline.
func (d *Dispatcher) Expire(nowMs int64, out *Changes) {
	if len(d.holds.due) == 0 || d.holds.at(d.holds.due[0]).deadline > nowMs {
		return
	}
	d.offsets = d.offsets[:0]
	for len(d.holds.due) > 0 && d.holds.at(d.holds.due[0]).deadline <= nowMs {
		hi := d.holds.due[0]
		if d.holds.at(hi).state == Delayed {
			d.endDelay(hi)
			continue
		}
		d.holds.undue(hi)
		d.collect(hi)
	}
	d.releaseCollected(true, nowMs, out, func(h *hold) bool { return h.heapAt < 0 })
	d.finish(out)
}

// collect adds the records of a hold to those to be released.
func (d *Dispatcher) collect(hi uint32) {
	d.eachWordOf(hi, func(wi uint32, mask uint64) {
		eachBit(d.pages.numberOf(wi), mask, func(offset int64) { d.offsets = append(d.offsets, offset) })
	})
}

// releaseCollected releases the collected records that are still acquired in a hold that
// is meant, in order: of each key the first is the one whose delivery counts.
func (d *Dispatcher) releaseCollected(raise bool, nowMs int64, out *Changes, meant func(*hold) bool) {
	slices.Sort(d.offsets)
	for _, offset := range d.offsets {
		number, bit := wordOf(offset)
		wi := d.pages.find(number)
		if wi == none || d.pages.taken(wi)&bit == 0 {
			continue
		}
		hi, _ := d.partOf(wi, bit)
		if h := d.holds.at(hi); h.state == Acquired && meant(h) {
			d.release(wi, offset, raise, noBackoff, nowMs, out)
		}
	}
}

// endDelay makes delayed records available.
func (d *Dispatcher) endDelay(hi uint32) {
	d.eachWordOf(hi, func(wi uint32, mask uint64) {
		d.untake(hi, wi, mask, Available)
		number, linked := d.pages.numberOf(wi), d.pages.linked(wi)
		eachBit(number, mask&linked, func(offset int64) {
			d.place(d.pages.link(refOf(wi, offset)).key)
		})
		eachBit(number, mask&^linked, d.toPool)
		d.pages.tidy(wi)
	})
	d.flushPool()
}

// MemberLeft ends a member that is gone or was fenced. What it had acquired counts as
// delivered. What it has pending in a transaction stays so.
func (d *Dispatcher) MemberLeft(memberID string, nowMs int64, out *Changes) {
	d.endMember(memberID, true, nowMs, out)
}

// ReleaseMember ends the session of a member that closed it normally: as MemberLeft, but
// no delivery is counted.
func (d *Dispatcher) ReleaseMember(memberID string, nowMs int64, out *Changes) {
	d.endMember(memberID, false, nowMs, out)
}

// GiveBack takes back deliveries that never reached their member: they can be dealt again,
// and do not count. What the member does not hold any more as it was dealt, since the lock
// ran out meanwhile, is passed over.
func (d *Dispatcher) GiveBack(memberID string, deliveries []Delivery, nowMs int64, out *Changes) {
	d.Expire(nowMs, out)
	m, ok := d.members.by[memberID]
	if !ok {
		return
	}
	for _, g := range deliveries {
		for offset := g.Start; offset < g.End; offset++ {
			number, bit := wordOf(offset)
			wi := d.pages.find(number)
			if wi != none && d.heldBy(wi, m, Acquired)&bit != 0 && int16(d.ended.of(offset))+1 == g.Count {
				d.release(wi, offset, false, noBackoff, nowMs, out)
			}
		}
	}
	d.finish(out)
}

func (d *Dispatcher) endMember(memberID string, raise bool, nowMs int64, out *Changes) {
	d.Expire(nowMs, out)
	m, ok := d.members.by[memberID]
	if !ok {
		return
	}
	d.offsets, d.marks = d.offsets[:0], d.marks[:0]
	for hi := d.members.at(m).holds; hi != none; hi = d.holds.at(hi).next {
		if d.holds.at(hi).state == Acquired {
			d.collect(hi)
		} else {
			d.marks = append(d.marks, hi)
		}
	}
	d.releaseCollected(raise, nowMs, out, func(h *hold) bool { return h.member == m })
	for _, hi := range d.marks {
		d.orphan(hi)
	}
	d.dropMember(m)
	d.finish(out)
}

// orphan takes pending records from a member that left. Their keys wait for the end of
// the transaction.
func (d *Dispatcher) orphan(hi uint32) {
	d.eachWordOf(hi, func(wi uint32, mask uint64) {
		d.forgetForeign(d.holds.at(hi), wi, mask)
		eachBit(d.pages.numberOf(wi), mask&d.pages.linked(wi), func(offset int64) {
			ki := d.pages.link(refOf(wi, offset)).key
			k := d.keys.at(ki)
			d.addOrphan(k)
			k.holder = none
			d.place(ki)
		})
	})
	d.disown(hi)
}
