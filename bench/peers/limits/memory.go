package main

import (
	"fmt"
	"hash/crc32"
	"time"
)

// memory measures copying and checksums.
func memory() {
	for _, sz := range []int{64 << 10, 1 << 20, 256 << 20} {
		a, b := make([]byte, sz), make([]byte, sz)
		for i := range a {
			a[i] = byte(i)
		}
		copy(b, a)
		report(fmt.Sprintf("memcpy %d KiB", sz>>10), "GB/s", 5, func() float64 {
			t := time.Now()
			n := 0
			for time.Since(t) < 200*time.Millisecond {
				copy(b, a)
				n++
			}
			return float64(n) * float64(sz) / 1e9 / time.Since(t).Seconds()
		})
	}
	tab := crc32.MakeTable(crc32.Castagnoli)
	b := make([]byte, 16<<10)
	report("CRC-32C of 16 KiB", "GB/s", 5, func() float64 {
		t := time.Now()
		n := 0
		for time.Since(t) < 200*time.Millisecond {
			sink += uint64(crc32.Checksum(b, tab))
			n++
		}
		return float64(n) * 16384 / 1e9 / time.Since(t).Seconds()
	})
}
