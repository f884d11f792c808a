package cooperative

import (
	"slices"

	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/keyfilter"
)

// lane is records that the same members may be dealt: all of the partition, or in
// KeyRange those of a bucket, as far as it covers the partition.
type lane struct {
	lo, hi   uint16                     // KeyRange: the first and the last of its key slots
	pool     individualcommit.OffsetSet // available records without order: of null keys, and all in RoundRobin
	fresh    ring                       // records with a key that were not looked at
	ready    list                       // keys with a record for any member of the lane
	from, to int64                      // its records in [from, to) are not kept but read again
	asked    bool
	holderID string // KeyRange: whose bucket it is, "" if nobody's
	holder   uint32 // the same, none if it is not known
	foreign  int    // records of the lane that another member still has
}

func (l *lane) spilt() bool { return l.from < l.to }

// available is about how many records of the lane can be dealt: a ready key is one.
func (l *lane) available() int {
	if l.foreign > 0 {
		return 0
	}
	return l.fresh.n + int(l.pool.Count()) + l.ready.n
}

func (d *Dispatcher) makeLanes() {
	d.lanes, d.laneAt = nil, nil
	d.fresh, d.foreign, d.spilt = 0, 0, 0
	for i := range d.members.items {
		d.members.items[i].lanes = nil
	}
	if d.config.Mode != KeyRange {
		d.lanes = []lane{{ready: emptyList, holder: none}}
		return
	}
	d.lanes, d.laneAt = bucketLanes(&d.config)
	for i := range d.lanes {
		if m, ok := d.members.by[d.lanes[i].holderID]; ok {
			d.give(uint32(i), m)
		}
	}
}

// slotsAtOnce is how many slots an entry of Dispatcher.laneAt is for.
const slotsAtOnce = 256

// bucketLanes makes a lane of each bucket that covers slots of the partition, in order of
// these, and the lanes in which every 256th slot is, from where it is not far to the lane of
// any other.
func bucketLanes(c *Config) (lanes []lane, laneAt []uint32) {
	buckets := c.Assignment.Buckets()
	first := c.Line.Point(c.Partition, 0)
	for at := int64(0); at < keyfilter.Slots; {
		bucket := buckets.At(first+at, c.Line)
		end := min(buckets.Interval(bucket, c.Line).End-first, keyfilter.Slots)
		for int64(len(laneAt))*slotsAtOnce < end {
			laneAt = append(laneAt, uint32(len(lanes)))
		}
		lanes = append(lanes, lane{
			lo: uint16(at), hi: uint16(end - 1), ready: emptyList, holderID: c.Assignment.Holder(bucket), holder: none,
		})
		at = end
	}
	return lanes, laneAt
}

// give makes a member the holder of a lane.
func (d *Dispatcher) give(li, member uint32) {
	d.lanes[li].holder = member
	m := d.members.at(member)
	m.lanes = append(m.lanes, li)
}

// laneOf is the lane of a key's hash.
func (d *Dispatcher) laneOf(hash uint64) uint32 {
	if d.config.Mode != KeyRange {
		return 0
	}
	slot := uint16(hash >> 48)
	li := d.laneAt[slot/slotsAtOnce]
	for d.lanes[li].hi < slot {
		li++
	}
	return li
}

// laneOfOffset is the lane of a record without a key.
func (d *Dispatcher) laneOfOffset(offset int64) uint32 {
	if d.config.Mode != KeyRange {
		return 0
	}
	return d.laneOf(keyfilter.Hash(nil, offset))
}

// laneOfTaken is the lane of a record that is taken, which may be in the list of a key.
func (d *Dispatcher) laneOfTaken(wi uint32, offset int64) uint32 {
	if _, bit := wordOf(offset); d.pages.linked(wi)&bit != 0 {
		return d.laneOf(d.keys.at(d.pages.link(refOf(wi, offset)).key &^ leftBit).hash)
	}
	return d.laneOfOffset(offset)
}

// SetAssignment tells who holds which bucket from now on, in KeyRange. What was waiting
// goes to the new holders; a bucket of which another member still has records is not
// dealt before they are done.
func (d *Dispatcher) SetAssignment(a Assignment) {
	if d.next != nil {
		d.next.Assignment = a
	}
	if d.config.Mode != KeyRange {
		return
	}
	old := d.lanes
	cut := d.frontier
	for i := range old {
		if old[i].spilt() {
			cut = min(cut, old[i].from)
		}
	}
	d.config.Assignment = a
	d.makeLanes()
	var all []freshRecord
	for i := range old {
		for old[i].fresh.n > 0 {
			if f := old[i].fresh.pop(); f.offset < cut {
				all = append(all, f)
			}
		}
		for r := range old[i].pool.Runs(0) {
			for offset := r.Start; offset < min(r.End, cut); offset++ {
				d.lanes[d.laneOfOffset(offset)].pool.Add(Run{Start: offset, End: offset + 1})
			}
		}
	}
	slices.SortFunc(all, func(a, b freshRecord) int { return int(a.offset - b.offset) })
	for _, f := range all {
		d.addFresh(d.laneOf(f.hash), f)
	}
	d.rewind(cut)
	d.replaceKeys()
	d.countForeign()
}

// replaceKeys puts all keys in the lists of the new lanes.
func (d *Dispatcher) replaceKeys() {
	for ki := range d.keys.items {
		k := &d.keys.items[ki]
		k.in = noList
	}
	for ki := range d.keys.items {
		if d.keys.items[ki].live {
			d.place(uint32(ki))
		}
	}
}

// isForeign tells whether a hold keeps back the lane: its member has the records and the
// lane is another's.
func (d *Dispatcher) isForeign(h *hold, l *lane) bool {
	return (h.state == Acquired || h.state == Pending) && h.member != none && h.member != l.holder
}

func (d *Dispatcher) countForeign() {
	for wi := range uint32(len(d.pages.all.items)) << pageShift {
		d.eachPart(wi, func(hi uint32, part uint64) { d.addForeign(d.holds.at(hi), wi, part, 1) })
	}
}

func (d *Dispatcher) addForeign(h *hold, wi uint32, mask uint64, n int) {
	eachBit(d.pages.numberOf(wi), mask, func(offset int64) {
		l := &d.lanes[d.laneOfTaken(wi, offset)]
		if d.isForeign(h, l) {
			l.foreign += n
			d.foreign += n
		}
	})
}

// forgetForeign counts records down that keep their lanes back and are about to go.
func (d *Dispatcher) forgetForeign(h *hold, wi uint32, mask uint64) {
	if d.foreign > 0 {
		d.addForeign(h, wi, mask, -1)
	}
}
