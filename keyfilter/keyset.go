package keyfilter

import (
	"bytes"

	"github.com/cespare/xxhash/v2"
)

// keySet is a set of keys: an open addressing table of their hashes, so that 100,000
// keys cost one or two probes. The top bits of a hash are its slot, which has been
// looked at before; the table goes by the low ones.
type keySet struct {
	keys  []hashedKey
	table []int32 // 1 + the index in keys, 0 for none; a power of two long
}

type hashedKey struct {
	hash uint64
	key  []byte
}

// newKeySet is the set of keys, whose bytes it aliases.
func newKeySet(keys [][]byte) keySet {
	if len(keys) == 0 {
		return keySet{}
	}
	size := 4
	for size < 2*len(keys) {
		size *= 2
	}
	s := keySet{keys: make([]hashedKey, 0, len(keys)), table: make([]int32, size)}
	for _, key := range keys {
		hash := xxhash.Sum64(key)
		at, ok := s.find(hash, key)
		if !ok {
			s.keys = append(s.keys, hashedKey{hash, key})
			s.table[at] = int32(len(s.keys))
		}
	}
	return s
}

// contains tells whether key, with its hash, is in the set. A null key never is.
func (s *keySet) contains(hash uint64, key []byte) bool {
	if key == nil || len(s.table) == 0 {
		return false
	}
	_, ok := s.find(hash, key)
	return ok
}

// find is where in the table the key is, or where it would go.
func (s *keySet) find(hash uint64, key []byte) (at uint64, ok bool) {
	mask := uint64(len(s.table) - 1)
	for at = hash & mask; s.table[at] != 0; at = (at + 1) & mask {
		k := &s.keys[s.table[at]-1]
		if k.hash == hash && bytes.Equal(k.key, key) {
			return at, true
		}
	}
	return at, false
}
