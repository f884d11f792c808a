package cooperative

import (
	"math"
	"slices"
)

// Want is what a fetch asks for.
type Want struct {
	MaxRecords int // the most records to acquire, above 0
	BatchSize  int // runs are cut to at most so many records; 0: they are not
	// BatchEnd gives one past the last offset of the stored batch that holds a record. With it
	// the record limit is a soft one, as in Kafka's mode `batch_optimized`: the batch that
	// reaches the limit is dealt to its end. Nil is the mode `record_limit`.
	BatchEnd func(offset int64) int64
}

// Delivery is records dealt together; Count is the number of this delivery of theirs,
// from 1.
type Delivery struct {
	Run
	Count int16
}

// hand is the records that are being dealt to one member.
type hand struct {
	member  uint32
	offsets []int64
	batch   int // what was asked for
	limit   int // of records, never passed
	looks   int // at records of keys that are not free, while other records are at hand
	full    bool
	out     *Changes
}

// Acquire deals records to a member and appends them to dst, in order of the offsets. A
// fetch that gets none may wait (Wait). Changes tell of records that were at their
// delivery limit already.
func (d *Dispatcher) Acquire(dst []Delivery, memberID string, w Want, nowMs int64, out *Changes) []Delivery {
	limit := d.openHand(memberID, w, nowMs, out)
	if limit == 0 {
		return dst
	}
	d.deal(limit, min(limit, d.share(d.hand.member, w.MaxRecords)))
	d.toBatchEnd(w)
	return d.closeHand(dst, w, nowMs)
}

// openHand begins to deal to a member, and gives how many records at most; 0: none.
func (d *Dispatcher) openHand(memberID string, w Want, nowMs int64, out *Changes) (limit int) {
	d.Expire(nowMs, out)
	room := d.room()
	if room <= 0 || w.MaxRecords <= 0 {
		return 0
	}
	limit = min(w.MaxRecords, room)
	d.hand = hand{member: d.member(memberID), offsets: d.hand.offsets[:0], batch: limit, limit: room, looks: limit, out: out}
	return limit
}

// closeHand grants what is in the hand, and appends it to dst.
func (d *Dispatcher) closeHand(dst []Delivery, w Want, nowMs int64) []Delivery {
	d.hand.out.Tidy()
	if len(d.hand.offsets) == 0 {
		return dst
	}
	d.unwait(d.hand.member)
	if !slices.IsSorted(d.hand.offsets) {
		slices.Sort(d.hand.offsets)
	}
	return d.grant(dst, w.BatchSize, nowMs)
}

// room is how many records may be acquired more.
func (d *Dispatcher) room() int {
	if d.next != nil {
		return 0
	}
	return d.config.Limits.Acquired - d.holds.count[Acquired]
}

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

// dealLanes fills the hand to limit from the lanes that are its member's to take from.
func (d *Dispatcher) dealLanes(limit int) {
	if d.config.Mode != KeyRange {
		d.dealLane(0, limit)
		return
	}
	d.marks = d.marks[:0]
	for i := range d.lanes {
		if l := &d.lanes[i]; l.holder == d.hand.member && l.available() > 0 {
			d.marks = append(d.marks, uint32(i))
		}
	}
	n := len(d.marks)
	if n == 0 {
		return
	}
	m := d.members.at(d.hand.member)
	m.bucket++
	for pass := range 2 {
		for i := range n {
			to := limit
			if pass == 0 {
				left := n - i
				to = len(d.hand.offsets) + (limit-len(d.hand.offsets)+left-1)/left
			}
			d.dealLane(d.marks[(m.bucket+i)%n], to)
		}
	}
}

func (d *Dispatcher) dealLane(li uint32, limit int) {
	if d.lanes[li].foreign > 0 {
		return
	}
	keys := listName{of: li}
	if d.keysFirst {
		d.dealKeys(keys, d.half(limit))
	} else {
		d.dealStream(li, d.half(limit), math.MaxInt64)
		d.dealKeys(keys, limit)
	}
	d.dealStream(li, limit, math.MaxInt64)
	d.dealKeys(keys, limit)
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
	for k := d.keys.at(ki); k.wait != none && d.stateOf(k.wait) == Available && len(d.hand.offsets) < limit && !d.hand.full; {
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

// dealStream fills the hand to limit with records of a lane below an offset that were not
// dealt before or have no key, in order of the offsets.
func (d *Dispatcher) dealStream(li uint32, limit int, below int64) {
	l := &d.lanes[li]
	from := int64(-1) // pool records below at have been dealt
	at := int64(0)
	for len(d.hand.offsets) < limit && !d.hand.full {
		run, ok := l.pool.Next(at)
		if l.fresh.n > 0 && (!ok || l.fresh.at(0).offset < run.Start) {
			if l.fresh.at(0).offset >= below || l.ready.n > 0 && d.hand.looks <= 0 || !d.examine(li) {
				break
			}
			continue
		}
		if !ok || run.Start >= below {
			break
		}
		if l.fresh.n > 0 {
			run.End = min(run.End, l.fresh.at(0).offset)
		}
		if from < 0 {
			from = run.Start
		}
		at = d.offerRun(Run{Start: run.Start, End: min(run.End, below)}, limit)
	}
	if from >= 0 {
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

type verdict uint8

const (
	dealt verdict = iota // in the hand
	keep                 // not now
	gone                 // archived
)

// offer puts a record in the hand. As in Kafka, records that failed often are dealt in
// small hands, and for the last time alone, so that one that always fails does not fail
// its neighbours.
func (d *Dispatcher) offer(offset int64) verdict {
	h := &d.hand
	if d.pages.counts.used() > 0 {
		if count := int(d.pages.count(offset)); count > 0 {
			if count >= d.config.Limits.Deliveries {
				d.archive(offset, Available, h.out)
				return gone
			}
			most := d.handLimit(count, h.batch)
			if n := len(h.offsets); n > 0 && n >= most {
				h.full = true
				return keep
			}
			h.limit = min(h.limit, most)
		}
	}
	h.offsets = append(h.offsets, offset)
	h.full = len(h.offsets) >= h.limit
	return dealt
}

// handLimit is how many records may be dealt with one that has count deliveries behind
// it: all until half of the limit, but 2 at least, then half as many with each delivery.
func (d *Dispatcher) handLimit(count, all int) int {
	limit := d.config.Limits.Deliveries
	from := max(2, (limit+1)/2)
	switch {
	case limit > 2 && count == limit-1:
		return 1
	case count >= from:
		return max(1, all>>(count-from+1))
	default:
		return all
	}
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
