package assignor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/keyfilter"
)

// TestUnitsAreWhereLinearHashingHasThem: a slot of a partition belongs to the bucket of
// keyfilter on the topic's own line, to the one whose area has its unit, and to the one whose
// slots name it, which are all the same.
func TestUnitsAreWhereLinearHashingHasThem(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		initial := rapid.OneOf(rapid.Int32Range(1, 9), rapid.Int32Range(1, 300)).Draw(t, "initial")
		partitions := rapid.OneOf(rapid.Int32Range(1, 9), rapid.Int32Range(1, 300)).Draw(t, "partitions")
		now := partitions + rapid.Int32Range(0, 5).Draw(t, "added")
		g := &Group{Initial: initial, Topics: map[string]Topic{"in": {Partitions: now, Fold: partitions}}}
		buckets, err := keyfilter.NewBuckets(initial, initial+rapid.Int32Range(0, 40).Draw(t, "split"))
		require.NoError(t, err)
		line, err := keyfilter.NewLine(partitions)
		require.NoError(t, err)
		var all Area
		for bucket := range buckets.Count() {
			area := g.bucket(buckets, bucket)
			require.True(t, all.Intersect(area).Empty(), "bucket %d overlaps another", bucket)
			all = all.Union(area)
		}
		require.Equal(t, Area{{0, int64(initial) * UnitsPerBucket}}, all)
		for range 30 {
			partition := rapid.Int32Range(0, now-1).Draw(t, "partition")
			slot := rapid.Uint16().Draw(t, "slot")
			bucket := buckets.At(line.Point(partition, slot), line)
			unit := g.Unit("in", partition, slot)
			for other := range buckets.Count() {
				area := g.bucket(buckets, other)
				require.Equal(t, other == bucket, area.Contains(unit), "unit %d of bucket %d in %d: %v", unit, bucket, other, area)
			}
			require.Equal(t, 1, times(g.Slots("in", g.bucket(buckets, bucket)), partition, slot))
			require.Equal(t, 1, times(g.Slots("in", all), partition, slot))
		}
	})
}

// times counts how often a slot is named.
func times(slots []Slots, partition int32, slot uint16) (n int) {
	for _, s := range slots {
		if s.Partition == partition && s.Lo <= slot && slot <= s.Hi {
			n++
		}
	}
	return n
}

// TestSlotsOfAnyArea: any area, as there are between two plans, has just the slots whose units
// it has.
func TestSlotsOfAnyArea(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := &Group{Initial: rapid.Int32Range(1, 7).Draw(t, "initial")}
		fold := rapid.Int32Range(1, 7).Draw(t, "fold")
		now := fold * rapid.Int32Range(1, 3).Draw(t, "times")
		g.Topics = map[string]Topic{"in": {Partitions: now, Fold: fold}}
		bound := rapid.Int64Range(0, int64(g.Initial)*UnitsPerBucket)
		x, y := bound.Draw(t, "x"), bound.Draw(t, "y")
		area := NewArea(Span{min(x, y), max(x, y)}, Span{x / 3, y / 3})
		slots := g.Slots("in", area)
		for range 50 {
			partition, slot := rapid.Int32Range(0, now-1).Draw(t, "partition"), rapid.Uint16().Draw(t, "slot")
			want := 0
			if area.Contains(g.Unit("in", partition, slot)) {
				want = 1
			}
			require.Equal(t, want, times(slots, partition, slot), "%v: %v", area, slots)
		}
	})
}

func TestATopicThatTheGroupDoesNotKnow(t *testing.T) {
	g := &Group{Initial: 3}
	require.Empty(t, g.Slots("in", g.all()))
	require.EqualValues(t, -1, g.Unit("in", 0, 0))
}

func TestLimitIsThatOfTheNarrowestLine(t *testing.T) {
	g := &Group{Initial: 3, Topics: map[string]Topic{"wide": {Fold: 12}, "narrow": {Partitions: 3, Fold: 1}}}
	require.EqualValues(t, 3<<14, g.limit())
	delete(g.Topics, "narrow")
	require.EqualValues(t, 3<<16, g.limit(), "a bucket is never less than a unit")
	g = &Group{Initial: 70000, Topics: map[string]Topic{"narrow": {Fold: 1}}}
	require.EqualValues(t, 70000, g.limit(), "never below the initial ones")
}
