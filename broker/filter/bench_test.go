package filter

import (
	"fmt"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

// benchRecords is about how many records the logs of benchmarks have: 1 million, or 10
// with LACUNA_LONG.
func benchRecords() int {
	if os.Getenv("LACUNA_LONG") != "" {
		return 10_000_000
	}
	return 1_000_000
}

// benchLog is a log on disk of batches of 16 KiB before compression: records of 100
// bytes with a key of 12, a million keys.
func benchLog(b *testing.B, codec protocol.Codec, records int) *commitlog.Log {
	config := commitlog.DefaultConfig()
	config.SegmentBytes = 256 << 20
	dir := b.TempDir()
	l, err := commitlog.Open(commitlog.Options{FS: vfs.Default, Dir: dir + "/orders-0", Name: "orders-0", Config: config, Now: time.Now})
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, l.Close()) })
	var build protocol.BatchBuilder
	words := []byte("order placed by customer, quantity and price as agreed, to be shipped from the warehouse nearby ")
	for n := 0; n < records; {
		o := protocol.PlainBatch(0)
		o.Codec = codec
		build.Reset(o)
		for build.Size() < 16<<10 {
			value := fmt.Appendf(make([]byte, 0, 100), "%016x", uint64(n)*0x9E3779B97F4A7C15)
			value = append(value, words[n%8:n%8+80]...)
			build.Append(fmt.Appendf(nil, "key-%08d", uint64(n)*7919%1_000_000), value, nil, time.Now().UnixMilli())
			n++
		}
		batch, err := build.Build(nil)
		require.NoError(b, err)
		_, err = l.Append(batch, commitlog.AppendOptions{NoWait: true})
		require.NoError(b, err)
	}
	require.NoError(b, l.Seal())
	require.NoError(b, l.Flush(b.Context()))
	return l
}

var fetchBuffers = sync.Pool{New: func() any { return new([]byte) }}

// fetchToEnd reads all that the filter leaves and returns how many records and bytes
// that are.
func fetchToEnd(tb testing.TB, r *Reader, l *commitlog.Log, f *keyfilter.Filter) (records, bytes int) {
	o := Options{UpTo: l.Bounds().HighWatermark, MaxBytes: 1 << 20, MinOne: true, MaxScanBytes: 16 << 20}
	buf := fetchBuffers.Get().(*[]byte)
	defer fetchBuffers.Put(buf)
	dst := *buf
	defer func() { *buf = dst }()
	for next := int64(0); next < o.UpTo; {
		got, err := r.Fetch(l, dst[:0], next, f, o)
		if err != nil {
			tb.Fatal(err)
		}
		dst, next = got.Data, got.Next
		bytes += len(dst)
		for rest := dst; len(rest) > 0; {
			h, err := protocol.ParseBatchHeader(rest)
			if err != nil {
				tb.Fatal(err)
			}
			records += int(h.NumRecords)
			rest = rest[h.Size():]
		}
	}
	return records, bytes
}

