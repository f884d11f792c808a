package commitlog

import (
	"bytes"
	"fmt"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// benchBatch is a batch of about size bytes of 100 byte values with 12 byte keys.
func benchBatch(b *testing.B, size int) []byte {
	b.Helper()
	var bb protocol.BatchBuilder
	bb.Reset(protocol.PlainBatch(0))
	value := bytes.Repeat([]byte("v"), 100)
	for i := 0; bb.Size() < size; i++ {
		bb.Append(fmt.Appendf(nil, "key-%08d", i), value, nil, time.Now().UnixMilli())
	}
	batch, err := bb.Build(nil)
	require.NoError(b, err)
	return batch
}

func benchOptions(b *testing.B, disk, fsync bool) Options {
	b.Helper()
	o := Options{FS: vfs.NewMem(), Dir: "bench", Name: "bench-0", Fsync: fsync, Config: DefaultConfig()}
	o.Config.SegmentBytes = 256 << 20
	o.Config.RetentionBytes = 512 << 20
	if disk {
		o.FS, o.Dir = vfs.Default, b.TempDir()+"/bench-0"
	}
	return o
}

func openBench(b *testing.B, o Options) *Log {
	b.Helper()
	l, err := Open(o)
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	return l
}

// cpuNs is the CPU time that the process has used. Unlike the wall clock it does not
// tell what else the machine does.
func cpuNs() int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0
	}
	return u.Utime.Nano() + u.Stime.Nano()
}

// reportRecords reports the costs per record since the timer was reset at cpu.
func reportRecords(b *testing.B, cpu int64, records int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(records), "ns/record")
	b.ReportMetric(float64(cpuNs()-cpu)/float64(records), "cpu-ns/record")
}

func BenchmarkAppend(b *testing.B) {
	for _, disk := range []bool{false, true} {
		for _, size := range []int{1 << 10, 16 << 10} {
			b.Run(fmt.Sprintf("disk=%v/batch=%d", disk, size), func(b *testing.B) {
				l := openBench(b, benchOptions(b, disk, false))
				batch := benchBatch(b, size)
				h, err := protocol.ParseBatchHeader(batch)
				require.NoError(b, err)
				b.SetBytes(int64(len(batch)))
				b.ReportAllocs()
				b.ResetTimer()
				cpu := cpuNs()
				for i := range b.N {
					if _, err := l.Append(batch, AppendOptions{Header: &h}); err != nil {
						b.Fatal(err)
					}
					if i%(128<<20/size) == 0 {
						require.NoError(b, l.ApplyRetention(time.Now()))
					}
				}
				reportRecords(b, cpu, b.N*int(h.NumRecords))
			})
		}
	}
}

// BenchmarkGroupCommit appends from many producers, each waiting for its batch to be
// durable.
func BenchmarkGroupCommit(b *testing.B) {
	for _, producers := range []int{1, 8, 64} {
		b.Run(fmt.Sprintf("producers=%d/batch=16384", producers), func(b *testing.B) {
			l := openBench(b, benchOptions(b, true, true))
			batch := benchBatch(b, 16<<10)
			h, err := protocol.ParseBatchHeader(batch)
			require.NoError(b, err)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			b.ResetTimer()
			cpu := cpuNs()
			work := make(chan struct{})
			var wg sync.WaitGroup
			for range producers {
				wg.Go(func() {
					mine := bytes.Clone(batch)
					for range work {
						a, err := l.Append(mine, AppendOptions{Header: &h})
						if err != nil {
							b.Error(err)
							continue
						}
						<-a.Flush.Done()
					}
				})
			}
			for range b.N {
				work <- struct{}{}
			}
			close(work)
			wg.Wait()
			reportRecords(b, cpu, b.N*int(h.NumRecords))
		})
	}
}

// filled is a log with n batches of the size.
func filled(b *testing.B, o Options, n, size int) *Log {
	b.Helper()
	l := openBench(b, o)
	batch := benchBatch(b, size)
	for range n {
		_, err := l.Append(batch, AppendOptions{})
		require.NoError(b, err)
	}
	require.NoError(b, l.Flush(b.Context()))
	return l
}

func BenchmarkRead(b *testing.B) {
	for _, disk := range []bool{false, true} {
		for _, size := range []int{1 << 10, 16 << 10} {
			for _, fetch := range []int{256 << 10, 1 << 20} {
				b.Run(fmt.Sprintf("disk=%v/batch=%d/fetch=%d", disk, size, fetch), func(b *testing.B) {
					benchRead(b, filled(b, benchOptions(b, disk, true), 100<<20/size, size), fetch)
				})
			}
		}
	}
}

// benchRead reads the log from its start to its end, over and over.
func benchRead(b *testing.B, l *Log, fetch int) {
	end := l.Bounds().HighWatermark
	buf := make([]byte, 0, 2*fetch)
	next, total := int64(0), 0
	b.SetBytes(int64(fetch))
	b.ReportAllocs()
	b.ResetTimer()
	cpu := cpuNs()
	for range b.N {
		r, err := l.Read(buf[:0], next, ReadOptions{MaxBytes: fetch, UpTo: end, MinOne: true})
		if err != nil {
			b.Fatal(err)
		}
		total += int(r.Next - next)
		next = r.Next
		if next == end {
			next = 0
		}
	}
	reportRecords(b, cpu, total)
}

// BenchmarkRecovery opens a log of 100 MiB that was not closed.
func BenchmarkRecovery(b *testing.B) {
	o := benchOptions(b, true, true)
	o.checkpointBytes = 1 << 40
	l := filled(b, o, 100<<20/(16<<10), 16<<10)
	require.NoError(b, l.Flush(b.Context()))
	o.Unclean = true
	b.SetBytes(100 << 20)
	for range b.N {
		again, err := Open(o)
		require.NoError(b, err)
		require.Equal(b, l.Bounds().End, again.Bounds().End)
		require.NoError(b, again.closeFiles())
	}
}

// BenchmarkOpen opens a log that was closed cleanly.
func BenchmarkOpen(b *testing.B) {
	for _, segments := range []int{1, 10} {
		b.Run(fmt.Sprintf("segments=%d", segments), func(b *testing.B) {
			o := benchOptions(b, true, true)
			l, err := Open(o)
			require.NoError(b, err)
			for range segments {
				_, err := l.Append(benchBatch(b, 1<<10), AppendOptions{})
				require.NoError(b, err)
				require.NoError(b, l.Seal())
			}
			require.NoError(b, l.Close())
			b.ReportAllocs()
			for range b.N {
				l, err := Open(o)
				if err != nil {
					b.Fatal(err)
				}
				if err := l.Close(); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// BenchmarkClean compacts 10 segments of 1 MiB, 9 records in 10 of which are outdated.
func BenchmarkClean(b *testing.B) {
	var bytesIn int64
	for range b.N {
		b.StopTimer()
		o := benchOptions(b, true, false)
		o.Config.Compact, o.Config.SegmentBytes, o.Config.MinCleanableRatio = true, 1<<20, 0
		l, err := Open(o)
		require.NoError(b, err)
		for range 11 {
			batch := benchBatch(b, 900<<10)
			_, err := l.Append(batch, AppendOptions{Internal: true})
			require.NoError(b, err)
		}
		require.NoError(b, l.Flush(b.Context()))
		b.StartTimer()
		done, err := l.Clean(time.Now())
		b.StopTimer()
		require.NoError(b, err)
		require.Less(b, done.BytesAfter, done.BytesBefore/5)
		bytesIn = done.BytesBefore
		require.NoError(b, l.Remove())
		b.StartTimer()
	}
	b.SetBytes(bytesIn)
}
