package main

import (
	"encoding/binary"

	"github.com/cespare/xxhash/v2"
	"github.com/lacunamq/lacuna/bench/peers/load"
)

func murmur2(data []byte) uint32 {
	const m, r = 0x5bd1e995, 24
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for len(data) >= 4 {
		k := binary.LittleEndian.Uint32(data)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

// hashes measures the hash functions of keys.
func hashes() {
	keys := load.NewKeys(4096, false)
	report("xxhash64 of a 12-byte key", "ns/key", 5, perOp(5e6, func(n int) {
		for i := 0; i < n; i++ {
			sink += xxhash.Sum64(keys.Key(i & 4095))
		}
	}))
	report("murmur2 of a 12-byte key", "ns/key", 5, perOp(5e6, func(n int) {
		for i := 0; i < n; i++ {
			sink += uint64(murmur2(keys.Key(i & 4095)))
		}
	}))
}
