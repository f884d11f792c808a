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
				var filtered, dropping time.Duration
				decoded := 0
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					r := sixteenReaders{b, t, fill(b, t, data.stored), data.records}
					if records <= 100_000 {
						dropping += cpuOf(b, func() { r.dropping() })
					}
					before := t.batchesDecoded()
					b.StartTimer()
					filtered += cpuOf(b, func() { r.filtered() })
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

// sixteenReaders read a topic at once and decode the records, each of them for a sixteenth
// of the slots.
type sixteenReaders struct {
	tb    testing.TB
	t     *target
	topic string
	end   int
}

// filtered has the broker send what is theirs.
func (s *sixteenReaders) filtered() {
	s.read(func(i int) int {
		asked := sixteenth(i)
		return newFetcher(s.tb, s.t, s.topic, &asked).decodeTo(s.end, nil)
	})
}

// dropping has them read everything.
func (s *sixteenReaders) dropping() {
	s.read(func(i int) int {
		return newFetcher(s.tb, s.t, s.topic, nil).decodeTo(s.end, inSixteenth(uint16(i)))
	})
}

// read checks that together they get every record.
func (s *sixteenReaders) read(one func(i int) int) {
	var records atomic.Int64
	var wg sync.WaitGroup
	for i := range 16 {
		wg.Go(func() { records.Add(int64(one(i))) })
	}
	wg.Wait()
	require.Equal(s.tb, int64(s.end), records.Load())
}

func TestSixteenReadersDecodeEachBatchOnce(t *testing.T) {
	target := embedded(t, inMemory)
	for _, codec := range []protocol.Codec{protocol.CodecNone, protocol.CodecLz4} {
		t.Run(fmt.Sprintf("codec=%s", codec), func(t *testing.T) {
			data := text(t, codec, 8_000)
			r := sixteenReaders{t, target, fill(t, target, data.stored), data.records}
			before := target.batchesDecoded()
			r.filtered()
			require.Equal(t, len(data.stored), target.batchesDecoded()-before)
		})
	}
}
