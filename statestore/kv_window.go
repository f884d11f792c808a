package statestore

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"

	"github.com/cockroachdb/pebble/v2"
)

// recent finds the last change of a key in a batch without the iterators that Pebble
// makes for it. It maps the hash of a key to where the change is in the batch's bytes.
type recent struct {
	seed    maphash.Seed
	changes map[uint64]changeAt
}

// changeAt is where a change is. Two keys of one hash are left to Pebble.
type changeAt struct {
	key, keyEnd, value, valueEnd int
	gone, shared                 bool
}

// recentRetained is how large a map is kept from window to window.
const recentRetained = 1 << 14

func newRecent() recent { return recent{maphash.MakeSeed(), map[uint64]changeAt{}} }

func (r *recent) reset() {
	if len(r.changes) > recentRetained {
		r.changes = map[uint64]changeAt{}
		return
	}
	clear(r.changes)
}

// note says that the last entry of the batch sets key to a value of that many bytes.
func (r *recent) note(b *pebble.Batch, key []byte, valueBytes int) {
	end := b.Len()
	c := changeAt{value: end - valueBytes, valueEnd: end}
	var length [binary.MaxVarintLen64]byte // the value's, between it and the key
	c.keyEnd = c.value - binary.PutUvarint(length[:], uint64(valueBytes))
	r.put(b, key, c)
}

// noteGone says that the last entry of the batch deletes key.
func (r *recent) noteGone(b *pebble.Batch, key []byte) {
	r.put(b, key, changeAt{keyEnd: b.Len(), gone: true})
}

func (r *recent) put(b *pebble.Batch, key []byte, c changeAt) {
	c.key = c.keyEnd - len(key)
	hash := maphash.Bytes(r.seed, key)
	if old, ok := r.changes[hash]; ok && (old.shared || !bytes.Equal(b.Repr()[old.key:old.keyEnd], key)) {
		c.shared = true
	}
	r.changes[hash] = c
}

// find tells what the batch says of key: whether it has a change, whether that is a
// deletion, and the value in memory of the batch. If sure is false Pebble knows.
func (r *recent) find(b *pebble.Batch, key []byte) (value []byte, changed, gone, sure bool) {
	c, ok := r.changes[maphash.Bytes(r.seed, key)]
	if !ok {
		return nil, false, false, true
	}
	data := b.Repr()
	if c.shared || !bytes.Equal(data[c.key:c.keyEnd], key) {
		return nil, false, false, false
	}
	return data[c.value:c.valueEnd], true, c.gone, true
}
