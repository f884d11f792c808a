package bench

import (
	"fmt"
	"strconv"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/protocol"
)

// BenchmarkRareKey finds the records of one key of a million among 1,000,000, or 10 times
// that in a long run. "saved" is a broker that has just started and finds the slot indexes
// on its disk, "warm" one that has them in memory.
func BenchmarkRareKey(b *testing.B) {
	records := 1_000_000
	if long() {
		records *= 10
	}
	t := embedded(b, smallSegments)
	data := text(b, protocol.CodecLz4, records)
	topic := fill(b, t, sealed(b, data))
	asked := protocol.KeyFilter{Keys: [][]byte{keyOf(nil, 4711)}}
	want := shareOf(b, data, asked)
	newFetcher(b, t, topic, &asked).readTo(data.records)
	for _, index := range []string{"saved", "warm"} {
		b.Run(fmt.Sprintf("records=%d/index=%s", records, index), func(b *testing.B) {
			var f *fetcher
			decoded := 0
			b.ReportAllocs()
			for b.Loop() {
				b.StopTimer()
				if index == "saved" {
					t.stop()
					t.start()
				}
				f = newFetcher(b, t, topic, &asked)
				before := t.batchesDecoded()
				b.StartTimer()
				f.readTo(data.records)
				b.StopTimer()
				decoded = t.batchesDecoded() - before
				b.StartTimer()
			}
			b.ReportMetric(float64(f.records), "found")
			b.ReportMetric(float64(decoded), "decodes")
			b.ReportMetric(float64(want.mayHold), "may-hold-it")
			b.ReportMetric(float64(len(data.stored)), "batches")
		})
	}
}

// Only batches that hold a record of the key's slot are decoded, also by a broker that has
// just started, once the partition has been read with a filter.
func TestARareKeyDecodesOnlyWhereItMayBe(t *testing.T) {
	target := embedded(t, func(c *broker.Config) {
		inMemory(c)
		smallSegments(c)
	})
	data := text(t, protocol.CodecLz4, 40_000)
	topic := fill(t, target, sealed(t, data))
	asked := protocol.KeyFilter{Keys: [][]byte{keyOf(nil, 4711)}}
	want := shareOf(t, data, asked)
	require.Equal(t, 1, want.records)
	find := func() (decoded int) {
		before := target.batchesDecoded()
		f := newFetcher(t, target, topic, &asked)
		f.readTo(data.records + 1)
		require.Equal(t, want.records, f.records)
		return target.batchesDecoded() - before
	}
	require.Equal(t, len(data.stored)+1, find(), "the first read looks at everything")
	require.Zero(t, find(), "what it found is still decoded")

	target.stop()
	target.start()
	require.Equal(t, want.mayHold+1, find(), "one more in the active segment, whose index is not saved")
}

const segmentBytes = 1 << 20

// smallSegments has a log roll every MiB, since the slot indexes of sealed segments are
// the ones that are saved.
func smallSegments(c *broker.Config) {
	c.Settings["log.segment.bytes"] = strconv.Itoa(segmentBytes)
	c.Settings["message.max.bytes"] = strconv.Itoa(segmentBytes)
}

// sealed appends one record that fills a segment of its own, so that those before it are
// sealed.
func sealed(tb testing.TB, b *batches) [][]byte {
	tb.Helper()
	var build protocol.BatchBuilder
	build.Reset(protocol.PlainBatch(0))
	build.Append([]byte("the last"), make([]byte, segmentBytes-1024), nil, 1_700_000_000_000)
	last, err := build.Build(nil)
	require.NoError(tb, err)
	return append(b.stored[:len(b.stored):len(b.stored)], last)
}
