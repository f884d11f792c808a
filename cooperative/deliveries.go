package cooperative

// deliveries say how many deliveries of records have ended, where any has: few records are
// delivered more than once.
type deliveries struct {
	all  arena[counted]
	by   index
	last uint32 // found last
}

// counted is the deliveries of 64 offsets, those of a word.
type counted struct {
	number int64 // the offsets number*64 to number*64+63
	mask   uint64
	counts [wordBits]uint8 // of those in the mask, 0 of others
}

func newDeliveries() *deliveries {
	d := &deliveries{last: none}
	d.by = newIndex(func(i uint32) uint64 { return uint64(d.all.items[i].number) })
	return d
}

// find is what there is of the offsets of a word, nil if there is nothing.
func (d *deliveries) find(number int64) *counted {
	if d.last == none || d.all.items[d.last].number != number {
		i, ok := d.by.find(uint64(number))
		if !ok {
			return nil
		}
		d.last = i
	}
	return d.all.at(d.last)
}

// of is how many deliveries of an offset have ended.
func (d *deliveries) of(offset int64) int {
	if c := d.find(offset >> wordShift); c != nil {
		return int(c.counts[offset&(wordBits-1)])
	}
	return 0
}

// set sets the deliveries of an offset, above 0.
func (d *deliveries) set(offset int64, count uint8) {
	number, bit := wordOf(offset)
	c := d.find(number)
	if c == nil {
		d.last = d.all.add(counted{number: number})
		d.by.put(d.last)
		c = d.all.at(d.last)
	}
	c.mask |= bit
	c.counts[offset&(wordBits-1)] = count
}

// forget forgets the deliveries of the offsets in a word's mask, and tells whether there
// were any.
func (d *deliveries) forget(number int64, mask uint64) bool {
	if d.all.used() == 0 {
		return false
	}
	c := d.find(number)
	if c == nil || c.mask&mask == 0 {
		return false
	}
	eachBit(number, c.mask&mask, func(offset int64) { c.counts[offset&(wordBits-1)] = 0 })
	if c.mask &^= mask; c.mask == 0 {
		d.by.remove(uint64(number), d.last)
		d.all.remove(d.last)
		d.last = none
	}
	return true
}
