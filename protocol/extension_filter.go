package protocol

import (
	"encoding/binary"
	"fmt"
)

// SlotRange is the key slots from Lo to Hi, both included.
type SlotRange struct{ Lo, Hi uint16 }

// KeyFilter is what a fetch wants (Fetch 12+, ShareFetch 1+): records whose slot lies
// in a range, or whose key is one of the keys.
type KeyFilter struct {
	Ranges []SlotRange
	Keys   [][]byte
}

// AppendTo appends the field.
func (k *KeyFilter) AppendTo(dst []byte) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(k.Ranges))+1)
	for _, r := range k.Ranges {
		dst = binary.BigEndian.AppendUint16(dst, r.Lo)
		dst = binary.BigEndian.AppendUint16(dst, r.Hi)
	}
	dst = binary.AppendUvarint(dst, uint64(len(k.Keys))+1)
	for _, key := range k.Keys {
		dst = binary.AppendUvarint(dst, uint64(len(key))+1)
		dst = append(dst, key...)
	}
	return append(dst, noTags)
}

// ParseKeyFilter reads the field. The keys alias b. It refuses a filter without ranges
// and keys.
func ParseKeyFilter(b []byte) (KeyFilter, error) {
	var k KeyFilter
	f := fields{b: b}
	left := MaxKeysAndRanges
	k.Ranges = f.slotRanges(&left)
	k.Keys = f.filterKeys(&left)
	f.skipTags()
	if err := f.end(); err != nil {
		return KeyFilter{}, fmt.Errorf("key filter: %w", err)
	}
	if len(k.Ranges) == 0 && len(k.Keys) == 0 {
		return KeyFilter{}, fmt.Errorf("key filter: %w: neither ranges nor keys", ErrInvalidExtension)
	}
	return k, nil
}

func (f *fields) slotRanges(left *int) []SlotRange {
	n := f.arrayLen(4, "ranges")
	if n == 0 {
		return nil
	}
	if err := take(left, n, "ranges"); err != nil {
		f.err = err
		return nil
	}
	ranges := make([]SlotRange, 0, n)
	for range n {
		r := SlotRange{Lo: f.uint16("lo"), Hi: f.uint16("hi")}
		if r.Lo > r.Hi {
			f.fail("range %d..%d", r.Lo, r.Hi)
			return nil
		}
		ranges = append(ranges, r)
	}
	return ranges
}

func (f *fields) filterKeys(left *int) [][]byte {
	n := f.arrayLen(1, "keys")
	if n == 0 {
		return nil
	}
	if err := take(left, n, "keys"); err != nil {
		f.err = err
		return nil
	}
	keys := make([][]byte, 0, n)
	for i := range n {
		size := f.uvarint("key length")
		if size == 0 || size-1 > MaxKeyBytes {
			f.fail("key %d is null or has more than %d bytes", i, MaxKeyBytes)
			return nil
		}
		keys = append(keys, f.bytes(int(size-1), "key"))
	}
	return keys
}

// ScannedTo is the answer to a KeyFilter for one partition of Fetch (12+): every
// matching record from the asked offset up to Next is in the answer, fetch from Next.
type ScannedTo struct{ Next int64 }

// AppendTo appends the field.
func (s *ScannedTo) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.Next))
	return append(dst, noTags)
}

// ParseScannedTo reads the field.
func ParseScannedTo(b []byte) (s ScannedTo, err error) {
	f := fields{b: b}
	s.Next = f.int64("next")
	f.skipTags()
	if err := f.end(); err != nil {
		return ScannedTo{}, fmt.Errorf("scanned to: %w", err)
	}
	return s, nil
}

// FilterApplied is the answer to a KeyFilter of ShareFetch (1+): it was heeded.
type FilterApplied struct{}

// AppendTo appends the field.
func (FilterApplied) AppendTo(dst []byte) []byte { return append(dst, noTags) }

// ParseFilterApplied reads the field.
func ParseFilterApplied(b []byte) (FilterApplied, error) {
	f := fields{b: b}
	f.skipTags()
	if err := f.end(); err != nil {
		return FilterApplied{}, fmt.Errorf("filter applied: %w", err)
	}
	return FilterApplied{}, nil
}
