package bench

import (
	"fmt"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

// BenchmarkFilteredFetch reads the records of a sixteenth of the slots and decodes them;
// its unit is a pass over 100,000 records. Each pass is paired with one that reads
// everything and drops the other fifteen in the client, and cpu-gain is how many times more
// processor time, of broker and client, that takes. Three states of the broker: "first",
// nobody has read the partition with a filter; "indexed", the slot index is there but no
// decoded batch; "shared", another reader has just been there.
func BenchmarkFilteredFetch(b *testing.B) {
	t := embedded(b, nil)
	evict := evictor(b, t)
	asked := sixteenth(5)
	for _, codec := range codecs {
		data := text(b, codec, 100_000)
		want := shareOf(b, data, asked)
		for _, state := range []string{"first", "indexed", "shared"} {
			b.Run(fmt.Sprintf("codec=%s/state=%s", codec, state), func(b *testing.B) {
				topic := fill(b, t, data.stored)
				all, f := newFetcher(b, t, topic, nil), newFetcher(b, t, topic, &asked)
				dropFifteen := func() { require.Equal(b, want.records, all.decodeTo(data.records, inSixteenth(5))) }
				askForOne := func() { require.Equal(b, want.records, f.decodeTo(data.records, nil)) }
				dropFifteen() // both have their buffers from here on
				askForOne()
				var filtered, dropping time.Duration
				b.ReportAllocs()
				for b.Loop() {
					b.StopTimer()
					switch state {
					case "first":
						topic = fill(b, t, data.stored)
					case "indexed":
						evict()
					}
					all.restart(topic)
					dropping += cpuOf(b, dropFifteen)
					f.restart(topic)
					b.StartTimer()
					filtered += cpuOf(b, askForOne)
				}
				passes := float64(b.N)
				b.ReportMetric(float64(filtered)/passes/float64(want.records), "cpu-ns/wanted")
				b.ReportMetric(float64(filtered)/passes/float64(data.records), "cpu-ns/scanned")
				b.ReportMetric(float64(dropping)/float64(filtered), "cpu-gain")
				b.ReportMetric(float64(f.conn.BytesIn())/float64(b.N+1)/float64(want.records), "B/wanted")
				b.ReportMetric(float64(f.bytes)/want.budgetBytes(codec), "sent/matching")
			})
		}
	}
}

// budgetBytes is what the bytes sent are measured by: the matching records' bytes, of the
// stored batches' where a codec made them smaller, and 61 for each batch.
func (s share) budgetBytes(codec protocol.Codec) float64 {
	records := s.stored
	if codec == protocol.CodecNone {
		records = float64(s.bytes)
	}
	return records + float64(protocol.BatchHeaderLen*s.batches)
}

// inSixteenth tells whether a record's slot is in one of 16 equal ranges.
func inSixteenth(i uint16) func(*kgo.Record) bool {
	return func(r *kgo.Record) bool { return keyfilter.Slot(r.Key, r.Offset)/4096 == i }
}

// cpuOf is the processor time that do takes, the garbage of those before it apart.
func cpuOf(tb testing.TB, do func()) time.Duration {
	runtime.GC()
	start := cpu(tb)
	do()
	return cpu(tb) - start
}

// evictor returns a function that reads so much else that no decoded batch is kept.
func evictor(tb testing.TB, t *target) func() {
	other := text(tb, protocol.CodecNone, 800_000) // 100 MB, above the cache's 64 MiB
	topic := fill(tb, t, other.stored)
	asked := sixteenth(0)
	f := newFetcher(tb, t, topic, &asked)
	return func() {
		f.restart(topic)
		f.readTo(other.records)
	}
}

// Of each batch the matching records are sent and a header, not a byte more; and where a
// codec has to compress them anew, they take little more than they took among the others.
func TestAFilteredFetchSendsLittleElse(t *testing.T) {
	target := embedded(t, inMemory)
	for _, codec := range codecs {
		t.Run("codec="+codec.String(), func(t *testing.T) {
			data := text(t, codec, 4_000)
			topic := fill(t, target, data.stored)
			for _, i := range []int{0, 5, 15} {
				asked := sixteenth(i)
				want := shareOf(t, data, asked)
				f := newFetcher(t, target, topic, &asked)
				require.Equal(t, want.records, f.decodeTo(data.records, inSixteenth(uint16(i))))
				require.Equal(t, want.records, f.records, "nothing but what is wanted")
				require.Equal(t, want.batches, f.batches)
				if codec == protocol.CodecNone {
					require.Equal(t, want.bytes+protocol.BatchHeaderLen*want.batches, f.bytes)
				}
				require.Less(t, float64(f.bytes)/want.budgetBytes(codec), 1.8)
			}
		})
	}
}

// A filter that wants all sends the batches as they are stored.
func TestAFilterOfAllSlotsSendsWhatIsStored(t *testing.T) {
	target := embedded(t, inMemory)
	data := text(t, protocol.CodecZstd, 5_000)
	topic := fill(t, target, data.stored)
	all := protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 0, Hi: 65535}}}
	filtered, plain := newFetcher(t, target, topic, &all), newFetcher(t, target, topic, nil)
	filtered.readTo(data.records)
	plain.readTo(data.records)
	require.Equal(t, plain.bytes, filtered.bytes)
	require.Equal(t, data.records, filtered.records)
}
