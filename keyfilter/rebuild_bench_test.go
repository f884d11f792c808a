package keyfilter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// BenchmarkDecode is the walk and the hashes of a batch that nothing is known of.
func BenchmarkDecode(b *testing.B) {
	for _, codec := range codecs {
		b.Run(fmt.Sprintf("codec=%s", codec), func(b *testing.B) {
			batch := plainBatch(b, 0, codec, 137, 1000, 87)
			var d Decoded
			b.ReportAllocs()
			b.SetBytes(137 * 100)
			for b.Loop() {
				if err := d.Decode(batch, testDecodeLimit); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*137), "ns/record")
		})
	}
}

// BenchmarkDecodeIndexed is what a batch costs that an index knows.
func BenchmarkDecodeIndexed(b *testing.B) {
	for _, codec := range codecs {
		b.Run(fmt.Sprintf("codec=%s", codec), func(b *testing.B) {
			batch := plainBatch(b, 0, codec, 137, 1000, 87)
			x := NewSlotIndex(0, 0)
			require.NoError(b, x.Append(mustDecode(b, batch)))
			last, _ := x.Last()
			var d Decoded
			b.ReportAllocs()
			for b.Loop() {
				if err := d.DecodeIndexed(batch, testDecodeLimit, last); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*137), "ns/record")
		})
	}
}

// BenchmarkScan is what the first read of a batch costs: walk, hash, match, rebuild.
func BenchmarkScan(b *testing.B) {
	for _, codec := range codecs {
		b.Run(fmt.Sprintf("codec=%s", codec), func(b *testing.B) {
			batch := plainBatch(b, 0, codec, 137, 1000, 87)
			f := sixteenth(b, 0)
			var d Decoded
			var r Rebuilder
			var out []byte
			b.ReportAllocs()
			for b.Loop() {
				if err := d.Decode(batch, testDecodeLimit); err != nil {
					b.Fatal(err)
				}
				out, _ = r.Append(out[:0], &d, f, 0)
			}
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*137), "ns/record")
			plain := plainBatch(b, 0, protocol.CodecNone, 137, 1000, 87)
			dd := mustDecode(b, plain)
			matching, _ := r.Append(nil, dd, f, 0)
			b.ReportMetric(float64(len(out))/(float64(len(matching)-61)), "sent/matching")
			share := float64(len(matching)-61) / float64(len(plain)-61) * float64(len(batch)-61)
			b.ReportMetric(float64(len(out)-61)/share, "sent/compressed_share")
		})
	}
}

// BenchmarkRebuild is what each further reader of a decoded batch costs.
func BenchmarkRebuild(b *testing.B) {
	for _, codec := range codecs {
		for _, name := range []string{"ranges", "keys"} {
			b.Run(fmt.Sprintf("codec=%s/by=%s", codec, name), func(b *testing.B) {
				d := mustDecode(b, plainBatch(b, 0, codec, 137, 1000, 87))
				f := sixteenth(b, 0)
				if name == "keys" {
					f = mustFilter(b, protocol.KeyFilter{Keys: [][]byte{d.key(3), d.key(50)}})
				}
				var r Rebuilder
				var out []byte
				b.ReportAllocs()
				for b.Loop() {
					out, _ = r.Append(out[:0], d, f, 0)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*137), "ns/record")
			})
		}
	}
}
