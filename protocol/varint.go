package protocol

import "encoding/binary"

// varint reads a zigzag varint of 32 bits at b[i] and returns the index after it,
// which is below 0 if the bytes end early or the number does not fit.
func varint(b []byte, i int) (int32, int) {
	if i < len(b) && b[i] < 0x80 {
		return int32(b[i]>>1) ^ -int32(b[i]&1), i + 1
	}
	return varintSlow(b, i)
}

func varintSlow(b []byte, i int) (int32, int) {
	u, next := uvarint32(b, i)
	return int32(u>>1) ^ -int32(u&1), next
}

// uvarint32 reads an unsigned varint of 32 bits at b[i]; the index after it is below
// 0 if the bytes end early or the number does not fit.
func uvarint32(b []byte, i int) (uint32, int) {
	var u uint32
	for shift := 0; shift < 35; shift += 7 {
		if i >= len(b) {
			return 0, -1
		}
		c := b[i]
		i++
		if shift == 28 && c > 0x0f {
			return 0, -1
		}
		u |= uint32(c&0x7f) << shift
		if c < 0x80 {
			return u, i
		}
	}
	return 0, -1
}

// varlong is varint for 64 bits.
func varlong(b []byte, i int) (int64, int) {
	if i < len(b) && b[i] < 0x80 {
		return int64(b[i]>>1) ^ -int64(b[i]&1), i + 1
	}
	return varlongSlow(b, i)
}

func varlongSlow(b []byte, i int) (int64, int) {
	if i >= len(b) {
		return 0, -1
	}
	u, n := binary.Uvarint(b[i:])
	if n <= 0 {
		return 0, -1
	}
	return int64(u>>1) ^ -int64(u&1), i + n
}

// appendVarint appends a zigzag varint; the 32 bit and the 64 bit form of a number
// are the same bytes.
func appendVarint(dst []byte, v int64) []byte {
	return binary.AppendVarint(dst, v)
}

// varintLen is how many bytes appendVarint writes.
func varintLen(v int64) int {
	u := uint64(v<<1) ^ uint64(v>>63)
	n := 1
	for u >= 0x80 {
		u >>= 7
		n++
	}
	return n
}
