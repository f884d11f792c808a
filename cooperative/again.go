package cooperative

// ahead is how many records are kept of what is not dealt.
//
// A key, or a lane in KeyRange, that has too much waiting remembers only between which
// offsets its further records are, and asks for them when it has dealt what it kept.
type ahead struct {
	read        int // records that are fed, but not looked at
	reloadAt    int // a key asks when it has no more than that many
	reloadUpTo  int // and keeps so many of what it gets
	reloadLeast int // or so many, when there is too much waiting in all; then it asks when it has none
}

var defaultAhead = ahead{read: 8192, reloadAt: 64, reloadUpTo: 1024, reloadLeast: 16}

// Again is a stretch of the log that is to be read again, for one key or one bucket.
type Again struct {
	Start, End int64
	SlotLo     uint16 // only records with a key slot of SlotLo to SlotHi are needed
	SlotHi     uint16
	key        bool
	hash       uint64 // of the key
	lane       uint32
}

// NextAgain is the next stretch to be read again, if there is one. It is not given a
// second time before FeedAgain had it.
func (d *Dispatcher) NextAgain() (a Again, ok bool) {
	for len(d.keyAsks) > 0 {
		k := d.keys.at(d.keyAsks[0])
		d.keyAsks = d.keyAsks[:copy(d.keyAsks, d.keyAsks[1:])]
		if from, to := d.stretch(k); k.live && k.asked && from < to {
			slot := uint16(k.hash >> 48)
			return Again{Start: from, End: to, SlotLo: slot, SlotHi: slot, key: true, hash: k.hash}, true
		}
	}
	if d.spilt == 0 {
		return Again{}, false
	}
	for i := range d.lanes {
		l := &d.lanes[i]
		if l.spilt() && !l.asked && l.fresh.n+int(l.pool.Count()) < d.ahead.read/4 {
			l.asked = true
			return Again{Start: l.from, End: l.to, SlotLo: l.lo, SlotHi: l.hi, lane: uint32(i)}, true
		}
	}
	return Again{}, false
}

// FeedAgain takes what was read of the stretch, from its start up to the end of the
// records given, which may be anywhere in it; what is missing is asked for again.
func (d *Dispatcher) FeedAgain(a Again, r Records) {
	if a.key {
		d.feedKeyAgain(a, r)
		return
	}
	if int(a.lane) >= len(d.lanes) || !d.lanes[a.lane].asked {
		return
	}
	l := &d.lanes[a.lane]
	l.asked = false
	eachRecord(r, func(offset int64, k Key) bool {
		hash := k.Hash
		li := d.laneOf(hash)
		if k.Null {
			li = d.laneOfOffset(offset)
		}
		if li != a.lane || offset < l.from || offset >= l.to || d.ledger.IsCommitted(offset) {
			return true
		}
		if l.fresh.n+int(l.pool.Count()) >= d.ahead.read {
			l.from = offset
			return false
		}
		l.from = offset + 1
		if d.isTaken(offset) || d.isTracked(offset) {
			return true
		}
		if k.Null {
			l.pool.Add(Run{Start: offset, End: offset + 1})
		} else {
			d.addFresh(a.lane, freshRecord{offset, hash})
		}
		return true
	}, func() { l.from = max(l.from, min(r.End, l.to)) })
	if l.from >= l.to {
		l.from, l.to = 0, 0
		d.spilt--
	}
}

func (d *Dispatcher) feedKeyAgain(a Again, r Records) {
	ki, ok := d.keyBy.find(a.hash)
	if !ok || !d.keys.at(ki).asked {
		return
	}
	k := d.keys.at(ki)
	from, to := d.stretch(k)
	kept := int(k.waiting)
	if d.behindStretch(k) {
		kept = 0 // none of them can be dealt before what is read here
	}
	eachRecord(r, func(offset int64, rk Key) bool {
		if rk.Null || rk.Hash != a.hash || offset < from || offset >= to || d.ledger.IsCommitted(offset) {
			return true
		}
		if kept >= d.ahead.reloadUpTo || kept >= d.ahead.reloadLeast && d.overfull() {
			from = offset
			return false
		}
		from = offset + 1
		if !d.isTaken(offset) && !d.isTracked(offset) {
			d.addWaiting(ki, offset)
			kept++
		}
		return true
	}, func() { from = max(from, min(r.End, to)) })
	d.setStretch(k, from, to)
	k.asked = false
	d.place(ki)
	d.pages.dropLoose()
}

// eachRecord calls f with the records until it says no, else end.
func eachRecord(r Records, f func(offset int64, k Key) bool, end func()) {
	i := 0
	for _, run := range r.Runs {
		for offset := run.Start; offset < run.End; offset++ {
			if !f(offset, r.Keys[i]) {
				return
			}
			i++
		}
	}
	end()
}

// overfull tells whether more is waiting than the limits allow.
func (d *Dispatcher) overfull() bool {
	return (d.waiting+d.fresh)*waitingBytes > int(d.config.Limits.WaitingMaxBytes)
}

// asksAgain tells whether it is time for a key to ask for more of its records.
func (d *Dispatcher) asksAgain(k *key) bool {
	return d.isSpilt(k) && !k.asked && (k.waiting == 0 || d.behindStretch(k) || int(k.waiting) <= d.ahead.reloadAt && !d.overfull())
}

// spill tells whether a record is not to be kept, since its lane has enough waiting and
// there is too much in all.
func (d *Dispatcher) spill(l *lane, offset int64) bool {
	if d.config.Mode != KeyRange {
		return false
	}
	if l.spilt() {
		if offset >= l.from {
			l.to = max(l.to, offset+1)
			return true
		}
		return false
	}
	if l.fresh.n < d.ahead.read/4 || !d.overfull() || l.fresh.at(l.fresh.n-1).offset > offset {
		return false
	}
	l.from, l.to = offset, offset+1
	d.spilt++
	return true
}
