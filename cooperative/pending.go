package cooperative

import "slices"

// Stage makes records that a member has acquired pending in a transaction: they have no
// deadline, are not dealt, and keep their keys with the member. Those that are pending
// already stay so; whose they are, the ledger knows. If any is neither, nothing changes.
func (d *Dispatcher) Stage(memberID string, runs []Run, nowMs int64, out *Changes) Outcome {
	d.Expire(nowMs, out)
	m, ok := d.members.by[memberID]
	if !ok {
		m = nobody
	}
	for _, r := range runs {
		if r.Start < 0 || r.Start >= r.End {
			return Invalid
		}
		for number := r.Start >> wordShift; number<<wordShift < r.End; number++ {
			wi := d.pages.find(number)
			mask := maskOf(number, r.Start, r.End)
			if wi == none || mask&^(d.heldBy(wi, m, Acquired)|d.heldBy(wi, none, Pending)) != 0 {
				return NotHeld
			}
		}
	}
	hi := none
	for _, r := range runs {
		for number := r.Start >> wordShift; number<<wordShift < r.End; number++ {
			wi := d.pages.find(number)
			mask := maskOf(number, r.Start, r.End) & d.heldBy(wi, m, Acquired)
			if mask == 0 {
				continue
			}
			if hi == none {
				hi = d.holds.open(Pending, m, 0, false)
				d.own(hi)
			}
			hi = d.moveTo(hi, wi, mask)
			if d.config.Mode == KeyRange {
				d.addForeign(d.holds.at(hi), wi, mask, 1)
			}
		}
	}
	return Done
}

// RestorePending tells, before the first Feed, which offsets are pending in transactions.
func (d *Dispatcher) RestorePending(runs []Run) {
	hi := none
	for _, r := range runs {
		for number := r.Start >> wordShift; number<<wordShift < r.End; number++ {
			wi := d.pages.get(number)
			if mask := maskOf(number, r.Start, r.End) &^ d.pages.taken(wi); mask != 0 {
				if hi == none {
					hi = d.holds.open(Pending, none, 0, false)
				}
				hi = d.take(hi, wi, mask)
			}
		}
	}
}

// EndStage ends the transaction of pending records. Those that it committed are done,
// which the ledger is told by the transaction; the others can be dealt again. Offsets
// that are not pending are passed over.
func (d *Dispatcher) EndStage(runs []Run, committed bool, nowMs int64, out *Changes) {
	d.offsets = d.offsets[:0]
	for _, r := range runs {
		for number := r.Start >> wordShift; number<<wordShift < r.End; number++ {
			wi := d.pages.find(number)
			if wi == none {
				continue
			}
			mask := maskOf(number, r.Start, r.End) & d.heldBy(wi, none, Pending)
			if committed {
				d.settleTaken(wi, mask, out)
				continue
			}
			eachBit(number, mask, func(offset int64) { d.offsets = append(d.offsets, offset) })
		}
	}
	slices.Sort(d.offsets)
	for _, offset := range d.offsets {
		d.release(d.pages.find(offset>>wordShift), offset, true, noBackoff, nowMs, out)
	}
	d.finish(out)
}

// DeadLettered tells that the dead letters of offsets are durable, so they are archived.
// Offsets that wait for none are passed over.
func (d *Dispatcher) DeadLettered(offsets []int64, out *Changes) {
	for _, offset := range offsets {
		number, bit := wordOf(offset)
		if wi := d.pages.find(number); wi != none && d.heldBy(wi, none, Archiving)&bit != 0 {
			d.settleTaken(wi, bit, out)
			out.commit(Run{Start: offset, End: offset + 1})
		}
	}
	out.Tidy()
	d.pages.dropLoose()
}
