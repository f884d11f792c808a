package keyfilter

import "encoding/binary"

// tableEntry is what the table of a SlotIndex says of a batch; the rest follows from
// the entries before it.
type tableEntry struct {
	size    uint64 // bytes
	offsets uint64 // last offset delta + 1
	gap     uint64 // offsets that no batch has, before this one
	records uint64 // 0 if it is opaque
	opaque  bool
}

// Flags of an entry, in the low bits of its first number.
const (
	entryOpaque = 1 << iota // it has no slots
	entryGap                // there is a gap before it
	entryHoles              // it has fewer records than offsets
	entryShift  = iota      // the size stands above the flags
)

// appendTableEntry appends an entry, four or five bytes for most batches: size and
// flags, the last offset delta, then, if the flags say so, the gap and the number of
// offsets without a record. All are unsigned varints.
func appendTableEntry(dst []byte, e tableEntry) []byte {
	flags := uint64(0)
	if e.opaque {
		flags |= entryOpaque
	}
	if e.gap != 0 {
		flags |= entryGap
	}
	if !e.opaque && e.records != e.offsets {
		flags |= entryHoles
	}
	dst = binary.AppendUvarint(dst, e.size<<entryShift|flags)
	dst = binary.AppendUvarint(dst, e.offsets-1)
	if flags&entryGap != 0 {
		dst = binary.AppendUvarint(dst, e.gap)
	}
	if flags&entryHoles != 0 {
		dst = binary.AppendUvarint(dst, e.offsets-e.records)
	}
	return dst
}

// readTableEntry reads the entry at the start of b and returns its length, 0 if b does
// not hold one.
func readTableEntry(b []byte) (e tableEntry, n int) {
	first, n := readUvarint(b, 0)
	last, n := readUvarint(b, n)
	e.size, e.offsets = first>>entryShift, last+1
	e.opaque = first&entryOpaque != 0
	if first&entryGap != 0 {
		e.gap, n = readUvarint(b, n)
	}
	holes := uint64(0)
	switch {
	case e.opaque:
		holes = e.offsets
	case first&entryHoles != 0:
		holes, n = readUvarint(b, n)
	}
	if n <= 0 || holes > e.offsets {
		return tableEntry{}, 0
	}
	e.records = e.offsets - holes
	return e, n
}

// readUvarint reads an unsigned varint at b[i] and returns the index after it, -1 if it
// does not fit or i is already -1.
func readUvarint(b []byte, i int) (uint64, int) {
	if i < 0 || i >= len(b) {
		return 0, -1
	}
	if b[i] < 0x80 {
		return uint64(b[i]), i + 1
	}
	v, n := binary.Uvarint(b[i:])
	if n <= 0 {
		return 0, -1
	}
	return v, i + n
}
