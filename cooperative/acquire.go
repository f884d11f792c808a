package cooperative

import "slices"

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
	d.pages.dropLoose()
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
	if d.ended.all.used() > 0 {
		if count := d.ended.of(offset); count > 0 {
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
