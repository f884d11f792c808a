package cooperative

import (
	"math"
	"math/bits"
)

// grant makes the hand its member's, and appends it to dst.
func (d *Dispatcher) grant(dst []Delivery, batchSize int, nowMs int64) []Delivery {
	if batchSize <= 0 {
		batchSize = math.MaxInt
	}
	hi := d.holds.open(Acquired, d.hand.member, nowMs+d.config.Limits.LockMs, true)
	d.holds.at(hi).since = nowMs
	d.own(hi)
	first := len(dst)
	for all := d.hand.offsets; len(all) > 0; {
		number, _ := wordOf(all[0])
		mask, n := uint64(0), 0
		for ; n < len(all) && all[n]>>wordShift == number; n++ {
			mask |= 1 << (all[n] & (wordBits - 1))
		}
		all = all[n:]
		hi = d.take(hi, d.pages.get(number), mask)
		dst = d.appendDeliveries(dst, first, batchSize, number, mask)
	}
	return dst
}

// appendDeliveries appends the records of a word's mask as runs, of which those from
// index first on may be continued.
func (d *Dispatcher) appendDeliveries(dst []Delivery, first, batchSize int, number int64, mask uint64) []Delivery {
	base := number << wordShift
	ended := &counted{}
	if c := d.ended.find(number); c != nil {
		ended = c
	}
	for mask != 0 {
		lo := bits.TrailingZeros64(mask)
		n := bits.TrailingZeros64(^(mask >> lo))
		count := int16(1)
		if near := ended.mask >> lo; near&1 != 0 {
			n = 1
			count += int16(ended.counts[lo])
		} else if near != 0 {
			n = min(n, bits.TrailingZeros64(near))
		}
		mask &^= maskOf(number, base+int64(lo), base+int64(lo+n))
		dst = appendRun(dst, first, int64(batchSize), Delivery{Run{Start: base + int64(lo), End: base + int64(lo+n)}, count})
	}
	return dst
}

// appendRun appends a run in pieces of at most batchSize records; the first continues the
// last of those from index first on if it can.
func appendRun(dst []Delivery, first int, batchSize int64, r Delivery) []Delivery {
	if k := len(dst) - 1; k >= first && dst[k].End == r.Start && dst[k].Count == r.Count {
		n := min(r.End-r.Start, batchSize-(dst[k].End-dst[k].Start))
		dst[k].End += n
		r.Start += n
	}
	for r.Start < r.End {
		n := min(r.End-r.Start, batchSize)
		dst = append(dst, Delivery{Run{Start: r.Start, End: r.Start + n}, r.Count})
		r.Start += n
	}
	return dst
}
