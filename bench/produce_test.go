package bench

import (
	"fmt"
	"testing"

	"github.com/lacunamq/lacuna/protocol"
)

// BenchmarkProduce produces batches of 16 KiB with acks=all; its unit is a batch. Every
// producer has 5 requests under way.
func BenchmarkProduce(b *testing.B) {
	data := text(b, protocol.CodecNone, 1)
	for _, fsync := range []string{"on", "off"} {
		b.Run("fsync="+fsync, func(b *testing.B) {
			t := anyTarget(b, fsync == "on")
			for _, n := range []int{1, 64} {
				for _, partitions := range []int32{1, 8} {
					b.Run(fmt.Sprintf("producers=%d/partitions=%d", n, partitions), func(b *testing.B) {
						ps := newProducers(b, t, n, partitions, data.stored[0])
						b.SetBytes(int64(len(data.stored[0])))
						b.ReportAllocs()
						b.ResetTimer()
						start := cpu(b)
						ps.produce(b, b.N)
						records := float64(b.N * data.records)
						b.ReportMetric(records/b.Elapsed().Seconds(), "records/s")
						b.ReportMetric(float64(cpu(b)-start)/records, "cpu-ns/record")
					})
				}
			}
		})
	}
}
