package cooperative

import "math"

// deal fills the hand: up to limit with the records of the member's own keys, of which up
// to share with what others could have. Each of these comes first every other time, and
// neither fills more than half if there is some of the other, so that nothing that is
// always there keeps the other from being dealt.
func (d *Dispatcher) deal(limit, share int) {
	own := memberList | listName(d.hand.member)
	d.members.at(d.hand.member).turn++
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
	turn := d.members.at(d.hand.member).turn
	n := len(d.marks)
	for i := range 2 * n {
		to := limit
		if left := n - i; left > 1 {
			to = len(d.hand.offsets) + d.part(limit, left)
		}
		d.dealKeys(listName(d.marks[(turn+i)%n]), to)
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
			d.pages.tidy(r >> wordShift)
		}
		k.waiting--
		d.waiting--
	}
}

// stream is the records of a lane that are dealt in the order of their offsets: those that
// were not looked at, and those without order. What is dealt of the pool is taken out of it
// when the stream is closed.
type stream struct {
	lane  uint32
	left  int // how many more may be dealt
	run   Run // of the pool, what is next
	dealt Run // of the pool
}

// head is the first record of one of the streams.
type head struct {
	offset int64
	stream int
}

const noOffset = math.MaxInt64

// dealStreams fills the hand to limit with records of the lanes that were not dealt before
// or have no key. Half is dealt in the order of their offsets, as if the lanes were one: what
// a member is dealt, and says of it, is then in runs as long as there can be. The other half
// is shared out among the lanes, so that one that is far behind does not keep the others from
// being dealt.
func (d *Dispatcher) dealStreams(lanes []uint32, limit int) {
	if len(lanes) == 1 {
		d.dealBelow(lanes[0], limit, noOffset)
		return
	}
	if len(d.hand.offsets) >= limit {
		return
	}
	d.streams = d.streams[:0]
	for _, li := range lanes {
		if l := &d.lanes[li]; l.foreign == 0 && l.fresh.n+int(l.pool.Count()) > 0 {
			d.streams = append(d.streams, d.openStream(li))
		}
	}
	n := len(d.streams)
	if n > 1 {
		turn := d.members.at(d.hand.member).turn
		all := limit - len(d.hand.offsets)
		d.mergeStreams(limit-(all+turn%2)/2, func(int) int { return all })
		all = limit - len(d.hand.offsets)
		d.mergeStreams(limit, func(i int) int { return (all + (i+turn/2)%n) / n }) // in all it is all
	}
	d.mergeStreams(limit, func(int) int { return limit })
	for i := range d.streams {
		d.closeStream(&d.streams[i])
	}
}

// dealBelow fills the hand to limit with such records of one lane below an offset.
func (d *Dispatcher) dealBelow(li uint32, limit int, below int64) {
	if d.lanes[li].foreign > 0 {
		return
	}
	s := d.openStream(li)
	d.dealStream(&s, limit, below)
	d.closeStream(&s)
}

// mergeStreams fills the hand to limit with records of the streams, in the order of their
// offsets, but with no more of each than most says.
func (d *Dispatcher) mergeStreams(limit int, most func(i int) int) {
	q := d.heads[:0]
	for i := range d.streams {
		s := &d.streams[i]
		s.left = most(i)
		if next := d.nextOf(s); next < noOffset {
			q = append(q, head{next, i})
		}
	}
	d.heads = q
	for i := len(q)/2 - 1; i >= 0; i-- {
		sink(q, i)
	}
	for len(q) > 0 && len(d.hand.offsets) < limit && !d.hand.full {
		below := int64(noOffset)
		for _, other := range q[1:min(3, len(q))] {
			below = min(below, other.offset)
		}
		s, n := &d.streams[q[0].stream], len(d.hand.offsets)
		d.dealStream(s, min(limit, n+s.left), below)
		s.left -= len(d.hand.offsets) - n
		if q[0].offset = d.nextOf(s); q[0].offset < below || q[0].offset == noOffset { // it must not go on, or has no more
			q[0] = q[len(q)-1]
			q = q[:len(q)-1]
		}
		if len(q) > 1 {
			sink(q, 0)
		}
	}
}

// sink moves an entry of a heap, of which the first has the lowest offset, down to where it
// belongs.
func sink(q []head, i int) {
	moving := q[i]
	for {
		kid := 2*i + 1
		if kid+1 < len(q) && q[kid+1].offset < q[kid].offset {
			kid++
		}
		if kid >= len(q) || q[kid].offset >= moving.offset {
			break
		}
		q[i] = q[kid]
		i = kid
	}
	q[i] = moving
}

func (d *Dispatcher) openStream(li uint32) stream {
	run, _ := d.lanes[li].pool.Next(0)
	return stream{lane: li, run: run}
}

func (d *Dispatcher) closeStream(s *stream) {
	d.lanes[s.lane].pool.Remove(s.dealt)
}

// nextOf is the first record of a stream, noOffset if there is none.
func (d *Dispatcher) nextOf(s *stream) int64 {
	next := int64(noOffset)
	if l := &d.lanes[s.lane]; l.fresh.n > 0 {
		next = l.fresh.at(0).offset
	}
	if s.run.Start < s.run.End {
		next = min(next, s.run.Start)
	}
	return next
}

// dealStream fills the hand to limit with records of a stream below an offset.
func (d *Dispatcher) dealStream(s *stream, limit int, below int64) {
	l := &d.lanes[s.lane]
	for len(d.hand.offsets) < limit && !d.hand.full {
		end := min(s.run.End, below)
		if l.fresh.n > 0 {
			first := l.fresh.at(0).offset
			if s.run.Start == s.run.End || first < s.run.Start {
				if first >= below || l.ready.n > 0 && d.hand.looks <= 0 || !d.examine(s.lane) {
					return
				}
				continue
			}
			end = min(end, first)
		}
		if s.run.Start >= end {
			return
		}
		at := d.offerRun(Run{Start: s.run.Start, End: end}, limit)
		if s.dealt.End == 0 {
			s.dealt.Start = s.run.Start
		}
		s.dealt.End = at
		if s.run.Start = at; at == s.run.End {
			s.run, _ = l.pool.Next(at)
		}
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
	d.dealBelow(0, d.hand.limit, w.BatchEnd(last))
}
