package keyfilter

import (
	"encoding/binary"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
)

// slotSet is a set of key slots. One range, by far the most common, is two numbers;
// anything else is a bitmap of 8 KiB.
type slotSet struct {
	lo, width uint16 // the range [lo, lo+width], when bits is nil
	empty     bool
	bits      *[Slots / 64]uint64
}

// contains tells whether slot is in the set.
func (s *slotSet) contains(slot uint16) bool {
	if s.bits != nil {
		return s.bits[slot>>6]>>(slot&63)&1 != 0
	}
	return slot-s.lo <= s.width && !s.empty
}

// full tells whether the set has all slots.
func (s *slotSet) full() bool { return s.bits == nil && s.width == Slots-1 && !s.empty }

// newSlotSet is the set of the slots in ranges, which it sorts and merges in place.
func newSlotSet(ranges []protocol.SlotRange) slotSet {
	ranges = mergeRanges(ranges)
	switch len(ranges) {
	case 0:
		return slotSet{empty: true}
	case 1:
		return slotSet{lo: ranges[0].Lo, width: ranges[0].Hi - ranges[0].Lo}
	}
	s := slotSet{bits: new([Slots / 64]uint64)}
	for _, r := range ranges {
		s.setRange(r)
	}
	return s
}

// clone is a set of its own with the same slots.
func (s *slotSet) clone() slotSet {
	c := *s
	if s.bits != nil {
		bits := *s.bits
		c.bits = &bits
	}
	return c
}

// add adds one slot. A set that was empty stays two numbers.
func (s *slotSet) add(slot uint16) {
	switch {
	case s.bits != nil:
	case s.empty:
		*s = slotSet{lo: slot}
		return
	case s.contains(slot):
		return
	default:
		s.bits = new([Slots / 64]uint64)
		s.setRange(protocol.SlotRange{Lo: s.lo, Hi: s.lo + s.width})
	}
	s.bits[slot>>6] |= 1 << (slot & 63)
}

// mergeRanges sorts the ranges and makes one of those that overlap or touch.
func mergeRanges(ranges []protocol.SlotRange) []protocol.SlotRange {
	slices.SortFunc(ranges, func(a, b protocol.SlotRange) int { return int(a.Lo) - int(b.Lo) })
	merged := ranges[:0]
	for _, r := range ranges {
		if n := len(merged); n > 0 && int(r.Lo) <= int(merged[n-1].Hi)+1 {
			merged[n-1].Hi = max(merged[n-1].Hi, r.Hi)
			continue
		}
		merged = append(merged, r)
	}
	return merged
}

func (s *slotSet) setRange(r protocol.SlotRange) {
	first, last := r.Lo>>6, r.Hi>>6
	head, tail := ^uint64(0)<<(r.Lo&63), ^uint64(0)>>(63-r.Hi&63)
	if first == last {
		s.bits[first] |= head & tail
		return
	}
	s.bits[first] |= head
	for i := first + 1; i < last; i++ {
		s.bits[i] = ^uint64(0)
	}
	s.bits[last] |= tail
}

// The slots of many records are kept as 2 bytes each, little endian.

// slotAt is the i-th of slots.
func slotAt(slots []byte, i int) uint16 { return binary.LittleEndian.Uint16(slots[2*i:]) }

// next is the index of the first of slots at or after from that is in the set, and the
// number of slots if none is. Four slots are loaded at a time.
func (s *slotSet) next(slots []byte, from int) int {
	rest := slots[2*from:]
	switch {
	case s.bits != nil:
		rest = s.skipByBitmap(rest)
	case s.empty:
		return len(slots) / 2
	case s.width == 0:
		rest = skipUnequal(rest, s.lo)
	default:
		rest = s.skipByRange(rest)
	}
	i := (len(slots) - len(rest)) / 2
	for ; len(rest) >= 2; rest = rest[2:] {
		if s.contains(binary.LittleEndian.Uint16(rest)) {
			return i
		}
		i++
	}
	return i
}

// The following skip slots that are not in the set, and stop less than four before the
// first that is.

func (s *slotSet) skipByRange(slots []byte) []byte {
	lo, width := s.lo, s.width
	for len(slots) >= 8 {
		x := binary.LittleEndian.Uint64(slots)
		if uint16(x)-lo <= width || uint16(x>>16)-lo <= width || uint16(x>>32)-lo <= width || uint16(x>>48)-lo <= width {
			return slots
		}
		slots = slots[8:]
	}
	return slots
}

func (s *slotSet) skipByBitmap(slots []byte) []byte {
	set := s.bits
	for len(slots) >= 8 {
		x := binary.LittleEndian.Uint64(slots)
		a, b, c, d := uint16(x), uint16(x>>16), uint16(x>>32), uint16(x>>48)
		if (set[a>>6]>>(a&63)|set[b>>6]>>(b&63)|set[c>>6]>>(c&63)|set[d>>6]>>(d&63))&1 != 0 {
			return slots
		}
		slots = slots[8:]
	}
	return slots
}

// skipUnequal is the search for a rare key. Of the differences of four slots to the one
// wanted, some is zero exactly if the subtraction below leaves a top bit.
func skipUnequal(slots []byte, slot uint16) []byte {
	const low, high = 0x0001_0001_0001_0001, 0x8000_8000_8000_8000
	want := uint64(slot) * low
	for len(slots) >= 8 {
		x := binary.LittleEndian.Uint64(slots) ^ want
		if (x-low) & ^x & high != 0 {
			return slots
		}
		slots = slots[8:]
	}
	return slots
}
