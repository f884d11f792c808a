package cooperative

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/keyfilter"
)

// partitionConfig is of a partition of a topic whose line has so many, and that so many
// members share.
func partitionConfig(t *testing.T, partition, partitions int32, members int) Config {
	c := testConfig(KeyRange)
	line, err := keyfilter.NewLine(partitions)
	require.NoError(t, err)
	c.Line, c.Partition = line, partition
	a, err := keyfilter.NewAssignment(4, 1<<10)
	require.NoError(t, err)
	for i := range members {
		a = a.Join(fmt.Sprintf("m%d", i))
	}
	c.Assignment = a
	return c
}

// TestLanesAreTheBucketsOfThePartition: every slot is in the lane of its bucket's holder,
// and no lane is without slots.
func TestLanesAreTheBucketsOfThePartition(t *testing.T) {
	for _, partitions := range []int32{1, 2, 3, 7} {
		for _, members := range []int{0, 1, 5, 700} {
			for partition := range partitions + 2 { // the last two were added later
				c := partitionConfig(t, partition, partitions, members)
				d := New(c, newModel(c).ledger)
				require.NoError(t, d.CheckInvariants())
				used := map[uint32]int32{}
				for slot := range uint64(keyfilter.Slots) {
					bucket := c.Assignment.Buckets().At(c.Line.Point(partition, uint16(slot)), c.Line)
					li := d.laneOf(slot<<48 | 1)
					if known, ok := used[li]; ok && known != bucket || d.lanes[li].holderID != c.Assignment.Holder(bucket) {
						t.Fatalf("slot %d of partition %d of %d is in lane %d of %q with bucket %d, not %d",
							slot, partition, partitions, li, d.lanes[li].holderID, known, bucket)
					}
					used[li] = bucket
				}
				require.Len(t, d.lanes, len(used))
			}
		}
	}
}

// TestBucketsOfOtherPartitionsWantNothing: a partition is not read on because some buckets
// of the topic have no records in it.
func TestBucketsOfOtherPartitionsWantNothing(t *testing.T) {
	c := partitionConfig(t, 1, 2, 3)
	c.Limits.WaitingMaxBytes = 64 << 20
	x := newBench(c, uniform(100_000))
	for x.d.WantsRecords() {
		x.feed(1000)
		require.Less(t, x.d.FeedFrom(), int64(100_000), "and still wants more")
	}
}

// TestALaneThatIsBehindLeavesSomeForOthers: also of hands of one record, of which each lane
// must have some.
func TestALaneThatIsBehindLeavesSomeForOthers(t *testing.T) {
	for _, batch := range []int{1, 2, 7, 100} {
		x := newBench(benchConfig(KeyRange), nil)
		x.batch = batch
		x.keyOf = func(offset int64) Key { // of the last bucket, of which there is much, or of the three others
			if offset < 100_000 || offset%4 == 3 {
				return Key{Hash: 3<<62 | uint64(offset)}
			}
			return Key{Hash: uint64(offset%4) << 62}
		}
		x.feed(200_000)
		dealt := map[int]int{}
		for range 1000 / batch {
			x.acquire("m")
			for _, g := range x.got {
				for offset := g.Start; offset < g.End; offset++ {
					dealt[int(x.keyOf(offset).Hash>>62)]++
				}
			}
			x.acknowledge("m", Accept)
		}
		for bucket := range 4 {
			require.Greater(t, dealt[bucket], 50, "of %v, in hands of %d", dealt, batch)
		}
	}
}
