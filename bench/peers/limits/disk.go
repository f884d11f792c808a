package main

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
)

// disk measures writing to a file of dir, with and without fsync.
func disk(dir string) {
	path := filepath.Join(dir, "limit.dat")
	buf := make([]byte, 1<<20)
	for i := range buf {
		buf[i] = byte(i * 2654435761 >> 13)
	}
	report("disk seq write 1 GiB + one fsync", "MB/s", 3, func() float64 { return writeFile(path, buf, 1024, true) })
	report("disk seq write 512 MiB, page cache only", "MB/s", 3, func() float64 { return writeFile(path, buf, 512, false) })
	for _, size := range []int{4 << 10, 64 << 10, 1 << 20} {
		appendAndSync(path, buf[:size])
	}
}

// writeFile writes buf so many times to a new file and returns MB/s.
func writeFile(path string, buf []byte, times int, sync bool) float64 {
	f, err := os.Create(path)
	load.Check(err)
	defer os.Remove(path)
	defer f.Close()
	start := time.Now()
	for range times {
		_, err := f.Write(buf)
		load.Check(err)
	}
	if sync {
		load.Check(f.Sync())
	}
	rate := float64(times*len(buf)) / 1e6 / time.Since(start).Seconds()
	load.Check(f.Sync())
	return rate
}

// appendAndSync measures an append that waits for its fsync, as a log does.
func appendAndSync(path string, buf []byte) {
	f, err := os.Create(path)
	load.Check(err)
	defer os.Remove(path)
	defer f.Close()
	var h load.Histogram
	start := time.Now()
	for h.N() < 400 && time.Since(start) < 6*time.Second {
		one := time.Now()
		_, err := f.Write(buf)
		load.Check(err)
		load.Check(f.Sync())
		h.Add(time.Since(one))
	}
	fmt.Printf("append %4d KiB + fsync: %.0f/s  p50 %.2f ms  p99 %.2f ms  max %.2f ms  (%d ops)\n",
		len(buf)>>10, float64(h.N())/time.Since(start).Seconds(), h.Q(.5), h.Q(.99), h.Max(), h.N())
}
