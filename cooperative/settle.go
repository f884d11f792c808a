package cooperative

// AdvanceStart tells that the log starts at offset now; what was before is gone, whoever
// had it.
func (d *Dispatcher) AdvanceStart(offset int64, out *Changes) {
	d.marks = d.marks[:0]
	for pi := range d.pages.all.items {
		p := d.pages.at(uint32(pi))
		if p.number<<pageShift < offset && p.taken|p.tracked != 0 {
			d.marks = append(d.marks, uint32(pi))
		}
	}
	for _, pi := range d.marks {
		number := d.pages.at(pi).number
		d.settlePage(pi, maskOf(number, number<<pageShift, offset), out)
	}
	for i := 0; i < len(d.ended.all.items); i++ { // of none, once all are forgotten
		if number := d.ended.all.at(uint32(i)).number; number<<pageShift < offset {
			d.forgetCounts(number, maskOf(number, number<<pageShift, offset), out)
		}
	}
	d.forgetFresh(Run{End: offset})
	d.frontier = max(d.frontier, offset)
	out.Tidy()
	d.changeMode()
}

// Settle tells that offsets became committed otherwise than by an acknowledgement here.
// Whoever had them has them no more.
func (d *Dispatcher) Settle(runs []Run, out *Changes) {
	for _, r := range runs {
		for number := r.Start >> pageShift; number<<pageShift < r.End; number++ {
			if pi := d.pages.find(number); pi != none {
				d.settlePage(pi, maskOf(number, r.Start, r.End), out)
			}
			d.forgetCounts(number, maskOf(number, r.Start, r.End), out)
		}
		d.forgetFresh(r)
	}
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

// settlePage ends the records of a mask, in whatever state they are.
func (d *Dispatcher) settlePage(pi uint32, mask uint64, out *Changes) {
	number := d.pages.at(pi).number
	p := d.pages.at(pi)
	for taken := p.taken & mask; taken != 0; taken = d.pages.at(pi).taken & mask {
		gi := d.groupOf(pi, taken&-taken)
		d.settle(gi, d.holds.group(gi).mask&mask, out)
	}
	eachBit(number, p.tracked&mask, func(offset int64) {
		r := d.pages.refOf(pi, offset)
		ki := d.pages.link(r).key
		d.keys.at(ki).waiting--
		d.waiting--
		d.unlink(ki, r)
		d.place(ki)
	})
	d.pages.tidy(pi)
}
