package bench

import (
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// BenchmarkSixteenReaders has 16 readers share a partition that nobody has read before;
// its unit is a pass of all of them. The broker keeps some 300,000 of these records
// decoded, more without a codec: beyond that a batch is decoded once as long as the
// readers stay together. Where there are less, the pass is paired with one in which all 16
// read everything and drop in the client what is not theirs; cpu-gain is how many times
// more processor time that takes, of broker and clients.
func BenchmarkSixteenReaders(b *testing.B) {
	t := embedded(b, nil)
	for _, codec := range []protocol.Codec{protocol.CodecNone, protocol.CodecLz4, protocol.CodecZstd} {
		for _, records := range []int{100_000, 1_000_000} {
			b.Run(fmt.Sprintf("codec=%s/records=%d", codec, records), func(b *testing.B) {
				data := text(b, codec, records)
				filters, plain := newSixteenReaders(b, t, true), newSixteenReaders(b, t, false)
				var filtered, dropping time.Duration
				decoded := 0
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					topic := fill(b, t, data.stored)
					if records <= 100_000 {
						dropping += cpuOf(b, func() { plain.read(topic, data.records) })
					}
					before := t.batchesDecoded()
					b.StartTimer()
					filtered += cpuOf(b, func() { filters.read(topic, data.records) })
					decoded += t.batchesDecoded() - before
				}
				b.ReportMetric(float64(decoded)/float64(b.N*len(data.stored)), "decodes/batch")
				b.ReportMetric(float64(filtered)/float64(b.N*data.records), "cpu-ns/record")
				if dropping > 0 {
					b.ReportMetric(float64(dropping)/float64(filtered), "cpu-gain")
				}
			})
		}
	}
}

// sixteenReaders each want the records of a sixteenth of the slots.
type sixteenReaders [16]*fetcher

// newSixteenReaders connects readers that ask for what is theirs, or else drop what is not.
func newSixteenReaders(tb testing.TB, t *target, filtered bool) (s sixteenReaders) {
	for i := range s {
		var asked *protocol.KeyFilter
		if filtered {
			f := sixteenth(i)
			asked = &f
		}
		s[i] = newFetcher(tb, t, "", asked)
	}
	return s
}

// read reads a topic with all of them at once, and checks that together they get every
// record.
func (s *sixteenReaders) read(topic string, end int) {
	var records atomic.Int64
	var wg sync.WaitGroup
	for i, f := range s {
		wg.Go(func() {
			f.restart(topic)
			records.Add(int64(f.decodeTo(end, inSixteenth(uint16(i)))))
		})
	}
	wg.Wait()
	require.Equal(s[0].tb, int64(end), records.Load())
}

func TestSixteenReadersDecodeEachBatchOnce(t *testing.T) {
	target := embedded(t, inMemory)
	for _, codec := range []protocol.Codec{protocol.CodecNone, protocol.CodecLz4} {
		t.Run(fmt.Sprintf("codec=%s", codec), func(t *testing.T) {
			data := text(t, codec, 8_000)
			topic := fill(t, target, data.stored)
			readers := newSixteenReaders(t, target, true)
			before := target.batchesDecoded()
			readers.read(topic, data.records)
			require.Equal(t, len(data.stored), target.batchesDecoded()-before)
		})
	}
}
