package commitlog

import (
	"math/bits"

	"github.com/cespare/xxhash/v2"
)

// offsetMap remembers the last offset of each key, in bounded memory: it stores a hash
// of 128 bits for the key, made with seeds that nobody who chooses keys knows.
type offsetMap struct {
	slots []offsetSlot // a power of two, open addressing
	used  int
	limit int // slots at most
	seeds [2]uint64
	hash  xxhash.Digest
}

type offsetSlot struct {
	lo, hi uint64
	next   int64 // the offset plus 1; 0: free
}

const (
	offsetSlotBytes   = 24
	offsetMapMinSlots = 256
)

// newOffsetMap makes a map that grows to at most memory bytes.
func newOffsetMap(memory int, seeds [2]uint64) *offsetMap {
	limit := max(offsetMapMinSlots, memory/offsetSlotBytes)
	limit = 1 << (bits.Len(uint(limit)) - 1)
	return &offsetMap{slots: make([]offsetSlot, offsetMapMinSlots), limit: limit, seeds: seeds}
}

// put notes that the key's last offset is offset. It returns false, and notes nothing,
// if the key is new and there is no room.
func (m *offsetMap) put(key []byte, offset int64) bool {
	lo, hi := m.sum(key)
	s := m.find(lo, hi)
	if s.next == 0 {
		if m.used >= m.room() {
			if len(m.slots) == m.limit {
				return false
			}
			m.grow()
			s = m.find(lo, hi)
		}
		m.used++
		s.lo, s.hi = lo, hi
	}
	s.next = offset + 1
	return true
}

// get is the last offset of the key, -1 if it was never put.
func (m *offsetMap) get(key []byte) int64 {
	lo, hi := m.sum(key)
	return m.find(lo, hi).next - 1
}

// room is how many slots may be used: three in four.
func (m *offsetMap) room() int { return len(m.slots) / 4 * 3 }

// find is the slot of the hash, or the free one where it belongs.
func (m *offsetMap) find(lo, hi uint64) *offsetSlot {
	mask := uint64(len(m.slots) - 1)
	for i := lo & mask; ; i = (i + 1) & mask {
		s := &m.slots[i]
		if s.next == 0 || s.lo == lo && s.hi == hi {
			return s
		}
	}
}

func (m *offsetMap) grow() {
	old := m.slots
	m.slots = make([]offsetSlot, 2*len(old))
	for _, s := range old {
		if s.next != 0 {
			*m.find(s.lo, s.hi) = s
		}
	}
}

func (m *offsetMap) sum(key []byte) (lo, hi uint64) {
	m.hash.ResetWithSeed(m.seeds[0])
	_, _ = m.hash.Write(key)
	lo = m.hash.Sum64()
	m.hash.ResetWithSeed(m.seeds[1])
	_, _ = m.hash.Write(key)
	return lo, m.hash.Sum64()
}