// cpu is the processor time that this process has taken, which tells more than the clock
// on a machine that others use, too.
func cpu() time.Duration {
	var u syscall.Rusage
	if syscall.Getrusage(syscall.RUSAGE_SELF, &u) != nil {
		return 0
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkFetch reads one sixteenth of the slots: "first" has nothing to begin with,
// "indexed" has the slot index but no decoded batch, "cached" both.
func BenchmarkFetch(b *testing.B) {
	for _, codec := range codecs {
		l := benchLog(b, codec, 200_000)
		total := l.Bounds().HighWatermark
		f := mustFilter(b, share(5, 16))
		for _, state := range []string{"first", "indexed", "cached"} {
			b.Run(fmt.Sprintf("codec=%s/state=%s", codec, state), func(b *testing.B) {
				r := New(Config{DecodedCacheBytes: 4 << 20}) // far less than the log
				if state == "cached" {
					r = New(Config{DecodedCacheBytes: 1 << 30})
				}
				fetchToEnd(b, r, l, f)
				var records, bytes int
				b.ReportAllocs()
				start := cpu()
				for b.Loop() {
					if state == "first" {
						r.Forget(l)
					}
					records, bytes = fetchToEnd(b, r, l, f)
				}
				perOp := float64(cpu()-start) / float64(b.N)
				b.ReportMetric(perOp/float64(total), "cpu-ns/scanned")
				b.ReportMetric(perOp/float64(records), "cpu-ns/wanted")
				b.ReportMetric(float64(bytes)/float64(records), "B/wanted")
			})
		}
	}
}

// BenchmarkSixteenReaders share out a partition; the time is for all of them.
func BenchmarkSixteenReaders(b *testing.B) {
	for _, codec := range []protocol.Codec{protocol.CodecNone, protocol.CodecLz4, protocol.CodecZstd} {
		b.Run("codec="+codec.String(), func(b *testing.B) {
			l := benchLog(b, codec, 200_000)
			total := l.Bounds().HighWatermark
			var decoded int64
			r := New(Config{})
			b.ReportAllocs()
			start := cpu()
			for b.Loop() {
				r.Forget(l)
				before := r.Stats().BatchesDecoded
				var wg sync.WaitGroup
				for i := range 16 {
					wg.Go(func() { fetchToEnd(b, r, l, mustFilter(b, share(i, 16))) })
				}
				wg.Wait()
				decoded = r.Stats().BatchesDecoded - before
			}
			b.ReportMetric(float64(cpu()-start)/float64(b.N)/float64(total), "cpu-ns/record")
			b.ReportMetric(float64(decoded), "decodes")
		})
	}
}

// BenchmarkRareKey finds one key of a million in a log of 1 or 10 million records whose
// slot indexes are saved, from a cold start of the reader and from a warm one.
func BenchmarkRareKey(b *testing.B) {
	l := benchLog(b, protocol.CodecLz4, benchRecords())
	f := mustFilter(b, protocol.KeyFilter{Keys: [][]byte{[]byte("key-00004711")}})
	warm := New(Config{})
	start := time.Now()
	fetchToEnd(b, warm, l, f)
	build := time.Since(start)
	warm.SaveIndexes(b.Context())
	for _, state := range []string{"saved", "warm"} {
		b.Run(fmt.Sprintf("records=%d/index=%s", l.Bounds().End, state), func(b *testing.B) {
			var s, before Stats
			var found int
			b.ReportAllocs()
			for b.Loop() {
				r := New(Config{})
				if state == "warm" {
					r = warm
				}
				before = r.Stats()
				found, _ = fetchToEnd(b, r, l, f)
				s = r.Stats()
			}
			b.ReportMetric(float64(found), "found")
			b.ReportMetric(float64(s.BatchesDecoded-before.BatchesDecoded), "decoded")
			b.ReportMetric(float64(s.SegmentReadBytes-before.SegmentReadBytes), "read-B")
			b.ReportMetric(build.Seconds()*1e3, "build-ms")
		})
	}
}

// BenchmarkTail appends a batch of one record and has a reader of another key come for
// it: what each append costs a reader who waits at the end.
func BenchmarkTail(b *testing.B) {
	l := openLog(b, 1<<30)
	r := New(Config{})
	f := mustFilter(b, protocol.KeyFilter{Keys: [][]byte{[]byte("somebody else")}})
	b.ReportAllocs()
	next := int64(0)
	for b.Loop() {
		b.StopTimer()
		l.appendRecords(protocol.CodecNone, record{[]byte("key"), []byte("value")})
		b.StartTimer()
		got, err := r.Fetch(l, nil, next, f, Options{UpTo: next + 1, MaxBytes: 1 << 20})
		if err != nil {
			b.Fatal(err)
		}
		next = got.Next
	}
}
