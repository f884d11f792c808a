package cooperative

// AdvanceStart tells that the log starts at offset now; what was before is gone, whoever
// had it.
func (d *Dispatcher) AdvanceStart(offset int64, out *Changes) {
	for wi := range uint32(len(d.pages.all.items)) << pageShift {
		if number := d.pages.numberOf(wi); number<<wordShift < offset && !d.pages.at(wi).empty() {
			d.settleWord(wi, maskOf(number, number<<wordShift, offset), out)
		}
	}
	for i := 0; i < len(d.ended.all.items); i++ { // of none, once all are forgotten
		if number := d.ended.all.at(uint32(i)).number; number<<wordShift < offset {
			d.forgetCounts(number, maskOf(number, number<<wordShift, offset), out)
		}
	}
	d.forgetFresh(Run{End: offset})
	d.frontier = max(d.frontier, offset)
	d.pages.dropLoose()
	out.Tidy()
	d.changeMode()
}

// Settle tells that offsets became committed otherwise than by an acknowledgement here.
// Whoever had them has them no more.
func (d *Dispatcher) Settle(runs []Run, out *Changes) {
	for _, r := range runs {
		for number := r.Start >> wordShift; number<<wordShift < r.End; number++ {
			if wi := d.pages.find(number); wi != none {
				d.settleWord(wi, maskOf(number, r.Start, r.End), out)
			}
			d.forgetCounts(number, maskOf(number, r.Start, r.End), out)
		}
		d.forgetFresh(r)
	}
	d.pages.dropLoose()
	out.Tidy()
	d.changeMode()
}

// forgetFresh takes out records that nobody has had.
func (d *Dispatcher) forgetFresh(r Run) {
	for i := range d.lanes {
		l := &d.lanes[i]
		l.pool.Remove(r)
		n := l.fresh.n
		l.fresh.retain(func(f freshRecord) bool { return f.offset < r.Start || f.offset >= r.End })
		d.fresh -= n - l.fresh.n
	}
}

// settleWord ends the records of a word's mask, in whatever state they are.
func (d *Dispatcher) settleWord(wi uint32, mask uint64, out *Changes) {
	d.settleTaken(wi, d.pages.taken(wi)&mask, out)
	eachBit(d.pages.numberOf(wi), d.pages.linked(wi)&mask, func(offset int64) {
		r := refOf(wi, offset)
		if !d.isTracked(offset) { // it left before
			return
		}
		ki := d.pages.link(r).key
		d.keys.at(ki).waiting--
		d.waiting--
		d.unlink(ki, r)
		d.place(ki)
	})
	d.pages.tidy(wi)
}
