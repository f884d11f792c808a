package coordinator

import "unicode/utf16"

// PartitionFor is the partition of __consumer_offsets, of n, that a group belongs to, as
// every broker and client of Kafka computes it: Java's hash of the string.
func PartitionFor(group string, n int32) int32 {
	hash := int32(0)
	for _, r := range group {
		if r < 0x10000 {
			hash = 31*hash + r
			continue
		}
		high, low := utf16.EncodeRune(r)
		hash = 31*(31*hash+high) + low
	}
	// Kafka's abs gives 0 for the number that has no positive counterpart.
	if hash == -1<<31 {
		return 0
	}
	return max(hash, -hash) % n
}
