package protocol

import (
	"fmt"
	"hash/crc32"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// benchBatch is a batch of records of about 100 bytes: keys of 10, values of 80.
func benchBatch(b testing.TB, codec Codec, records int) (BatchHeader, []byte) {
	text := textOf(records*80+80, 21)
	var builder BatchBuilder
	o := PlainBatch(0)
	o.Codec = codec
	builder.Reset(o)
	for i := range records {
		builder.Append(fmt.Appendf(nil, "user-%05d", i%5000), text[i*80:i*80+80], nil, int64(1700000000000+i))
	}
	batch := must1(builder.Build(nil))
	return must1(ParseBatchHeader(batch)), batch
}

func perRecord(b *testing.B, records int) {
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(records), "ns/record")
}

func BenchmarkWalk(b *testing.B) {
	for _, records := range []int{1, 100, 1000} {
		b.Run(fmt.Sprintf("records=%d", records), func(b *testing.B) {
			h, batch := benchBatch(b, CodecNone, records)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				it := IterateRecords(&h, batch[BatchHeaderLen:])
				for it.Next() {
				}
				if it.Err() != nil {
					b.Fatal(it.Err())
				}
			}
			perRecord(b, records)
		})
	}
}

func BenchmarkCheckProduced(b *testing.B) {
	for _, codec := range append([]Codec{CodecNone}, compressing...) {
		for _, o := range []CheckOptions{{}, {WalkCompressed: true}} {
			for _, records := range []int{1, 100, 1000} {
				b.Run(fmt.Sprintf("codec=%s/walk=%v/records=%d", codec, o.WalkCompressed, records), func(b *testing.B) {
					_, batch := benchBatch(b, codec, records)
					b.SetBytes(int64(len(batch)))
					b.ReportAllocs()
					for b.Loop() {
						if _, err := CheckProduced(batch, o); err != nil {
							b.Fatal(err)
						}
					}
					perRecord(b, records)
				})
			}
		}
	}
}

// BenchmarkChecksum is the part of CheckProduced that no broker can do without.
func BenchmarkChecksum(b *testing.B) {
	_, batch := benchBatch(b, CodecNone, 1000)
	b.SetBytes(int64(len(batch)))
	for b.Loop() {
		crc32.Checksum(batch[crcStart:], castagnoli)
	}
	perRecord(b, 1000)
}

func BenchmarkBuild(b *testing.B) {
	for _, codec := range append([]Codec{CodecNone}, compressing...) {
		b.Run(fmt.Sprintf("codec=%s/records=1000", codec), func(b *testing.B) {
			text := textOf(1000*90, 22)
			var builder BatchBuilder
			var dst []byte
			o := PlainBatch(0)
			o.Codec = codec
			b.ReportAllocs()
			for b.Loop() {
				builder.Reset(o)
				for i := range 1000 {
					r := text[i*90 : i*90+90]
					builder.Append(r[:10], r[10:], nil, 1700000000000+int64(i))
				}
				dst = must1(builder.Build(dst[:0]))
			}
			perRecord(b, 1000)
			b.ReportMetric(float64(len(dst)), "bytes/batch")
		})
	}
}

func BenchmarkDecompress(b *testing.B) {
	for _, codec := range compressing {
		for _, records := range []int{10, 1000} {
			b.Run(fmt.Sprintf("codec=%s/records=%d", codec, records), func(b *testing.B) {
				h, batch := benchBatch(b, codec, records)
				var d Decompressor
				b.ReportAllocs()
				for b.Loop() {
					must1(d.Records(&h, batch, 1<<20))
				}
				perRecord(b, records)
			})
		}
	}
}

func BenchmarkParseRequestHeader(b *testing.B) {
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")).
		AppendRequest(nil, &kmsg.ProduceRequest{Version: 13}, 7)[FramePrefixLen:]
	b.ReportAllocs()
	for b.Loop() {
		if _, _, err := ParseRequestHeader(frame, 9); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkFetchResponse(b *testing.B) {
	for _, partitions := range []int{1, 100} {
		b.Run(fmt.Sprintf("partitions=%d", partitions), func(b *testing.B) {
			resp := kmsg.NewPtrFetchResponse()
			resp.Version = 18
			topic := kmsg.NewFetchResponseTopic()
			for i := range partitions {
				p := kmsg.NewFetchResponseTopicPartition()
				p.Partition = int32(i)
				p.RecordBatches = make([]byte, 10_000)
				topic.Partitions = append(topic.Partitions, p)
			}
			resp.Topics = append(resp.Topics, topic)
			var dst []byte
			var parts []Part
			b.ReportAllocs()
			for b.Loop() {
				dst, parts = AppendFetchResponse(dst[:0], parts[:0], resp)
			}
		})
	}
}

func BenchmarkRuns(b *testing.B) {
	for name, step := range map[string]int64{"single": 2, "long": 1000} {
		o := IndividualOffsets{Origin: NoOrigin}
		for i := range int64(10_000) {
			o.Commit = append(o.Commit, Run{Start: i * step, End: i*step + step - 1})
		}
		encoded := o.AppendTo(nil)
		b.Run("append/runs="+name, func(b *testing.B) {
			var dst []byte
			b.ReportAllocs()
			for b.Loop() {
				dst = o.AppendTo(dst[:0])
			}
			perRecord(b, 10_000)
		})
		b.Run("parse/runs="+name, func(b *testing.B) {
			var got IndividualOffsets
			b.ReportAllocs()
			for b.Loop() {
				budget := NewBudget()
				if err := got.Parse(encoded, &budget); err != nil {
					b.Fatal(err)
				}
			}
			perRecord(b, 10_000)
		})
	}
}
