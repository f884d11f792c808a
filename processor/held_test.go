package processor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/client"
)

// fakeLedger is what is committed.
type fakeLedger map[client.TopicPartition]map[int64]bool

func (l fakeLedger) IsCommitted(tp client.TopicPartition, offset int64) bool { return l[tp][offset] }

func (l fakeLedger) Committed(records ...*kgo.Record) (all []bool) {
	for _, r := range records {
		all = append(all, l[partitionOf(r)][r.Offset])
	}
	return all
}

// TestHeldModel: whatever is read and committed, each partition is handed over in order and
// without a gap, as far as it is committed, and no other partition holds it up.
func TestHeldModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tps := []client.TopicPartition{{Topic: "a"}, {Topic: "a", Partition: 1}, {Topic: "b"}}
		l := fakeLedger{}
		read, handed := make(map[client.TopicPartition]int64), make(map[client.TopicPartition]int64)
		for _, tp := range tps {
			l[tp] = make(map[int64]bool)
		}
		var h held
		take := func(records []*kgo.Record) {
			for _, r := range records {
				require.Equal(t, handed[partitionOf(r)], r.Offset)
				handed[partitionOf(r)]++
			}
		}
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			tp := rapid.SampledFrom(tps).Draw(t, "partition")
			switch rapid.IntRange(0, 4).Draw(t, "do") {
			case 0, 1:
				var records []*kgo.Record
				for range rapid.IntRange(0, 4).Draw(t, "records") {
					tp := rapid.SampledFrom(tps).Draw(t, "of")
					records = append(records, &kgo.Record{Topic: tp.Topic, Partition: tp.Partition, Offset: read[tp]})
					read[tp]++
				}
				h.add(records)
			case 2:
				l[tp][rapid.Int64Range(0, 12).Draw(t, "offset")] = true
			case 3:
				records := h.takeCommitted(tps, l)
				for _, r := range records {
					require.True(t, l.IsCommitted(partitionOf(r), r.Offset))
				}
				used := rapid.IntRange(0, len(records)).Draw(t, "used")
				take(records[:used])
				h.putBack(records[used:])
				if used == len(records) {
					for _, tp := range tps {
						require.False(t, handed[tp] < read[tp] && l.IsCommitted(tp, handed[tp]), "%v is held at %d", tp, handed[tp])
					}
				}
			case 4:
				next := map[client.TopicPartition]int64{tp: read[tp]}
				h.bound(next)
				require.Equal(t, map[client.TopicPartition]int64{tp: handed[tp]}, next)
			}
			n := 0
			for _, tp := range tps {
				n += int(read[tp] - handed[tp])
			}
			require.Equal(t, n, h.n)
		}
		take(h.takeAll(tps))
		require.Equal(t, read, handed)
		require.Zero(t, h.n)
	})
}
