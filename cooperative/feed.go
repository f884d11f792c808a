package cooperative

// Key is the key of a record, for the modes that keep an order.
type Key struct {
	Hash uint64 // keyfilter.Hash of the key, all 64 bits
	Null bool   // there is none, or it could not be read: the record has no order
}

// Records are what was read of the log between two offsets.
type Records struct {
	Start, End int64 // what was read; an offset in it that Runs leaves out holds no record
	Runs       []Run // the records, rising
	Keys       []Key // one for each, in order; RoundRobin needs none
}

// WantsRecords tells whether Feed should be called, if the log has more: there is not much
// left to deal. In KeyRange that is so while any member's buckets have little.
func (d *Dispatcher) WantsRecords() bool {
	if d.config.Mode != KeyRange {
		return d.lanes[0].available() < d.ahead.read
	}
	for i := range d.lanes {
		if l := &d.lanes[i]; l.holderID != "" && l.fresh.n+int(l.pool.Count())+l.ready.n < d.ahead.read/4 && !l.spilt() {
			return true
		}
	}
	return false
}

// Feed takes what was read of the log from FeedFrom on, or what was reopened below it.
// What is committed, and what the dispatcher knows already, is passed over; so is what
// lies above FeedFrom when that is not where the records start.
func (d *Dispatcher) Feed(r Records, out *Changes) {
	end := r.End
	if r.Start > d.FeedFrom() {
		end = d.FeedFrom()
	}
	i := 0
	for _, run := range r.Runs {
		for at := run.Start; at < min(run.End, end); {
			open := d.nextOpen(at, min(run.End, end))
			d.feedOpen(open, r.Keys, i+int(open.Start-run.Start), out)
			at = open.End
		}
		i += int(run.End - run.Start)
	}
	d.frontier = max(d.frontier, end)
	d.pages.dropLoose()
	out.Tidy()
}

// nextOpen is the first run of uncommitted offsets in [from, end), empty at end if there
// is none.
func (d *Dispatcher) nextOpen(from, end int64) Run {
	if gap, ok := d.ledger.NextGap(from); ok {
		return Run{Start: min(gap.Start, end), End: min(gap.End, end)}
	}
	return Run{Start: min(d.ledger.FirstOpen(from), end), End: end}
}

func (d *Dispatcher) feedOpen(r Run, keys []Key, i int, out *Changes) {
	if d.config.Mode == RoundRobin {
		d.feedPool(r)
		return
	}
	for offset := r.Start; offset < r.End; offset++ {
		k := keys[i+int(offset-r.Start)]
		if d.isTaken(offset) {
			d.adopt(offset, k)
			continue
		}
		d.feedRecord(offset, k)
	}
}

// feedPool makes the records of r available that are not taken.
func (d *Dispatcher) feedPool(r Run) {
	if d.pages.all.used() == 0 || r.Start >= max(d.frontier, d.refed) && d.holds.count[Pending]+d.holds.count[Archiving] == 0 {
		d.lanes[0].pool.Add(r)
		return
	}
	for r.Start < r.End {
		number, _ := wordOf(r.Start)
		part := Run{Start: r.Start, End: min(r.End, (number+1)<<wordShift)}
		r.Start = part.End
		mask := maskOf(number, part.Start, part.End)
		wi := d.pages.find(number)
		if wi == none || d.pages.taken(wi)&mask == 0 {
			d.lanes[0].pool.Add(part)
			continue
		}
		eachBit(number, mask&^d.pages.taken(wi), func(offset int64) {
			d.lanes[0].pool.Add(Run{Start: offset, End: offset + 1})
		})
	}
}

func (d *Dispatcher) isTaken(offset int64) bool {
	number, bit := wordOf(offset)
	wi := d.pages.find(number)
	return wi != none && d.pages.taken(wi)&bit != 0
}

// adopt gives a record its key that was taken before it was read: after a restart, or a
// change of the mode.
func (d *Dispatcher) adopt(offset int64, k Key) {
	if k.Null || d.isTracked(offset) {
		return
	}
	number, bit := wordOf(offset)
	hi, _ := d.partOf(d.pages.find(number), bit)
	switch d.holds.at(hi).state {
	case Pending:
		ki := d.keyOf(k.Hash)
		d.keepBefore(ki, offset)
		d.insert(ki, offset)
		d.keys.at(ki).startTaken(offset)
		d.addOrphan(d.keys.at(ki))
		d.place(ki)
	case Delayed:
		ki := d.keyOf(k.Hash)
		d.keepBefore(ki, offset)
		d.addWaiting(ki, offset)
		d.place(ki)
	default: // what is archiving holds up nobody
	}
}

