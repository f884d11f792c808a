package cooperative

import (
	"math"
	"math/bits"
)

// AckType is what a member says of a record, in Kafka's numbers.
type AckType int8

const (
	Gap     AckType = 0 // there was no record
	Accept  AckType = 1
	Release AckType = 2 // to be dealt again
	Reject  AckType = 3 // never to be dealt again
	Renew   AckType = 4 // the lock starts anew
)

// Ack is what a member says of records that it acquired.
type Ack struct {
	Run
	Type AckType
}

// Outcome is what became of an Ack.
type Outcome uint8

const (
	Done    Outcome = iota
	NotHeld         // Kafka's INVALID_RECORD_STATE: the member does not hold all of it, and nothing was changed
	Moved           // the same, for a renewal: the bucket has another holder, who waits for it
	Invalid         // INVALID_REQUEST: not a run, or no type
)

// Acknowledge takes what a member says, one run after the other, and appends to dst what
// became of each. A run is taken whole or not at all. To release a record that was released
// with an earlier one of its key, by an acknowledgement before it, is well.
func (d *Dispatcher) Acknowledge(dst []Outcome, memberID string, acks []Ack, nowMs int64, out *Changes) []Outcome {
	d.Expire(nowMs, out)
	m, known := d.members.by[memberID]
	renewed := none
	d.delayed = none
	base := len(dst)
	for _, a := range acks {
		o := Done
		if a.Type == Release { // one before it may take its records along
			o = d.judge(m, known, a)
		}
		dst = append(dst, o)
	}
	end := int64(0)
	for i, a := range acks {
		o := &dst[base+i]
		judged := a.Type == Release && a.Start >= end
		if end = max(end, a.End); *o == Done && !judged {
			*o = d.judge(m, known, a)
		}
		if *o == Done {
			d.carryOut(m, a, nowMs, &renewed, out)
		}
	}
	d.finish(out)
	return dst
}

// Check gives the first of acks that would be refused as things are, for those who take
// all of them or none; Done if there is none. One that passes may be refused all the
// same when its turn comes: in an order, what is released takes along what is behind it,
// which cannot be accepted any more.
func (d *Dispatcher) Check(memberID string, acks []Ack, nowMs int64, out *Changes) (at int, o Outcome) {
	d.Expire(nowMs, out)
	m, known := d.members.by[memberID]
	for i, a := range acks {
		if o := d.judge(m, known, a); o != Done {
			return i, o
		}
	}
	return 0, Done
}

// judge tells whether a member may say so of the run.
func (d *Dispatcher) judge(m uint32, known bool, a Ack) Outcome {
	switch {
	case a.Start < 0 || a.Start >= a.End || a.Type < Gap || a.Type > Renew:
		return Invalid
	case !known:
		return NotHeld
	}
	outcome := Done
	for number := a.Start >> pageShift; number<<pageShift < a.End; number++ {
		pi := d.pages.find(number)
		mask := maskOf(number, a.Start, a.End)
		if pi == none || !d.hasAll(pi, mask, m) {
			return NotHeld
		}
		if a.Type == Renew && d.foreign > 0 && d.anyMoved(pi, mask, m) {
			outcome = Moved
		}
	}
	return outcome
}

// hasAll tells whether a member has acquired all of a page's records in a mask.
func (d *Dispatcher) hasAll(pi uint32, mask uint64, m uint32) bool {
	if p := d.pages.at(pi); p.taken&mask != mask {
		return false
	}
	for mask != 0 {
		g := d.holds.group(d.groupOf(pi, mask&-mask))
		if h := d.holds.at(g.hold); h.state != Acquired || h.member != m {
			return false
		}
		mask &^= g.mask
	}
	return true
}

// heldBy is the mask of a page's records that a member has, in a state; none: whoever has.
func (d *Dispatcher) heldBy(pi, m uint32, s State) uint64 {
	mask := uint64(0)
	for gi := d.pages.at(pi).first; gi != none; {
		g := d.holds.group(gi)
		if h := d.holds.at(g.hold); h.state == s && (m == none || h.member == m) {
			mask |= g.mask
		}
		gi = g.nextInPage
	}
	return mask
}

func (d *Dispatcher) anyMoved(pi uint32, mask uint64, m uint32) bool {
	moved := false
	p := d.pages.at(pi)
	eachBit(p.number, mask, func(offset int64) {
		moved = moved || d.lanes[d.laneOfRecord(p, pi, offset)].holder != m
	})
	return moved
}

