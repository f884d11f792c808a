package keyfilter

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
)

// Slots is how many key slots there are.
const Slots = 1 << 16

// Hash is the xxHash64, seed 0, of a record's key. A nil key is a null one and takes
// the hash of its record's offset, 8 bytes big endian, so that ranges which cover all
// slots cover every record exactly once; an empty key is a key like any other.
func Hash(key []byte, offset int64) uint64 {
	if key == nil {
		var b [8]byte
		binary.BigEndian.PutUint64(b[:], uint64(offset))
		return xxhash.Sum64(b[:])
	}
	return xxhash.Sum64(key)
}

// Slot is the key slot of a record: the top 16 bits of its Hash. Kafka's murmur2
// would not do, since the keys of one partition agree on it modulo the partition
// count.
func Slot(key []byte, offset int64) uint16 {
	return uint16(Hash(key, offset) >> 48)
}