// keepBefore puts the records of a key before offset, which were not looked at, in the list
// of the key, or in the stretch that is to be read again for it, so that what is there
// already is not dealt before them.
func (d *Dispatcher) keepBefore(ki uint32, offset int64) {
	k := d.keys.at(ki)
	hash, l := k.hash, &d.lanes[d.laneOf(k.hash)]
	if from, to := l.from, min(l.to, offset); from < to {
		if f, t := d.stretch(k); f < t {
			from, to = min(from, f), max(to, t)
		}
		d.setStretch(k, from, to)
	}
	if !l.fresh.hasBefore(offset, hash) {
		return
	}
	n := l.fresh.n
	l.fresh.retain(func(f freshRecord) bool {
		if f.hash != hash || f.offset >= offset {
			return true
		}
		if !d.isTracked(f.offset) && !d.isTaken(f.offset) && !d.ledger.IsCommitted(f.offset) {
			d.addWaiting(ki, f.offset)
		}
		return false
	})
	d.fresh -= n - l.fresh.n
}

// feedRecord puts a record in its lane, unless it is there.
func (d *Dispatcher) feedRecord(offset int64, k Key) {
	hash := k.Hash
	if k.Null {
		hash = 0
	}
	li := d.laneOf(hash)
	if k.Null {
		li = d.laneOfOffset(offset)
	}
	l := &d.lanes[li]
	if d.spill(l, offset) {
		return
	}
	switch {
	case k.Null:
		l.pool.Add(Run{Start: offset, End: offset + 1})
	case offset < max(d.frontier, d.refed) && (d.isTracked(offset) || l.fresh.has(offset)):
	default:
		if offset < d.frontier { // reopened: later ones of its key may have been looked at
			if ki, known := d.keyBy.find(hash); known && !l.fresh.hasBefore(offset, hash) {
				d.addBehind(ki, offset)
				return
			}
		}
		d.addFresh(li, freshRecord{offset, hash})
	}
}

func (d *Dispatcher) addFresh(li uint32, f freshRecord) {
	d.lanes[li].fresh.push(f)
	d.fresh++
}

// examine looks at the first fresh record of a lane, once: it is dealt, or put behind the
// others of its key. It tells whether to go on.
func (d *Dispatcher) examine(li uint32) bool {
	l := &d.lanes[li]
	f := *l.fresh.at(0)
	if f.offset < d.refed && (d.isTracked(f.offset) || d.isTaken(f.offset) || d.ledger.IsCommitted(f.offset)) {
		d.popFresh(l)
		return true
	}
	ki, known := d.keyBy.find(f.hash)
	if known && !d.mayExtend(ki) {
		d.popFresh(l)
		d.addBehind(ki, f.offset)
		d.hand.looks--
		return true
	}
	switch d.offer(f.offset) {
	case keep:
		return false
	case gone:
		d.popFresh(l)
		return true
	}
	d.popFresh(l)
	if !known {
		ki = d.addKey(f.hash)
	}
	d.insert(ki, f.offset)
	k := d.keys.at(ki)
	k.startTaken(f.offset)
	k.holder = d.hand.member
	return true
}

func (d *Dispatcher) popFresh(l *lane) {
	l.fresh.pop()
	d.fresh--
}

// mayExtend tells whether the member that is dealt to may get the next record of a key
// at once: it has all before it.
func (d *Dispatcher) mayExtend(ki uint32) bool {
	k := d.keys.at(ki)
	return k.extra == none && k.wait == none && k.holder == d.hand.member
}

// addBehind lets a record wait for the others of its key.
func (d *Dispatcher) addBehind(ki uint32, offset int64) {
	k := d.keys.at(ki)
	switch from, to := d.stretch(k); {
	case from < to && offset >= from:
		d.setStretch(k, from, max(to, offset+1))
	case from == to && k.waiting > 0 && d.pages.offsetOf(k.tail) < offset && d.overfull():
		d.setStretch(k, offset, offset+1)
	default:
		d.addWaiting(ki, offset)
	}
	d.place(ki)
}
