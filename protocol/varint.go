package protocol

import (
	"encoding/binary"
	"math"
	"math/bits"
)

// The readers of varints take the bytes and an index, and return the index after the
// number, which is below 0 if the bytes end early or the number does not fit.

// varint reads a zigzag varint of 32 bits.
func varint(b []byte, i int) (int32, int) {
	if i+1 < len(b) {
		u := uint32(b[i])
		if u < 0x80 {
			return int32(u>>1) ^ -int32(u&1), i + 1
		}
		if c := b[i+1]; c < 0x80 {
			u = u&0x7f | uint32(c)<<7
			return int32(u>>1) ^ -int32(u&1), i + 2
		}
	}
	u, next := uvarint32(b, i)
	return int32(u>>1) ^ -int32(u&1), next
}

// varlong reads a zigzag varint of 64 bits.
func varlong(b []byte, i int) (int64, int) {
	if i+1 < len(b) {
		u := uint64(b[i])
		if u < 0x80 {
			return int64(u>>1) ^ -int64(u&1), i + 1
		}
		if c := b[i+1]; c < 0x80 {
			u = u&0x7f | uint64(c)<<7
			return int64(u>>1) ^ -int64(u&1), i + 2
		}
	}
	u, next := uvarint64(b, i)
	return int64(u>>1) ^ -int64(u&1), next
}

// uvarint32 reads an unsigned varint of 32 bits.
func uvarint32(b []byte, i int) (uint32, int) {
	u, next := uvarint64(b, i)
	if u > math.MaxUint32 || next-i > binary.MaxVarintLen32 {
		return 0, -1
	}
	return uint32(u), next
}

// uvarint64 reads an unsigned varint of 64 bits.
func uvarint64(b []byte, i int) (uint64, int) {
	if i >= len(b) {
		return 0, -1
	}
	u, n := binary.Uvarint(b[i:])
	if n <= 0 {
		return 0, -1
	}
	return u, i + n
}

// varintLen is how many bytes a zigzag varint takes.
func varintLen(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	return (bits.Len64(u|1) + 6) / 7
}
