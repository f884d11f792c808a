package cooperative

import "math"

// deal fills the hand: up to limit with the records of the member's own keys, of which up
// to share with what others could have. Each of these comes first every other time, and
// neither fills more than half if there is some of the other, so that nothing that is
// always there keeps the other from being dealt.
func (d *Dispatcher) deal(limit, share int) {
	own := listName{of: d.hand.member, member: true}
	d.keysFirst = !d.keysFirst
	if !d.keysFirst {
		d.dealLanes(d.half(min(share, limit)))
	}
	before := len(d.hand.offsets)
	d.dealKeys(own, d.half(limit))
	ownRecords := len(d.hand.offsets) - before
	d.dealLanes(min(limit, share+ownRecords))
	d.dealKeys(own, limit)
}

// half is half of the way from what the hand holds to limit.
func (d *Dispatcher) half(limit int) int {
	n := len(d.hand.offsets)
	return n + max(limit-n+1, 0)/2
}

// part is an equal part, for one of n, of the way from what the hand holds to limit.
func (d *Dispatcher) part(limit, n int) int {
	return max(limit-len(d.hand.offsets)+n-1, 0) / n
}

// dealLanes fills the hand to limit from the lanes that are its member's to take from: with
// ready keys and with what was not dealt before, half of each if there is.
func (d *Dispatcher) dealLanes(limit int) {
	lanes := d.lanesOf(d.hand.member)
	if d.keysFirst {
		d.dealReady(lanes, d.half(limit))
	} else {
		d.dealStreams(lanes, d.half(limit))
		d.dealReady(lanes, limit)
	}
	d.dealStreams(lanes, limit)
	d.dealReady(lanes, limit)
}

// theLane is the one lane in modes without buckets.
var theLane = []uint32{0}

// lanesOf are the lanes from which a member may be dealt.
func (d *Dispatcher) lanesOf(mi uint32) []uint32 {
	if d.config.Mode != KeyRange {
		return theLane
	}
	return d.members.at(mi).lanes
}

// dealReady fills the hand to limit with records of the lanes' ready keys: with as many of
// one lane as of another, then with what there is.
func (d *Dispatcher) dealReady(lanes []uint32, limit int) {
	d.marks = d.marks[:0]
	for _, li := range lanes {
		if l := &d.lanes[li]; l.ready.n > 0 && l.foreign == 0 {
			d.marks = append(d.marks, li)
		}
	}
	m := d.members.at(d.hand.member)
	m.turn++
	n := len(d.marks)
	for i := range 2 * n {
		to := limit
		if left := n - i; left > 1 {
			to = len(d.hand.offsets) + d.part(limit, left)
		}
		d.dealKeys(listName{of: d.marks[(m.turn+i)%n]}, to)
	}
}

// dealKeys fills the hand to limit with records of ready keys, some of each at a time.
func (d *Dispatcher) dealKeys(n listName, limit int) {
	for len(d.hand.offsets) < limit && !d.hand.full {
		ki := d.list(n).head
		if ki == none {
			return
		}
		d.dealKey(ki, min(limit, len(d.hand.offsets)+max(1, (limit+7)/8)))
		d.delist(ki)
		d.place(ki) // at the end
	}
}

func (d *Dispatcher) dealKey(ki uint32, limit int) {
	for k := d.keys.at(ki); k.wait != none && d.stateOf(k.wait) == Available && !d.behindStretch(k) && len(d.hand.offsets) < limit && !d.hand.full; {
		r := k.wait
		switch d.offer(d.pages.offsetOf(r)) {
		case keep:
			return
		case dealt:
			k.wait = d.nextWaiting(d.pages.link(r).next)
			k.startTaken(d.pages.offsetOf(r))
			k.holder = d.hand.member
		case gone:
			d.unlink(ki, r)
			d.pages.tidy(r >> pageShift)
		}
		k.waiting--
		d.waiting--
	}
}

// stream is a lane whose records that were not dealt before, or have no key, are being
// dealt in the order of their offsets.
type stream struct {
	next int64 // the first of them
	lane uint32
	left int // how many more may be dealt
}

