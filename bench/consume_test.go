package bench

import (
	"fmt"
	"testing"

	"github.com/lacunamq/lacuna/protocol"
)

// BenchmarkConsume reads a partition from its beginning on, and again; its unit is a
// fetch. Answers are taken apart into batches, not into records.
func BenchmarkConsume(b *testing.B) {
	t := anyTarget(b, true)
	data := text(b, protocol.CodecNone, 200_000)
	topic := fill(b, t, data.stored)
	for _, max := range []int32{64 << 10, fetchBytes} {
		b.Run(fmt.Sprintf("max-bytes=%d", max), func(b *testing.B) {
			f := newFetcher(b, t, topic, nil)
			f.request.MaxBytes, f.request.Topics[0].Partitions[0].PartitionMaxBytes = max, max
			b.ReportAllocs()
			start := cpu(b)
			for b.Loop() {
				if f.next >= int64(data.records) {
					f.next = 0
				}
				f.fetch()
			}
			took, records := cpu(b)-start, float64(f.records)
			b.ReportMetric(float64(b.Elapsed())/records, "ns/record")
			b.ReportMetric(float64(took)/records, "cpu-ns/record")
			b.ReportMetric(float64(f.conn.BytesIn())/records, "B/record")
			b.ReportMetric(records/b.Elapsed().Seconds(), "records/s")
		})
	}
}