func (d *Dispatcher) carryOut(m uint32, a Ack, nowMs int64, renewed *uint32, out *Changes) {
	for number := a.Start >> pageShift; number<<pageShift < a.End; number++ {
		pi := d.pages.find(number)
		mask := maskOf(number, a.Start, a.End)
		switch {
		case pi == none: // all of it was released with records before it
		case a.Type == Release:
			eachBit(number, mask, func(offset int64) {
				if _, bit := pageOf(offset); d.hasAll(pi, bit, m) { // else released with one before it
					d.release(pi, offset, true, d.backoffOf, nowMs, out)
				}
			})
		case a.Type == Reject && d.config.Limits.DeadLetters:
			eachBit(number, mask, func(offset int64) {
				_, bit := pageOf(offset)
				d.raise(offset, out)
				d.deadLetter(d.groupOf(pi, bit), offset, Rejected, out)
			})
		case a.Type == Renew:
			if *renewed == none {
				*renewed = d.holds.open(Acquired, m, nowMs+d.config.Limits.LockMs, true)
				d.holds.at(*renewed).since = nowMs
				d.own(*renewed)
			}
			d.moveTo(*renewed, pi, m, mask)
		default:
			d.settleHeld(pi, m, mask, out)
		}
	}
	switch {
	case a.Type == Accept || a.Type == Gap || a.Type == Reject && !d.config.Limits.DeadLetters:
		out.commit(a.Run)
	}
}

// settleHeld ends the records of a mask, which a member holds.
func (d *Dispatcher) settleHeld(pi, m uint32, mask uint64, out *Changes) {
	for mask != 0 {
		gi := d.groupOf(pi, mask&-mask)
		part := d.holds.group(gi).mask & mask
		d.settle(gi, part, out)
		mask &^= part
	}
	d.pages.tidy(pi)
}

// moveTo moves acquired records to another hold.
func (d *Dispatcher) moveTo(hi, pi, m uint32, mask uint64) {
	to := d.holds.at(hi).state
	for mask != 0 {
		gi := d.groupOf(pi, mask&-mask)
		part := d.holds.group(gi).mask & mask
		mask &^= part
		if d.holds.group(gi).hold != hi {
			d.untake(gi, part, to)
			d.take(hi, pi, part)
		}
	}
}

// settle ends the records of a mask, which are in the group. The page is left to be
// tidied.
func (d *Dispatcher) settle(gi uint32, mask uint64, out *Changes) {
	g := d.holds.group(gi)
	pi, state, orphan := g.page, d.holds.at(g.hold).state, d.isOrphan(gi)
	d.untake(gi, mask, Settled)
	d.leaveKeys(pi, d.pages.at(pi).tracked&mask, state, orphan)
	d.forgetCounts(d.pages.at(pi).number, mask, out)
}

// isOrphan tells whether a group is pending of a member that is gone.
func (d *Dispatcher) isOrphan(gi uint32) bool {
	h := d.holds.at(d.holds.group(gi).hold)
	return h.state == Pending && h.member == none
}

// leaveKeys takes the records of a mask, which were in the state, out of the lists of their
// keys.
func (d *Dispatcher) leaveKeys(pi uint32, mask uint64, was State, orphan bool) {
	for left := mask; left != 0; left &= left - 1 {
		r := pi<<pageShift | ref(bits.TrailingZeros64(left))
		ki := d.pages.link(r).key
		k := d.keys.at(ki)
		if orphan {
			k.orphans--
		}
		if was == Acquired || was == Pending {
			k.taken--
		} else {
			k.waiting--
			d.waiting--
		}
		d.bypass(k, r)
		d.place(ki)
	}
	d.pages.removeLinks(pi, mask)
}

// backoffOf is how long a record with so many deliveries behind it is not dealt.
func (d *Dispatcher) backoffOf(deliveries int) int64 {
	backoff, limit := d.config.Limits.BackoffMs, d.config.Limits.BackoffMaxMs
	for ; deliveries > 1 && 0 < backoff && backoff < limit; deliveries-- {
		backoff = min(2*backoff, math.MaxInt64/4)
	}
	return min(backoff, max(limit, 0))
}

func noBackoff(int) int64 { return 0 }

// finish is what each operation that may have freed records ends with.
func (d *Dispatcher) finish(out *Changes) {
	d.flushPool()
	out.Tidy()
	d.changeMode()
}
