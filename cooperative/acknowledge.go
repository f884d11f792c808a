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
		if !d.ends(a) || a.Start < end { // else it has nothing to do with what is gathered
			d.settleGathered(out)
		}
		if end = max(end, a.End); *o == Done && !judged {
			*o = d.judge(m, known, a)
		}
		if *o == Done {
			d.carryOut(m, a, nowMs, &renewed, out)
		}
	}
	d.settleGathered(out)
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
	for number := a.Start >> wordShift; number<<wordShift < a.End; number++ {
		wi := d.pages.find(number)
		mask := maskOf(number, a.Start, a.End)
		if wi == none || !d.hasAll(wi, mask, m) {
			return NotHeld
		}
		if a.Type == Renew && d.foreign > 0 && d.anyMoved(wi, mask, m) {
			outcome = Moved
		}
	}
	return outcome
}

// hasAll tells whether a member has acquired all of a word's records in a mask.
func (d *Dispatcher) hasAll(wi uint32, mask uint64, m uint32) bool {
	if d.pages.taken(wi)&mask != mask {
		return false
	}
	for mask != 0 {
		hi, part := d.partOf(wi, mask)
		if h := d.holds.at(hi); h.state != Acquired || h.member != m {
			return false
		}
		mask &^= part
	}
	return true
}

// heldBy is the mask of a word's records that a member has, in a state; none: whoever has.
func (d *Dispatcher) heldBy(wi, m uint32, s State) uint64 {
	mask := uint64(0)
	d.eachPart(wi, func(hi uint32, part uint64) {
		if h := d.holds.at(hi); h.state == s && (m == none || h.member == m) {
			mask |= part
		}
	})
	return mask
}

func (d *Dispatcher) anyMoved(wi uint32, mask uint64, m uint32) bool {
	moved := false
	eachBit(d.pages.numberOf(wi), mask, func(offset int64) {
		moved = moved || d.lanes[d.laneOfTaken(wi, offset)].holder != m
	})
	return moved
}

func (d *Dispatcher) carryOut(m uint32, a Ack, nowMs int64, renewed *uint32, out *Changes) {
	for number := a.Start >> wordShift; number<<wordShift < a.End; number++ {
		wi := d.pages.find(number)
		mask := maskOf(number, a.Start, a.End)
		switch {
		case wi == none: // all of it was released with records before it
		case a.Type == Release:
			eachBit(number, mask, func(offset int64) {
				if _, bit := wordOf(offset); d.hasAll(wi, bit, m) { // else released with one before it
					d.release(wi, offset, true, d.backoffOf, nowMs, out)
				}
			})
		case a.Type == Reject && d.config.Limits.DeadLetters:
			eachBit(number, mask, func(offset int64) {
				d.raise(offset, out)
				d.deadLetter(wi, offset, Rejected, out)
			})
		case a.Type == Renew:
			if *renewed == none {
				*renewed = d.holds.open(Acquired, m, nowMs+d.config.Limits.LockMs, true)
				d.holds.at(*renewed).since = nowMs
				d.own(*renewed)
			}
			*renewed = d.moveTo(*renewed, wi, mask)
		default:
			d.gather(wi, mask, out)
		}
	}
	if d.ends(a) {
		out.commit(a.Run)
	}
}

// ends tells whether an Ack says that its records are done.
func (d *Dispatcher) ends(a Ack) bool {
	return a.Type == Accept || a.Type == Gap || a.Type == Reject && !d.config.Limits.DeadLetters
}

// gathered is records of one page that are done, but not ended yet: where the runs of a
// member are short, those of several are ended together.
type gathered struct {
	page uint32
	any  bool
	mask [pageWords]uint64
}

func (d *Dispatcher) gather(wi uint32, mask uint64, out *Changes) {
	g := &d.gathered
	if g.page != wi>>pageShift {
		d.settleGathered(out)
		g.page = wi >> pageShift
	}
	g.any = true
	g.mask[wi&(pageWords-1)] |= mask
}

func (d *Dispatcher) settleGathered(out *Changes) {
	if !d.gathered.any {
		return
	}
	d.gathered.any = false
	wi := d.gathered.page << pageShift
	for w, mask := range d.gathered.mask {
		d.fetchKeys(wi|uint32(w), mask)
	}
	for w, mask := range d.gathered.mask {
		if mask != 0 {
			d.gathered.mask[w] = 0
			d.settleTaken(wi|uint32(w), mask, out)
		}
	}
}

// fetchKeys looks at the keys of the records of a word's mask, and where they are in the
// index. That they are fetched from memory takes longer than all that is done with them, but
// not when it is asked for one after another without anything in between.
func (d *Dispatcher) fetchKeys(wi uint32, mask uint64) {
	for mask &= d.pages.linked(wi); mask != 0; mask &= mask - 1 {
		k := d.keys.at(d.pages.link(refOf(wi, int64(bits.TrailingZeros64(mask)))).key)
		d.fetched ^= d.keyBy.places[tagOf(k.hash)>>d.keyBy.shift]
	}
}

// settleTaken ends the records of a word's mask, which are taken.
func (d *Dispatcher) settleTaken(wi uint32, mask uint64, out *Changes) {
	for mask != 0 {
		hi, part := d.partOf(wi, mask)
		d.settle(hi, wi, part, out)
		mask &^= part
	}
	d.pages.tidy(wi)
}

// moveTo moves acquired records to another hold, or to one like it, and gives that.
func (d *Dispatcher) moveTo(hi, wi uint32, mask uint64) uint32 {
	to := d.holds.at(hi).state
	for mask != 0 {
		from, part := d.partOf(wi, mask)
		mask &^= part
		if from != hi {
			d.untake(from, wi, part, to)
			hi = d.take(hi, wi, part)
		}
	}
	return hi
}

// settle ends the records of a word's mask, which are in the hold. The page is left to be
// tidied.
func (d *Dispatcher) settle(hi, wi uint32, mask uint64, out *Changes) {
	state, orphan := d.holds.at(hi).state, d.isOrphan(hi)
	d.untake(hi, wi, mask, Settled)
	if state != Archiving { // else they have left before
		d.leaveKeys(wi, d.pages.linked(wi)&mask, state, orphan)
	}
	d.forgetCounts(d.pages.numberOf(wi), mask, out)
}

// isOrphan tells whether a hold is pending of a member that is gone.
func (d *Dispatcher) isOrphan(hi uint32) bool {
	h := d.holds.at(hi)
	return h.state == Pending && h.member == none
}

// leaveKeys takes the records of a mask, which were in the state, out of the lists of their
// keys.
func (d *Dispatcher) leaveKeys(wi uint32, mask uint64, was State, orphan bool) {
	gone := uint64(0)
	for ; mask != 0; mask &= mask - 1 {
		r := refOf(wi, int64(bits.TrailingZeros64(mask)))
		ki := d.pages.link(r).key
		k := d.keys.at(ki)
		if orphan {
			d.dropOrphan(k)
		}
		if was == Acquired || was == Pending {
			k.taken--
		} else {
			k.waiting--
			d.waiting--
		}
		if d.leave(k, r) {
			gone |= mask & -mask
		}
		d.place(ki)
	}
	d.pages.removeLinks(wi, gone)
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
	d.pages.dropLoose()
	out.Tidy()
	d.changeMode()
}
