package keyfilter

import (
	"math/big"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func mustLine(t require.TestingT, partitions int32) Line {
	l, err := NewLine(partitions)
	require.NoError(t, err)
	return l
}

func mustBuckets(t require.TestingT, initial, count int32) Buckets {
	b, err := NewBuckets(initial, count)
	require.NoError(t, err)
	return b
}

func TestLineNeedsAPartition(t *testing.T) {
	_, err := NewLine(0)
	require.Error(t, err)
}

// TestLinePositionsAreFloors checks the bounds of positions, and the search for the
// position of a point, against arithmetic without limits.
func TestLinePositionsAreFloors(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := mustLine(t, rapid.Int32Range(1, 1<<31-1).Draw(t, "partitions"))
		n := rapid.Int64Range(1, l.Len()).Draw(t, "n")
		q := rapid.Int64Range(0, n-1).Draw(t, "q")
		floor := func(q int64) int64 {
			x := new(big.Int).Mul(big.NewInt(q), big.NewInt(l.Len()))
			return x.Div(x, big.NewInt(n)).Int64()
		}
		got := l.position(q, n)
		require.Equal(t, Interval{floor(q), floor(q + 1)}, got)
		require.Positive(t, got.Len())
		for _, point := range []int64{got.Start, got.End - 1, (got.Start + got.End) / 2} {
			require.Equal(t, q, l.positionAt(point, n), "point %d", point)
		}
	})
}

// TestLineFoldsAddedPartitions: a partition beyond the line's lies on that of its
// number modulo the line's, and what an interval covers of it says the same.
func TestLineFoldsAddedPartitions(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		l := mustLine(t, rapid.Int32Range(1, 5).Draw(t, "partitions"))
		count := rapid.Int32Range(1, 12).Draw(t, "now")
		start := rapid.Int64Range(0, l.Len()).Draw(t, "start")
		i := Interval{start, rapid.Int64Range(start, l.Len()).Draw(t, "end")}
		covered := map[int32]PartitionSlots{}
		last := int32(-1)
		for _, p := range l.AppendSlots(nil, i, count) {
			require.Greater(t, p.Partition, last, "in order, each once")
			require.Less(t, p.Start, p.End)
			last, covered[p.Partition] = p.Partition, p
		}
		for range 50 {
			p := rapid.Int32Range(0, count-1).Draw(t, "partition")
			slot := rapid.Uint16().Draw(t, "slot")
			require.Equal(t, int64(p)%int64(l.Partitions())*Slots+int64(slot), l.Point(p, slot))
			c, ok := covered[p]
			in := ok && c.Start <= int32(slot) && int32(slot) < c.End
			require.Equal(t, i.Contains(l.Point(p, slot)), in, "partition %d slot %d", p, slot)
		}
	})
}
