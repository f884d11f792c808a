package main

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lacunamq/lacuna/bench/peers/load"
)

// pebbleCommits measures batches written to Pebble, by their size and by how many write
// at a time.
func pebbleCommits(dir string) {
	for _, sync := range []bool{true, false} {
		for _, keys := range []int{1, 100, 1000} {
			for _, writers := range []int{1, 16} {
				pebbleCommit(filepath.Join(dir, "pebble"), sync, keys, writers)
			}
		}
	}
}

func pebbleCommit(dir string, fsync bool, keys, writers int) {
	load.Check(os.RemoveAll(dir))
	defer os.RemoveAll(dir)
	db, err := pebble.Open(dir, &pebble.Options{Logger: quiet{}})
	load.Check(err)
	options := pebble.NoSync
	if fsync {
		options = pebble.Sync
	}
	var writing sync.WaitGroup
	var commits atomic.Int64
	start, cpu := time.Now(), load.SelfCPU()
	for w := range writers {
		writing.Go(func() {
			key, value := make([]byte, 16), make([]byte, 8)
			binary.BigEndian.PutUint64(key, uint64(w))
			for i := 0; time.Since(start) < 2*time.Second; i++ {
				b := db.NewBatch()
				for j := range keys {
					binary.BigEndian.PutUint64(key[8:], uint64(i*keys+j))
					load.Check(b.Set(key, value, nil))
				}
				load.Check(b.Commit(options))
				commits.Add(1)
			}
		})
	}
	writing.Wait()
	seconds, n := time.Since(start).Seconds(), float64(commits.Load())
	fmt.Printf("pebble sync=%-5v batch=%-4d writers=%-2d: %8.0f commits/s  %10.0f keys/s  %.2f us CPU/key\n",
		fsync, keys, writers, n/seconds, n*float64(keys)/seconds, (load.SelfCPU()-cpu)/(n*float64(keys))*1e6)
	load.Check(db.Close())
}

// quiet is Pebble's logger without a word.
type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(format string, args ...any) {
	panic(fmt.Sprintf(format, args...))
}