// dealStreams fills the hand to limit with records of the lanes that were not dealt before
// or have no key, in the order of their offsets, as if the lanes were one: what a member is
// dealt, and says of it, is then in runs as long as there can be. A lane that is far behind
// the others does not fill more than half while they have any.
func (d *Dispatcher) dealStreams(lanes []uint32, limit int) {
	if len(lanes) == 1 {
		if d.lanes[lanes[0]].foreign == 0 {
			d.dealStream(lanes[0], limit, math.MaxInt64)
		}
		return
	}
	if d.openStreams(lanes); len(d.streams) > 1 {
		d.mergeStreams(limit, d.part(limit, 2))
		d.openStreams(lanes)
	}
	d.mergeStreams(limit, limit)
}

func (d *Dispatcher) openStreams(lanes []uint32) {
	d.streams = d.streams[:0]
	for _, li := range lanes {
		if l := &d.lanes[li]; l.foreign == 0 {
			if next, ok := l.next(); ok {
				d.streams = append(d.streams, stream{next: next, lane: li})
			}
		}
	}
}

// mergeStreams deals from the streams, not more than most from each.
func (d *Dispatcher) mergeStreams(limit, most int) {
	q := d.streams
	for i := range q {
		q[i].left = most
	}
	for i := len(q)/2 - 1; i >= 0; i-- {
		sink(q, i)
	}
	for len(q) > 0 && len(d.hand.offsets) < limit && !d.hand.full {
		s, below := &q[0], int64(math.MaxInt64)
		for _, other := range q[1:min(3, len(q))] {
			below = min(below, other.next)
		}
		n := len(d.hand.offsets)
		d.dealStream(s.lane, min(limit, n+s.left), below)
		s.left -= len(d.hand.offsets) - n
		next, ok := d.lanes[s.lane].next()
		if s.next = next; !ok || next < below { // it has no more, or must not go on
			q[0] = q[len(q)-1]
			q = q[:len(q)-1]
		}
		if len(q) > 1 {
			sink(q, 0)
		}
	}
}

// sink moves a stream of a heap, of which the first has the lowest offset, down to where
// it belongs.
func sink(q []stream, i int) {
	moving := q[i]
	for {
		kid := 2*i + 1
		if kid+1 < len(q) && q[kid+1].next < q[kid].next {
			kid++
		}
		if kid >= len(q) || q[kid].next >= moving.next {
			break
		}
		q[i] = q[kid]
		i = kid
	}
	q[i] = moving
}

// next is the first record of the lane that was not dealt before or has no key.
func (l *lane) next() (offset int64, ok bool) {
	run, ok := l.pool.Next(0)
	if l.fresh.n > 0 && (!ok || l.fresh.at(0).offset < run.Start) {
		return l.fresh.at(0).offset, true
	}
	return run.Start, ok
}

// dealStream fills the hand to limit with records of a lane below an offset that were not
// dealt before or have no key, in order of the offsets.
func (d *Dispatcher) dealStream(li uint32, limit int, below int64) {
	l := &d.lanes[li]
	run, ok := l.pool.Next(0)
	from, at := run.Start, run.Start // of the pool, what is between them was dealt
	for len(d.hand.offsets) < limit && !d.hand.full {
		if l.fresh.n > 0 && (!ok || l.fresh.at(0).offset < run.Start) {
			if l.fresh.at(0).offset >= below || l.ready.n > 0 && d.hand.looks <= 0 || !d.examine(li) {
				break
			}
			continue
		}
		if !ok || run.Start >= below {
			break
		}
		end := min(run.End, below)
		if l.fresh.n > 0 {
			end = min(end, l.fresh.at(0).offset)
		}
		at = d.offerRun(Run{Start: run.Start, End: end}, limit)
		if run.Start = at; at == run.End {
			run, ok = l.pool.Next(at)
		}
	}
	if from < at {
		l.pool.Remove(Run{Start: from, End: at})
	}
}

// offerRun offers records one after another, and gives the first that was not taken.
func (d *Dispatcher) offerRun(r Run, limit int) int64 {
	for ; r.Start < r.End && len(d.hand.offsets) < limit && !d.hand.full; r.Start++ {
		if d.offer(r.Start) == keep {
			break
		}
	}
	return r.Start
}

// toBatchEnd deals what is available of the stored batch that the last record is of.
func (d *Dispatcher) toBatchEnd(w Want) {
	n := len(d.hand.offsets)
	if w.BatchEnd == nil || n == 0 || d.hand.full || d.config.Mode == KeyRange {
		return
	}
	last := d.hand.offsets[n-1]
	d.dealStream(0, d.hand.limit, w.BatchEnd(last))
}
