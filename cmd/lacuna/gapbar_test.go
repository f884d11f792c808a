package main

import (
	"math"
	"testing"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestGapBarDrawsOneCellPerOffsetOfASmallWindow(t *testing.T) {
	b := newGapBar(10, 20, 80)
	b.addOpen(client.Run{Start: 10, End: 11})
	b.addOpen(client.Run{Start: 14, End: 16})
	require.Equal(t, ".###..####", b.draw(asciiShades))
}

func TestGapBarShowsASingleOpenOffsetAmongManyCommitted(t *testing.T) {
	b := newGapBar(0, 10_000_000, 10)
	b.addOpen(client.Run{Start: 4_500_000, End: 4_500_001})
	require.Equal(t, "####+#####", b.draw(asciiShades))
}

func TestGapBarShowsASingleCommittedOffsetAmongManyOpen(t *testing.T) {
	b := newGapBar(0, 10_000_000, 10)
	b.addOpen(client.Run{Start: 0, End: 4_500_000})
	b.addOpen(client.Run{Start: 4_500_001, End: 10_000_000})
	require.Equal(t, "....-.....", b.draw(asciiShades))
}

func TestGapBarShadesByTheOpenShare(t *testing.T) {
	b := newGapBar(0, 500, 5) // cells of 100
	for cell, open := range []int64{0, 33, 60, 90, 100} {
		start := int64(cell) * 100
		b.addOpen(client.Run{Start: start, End: start + open})
	}
	require.Equal(t, "#+=-.", b.draw(asciiShades))
}

func TestGapBarOfNothingIsEmpty(t *testing.T) {
	b := newGapBar(7, 7, 80)
	b.addOpen(client.Run{Start: 0, End: 100})
	require.Empty(t, b.draw(blockShades))
}

func TestGapBarNearTheHighestOffset(t *testing.T) {
	b := newGapBar(0, math.MaxInt64, 3)
	b.addOpen(client.Run{Start: math.MaxInt64 - 1, End: math.MaxInt64})
	require.Equal(t, "##+", b.draw(asciiShades))
}

// Every open offset is counted in exactly the cell that it lies in.
func TestGapBarCountsEveryOffsetOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		start := rapid.Int64Range(0, 1000).Draw(t, "start")
		n := rapid.Int64Range(1, 300).Draw(t, "offsets")
		b := newGapBar(start, start+n, rapid.IntRange(1, 100).Draw(t, "width"))
		want := make([]int64, len(b.open))
		at := start - 5
		for range rapid.IntRange(0, 20).Draw(t, "runs") {
			from := at + rapid.Int64Range(1, 20).Draw(t, "skip")
			at = from + rapid.Int64Range(1, 50).Draw(t, "length")
			b.addOpen(client.Run{Start: from, End: at})
			for o := max(from, start); o < min(at, start+n); o++ {
				for i := range want {
					if b.cellStart(i) <= o && o < b.cellStart(i+1) {
						want[i]++
					}
				}
			}
		}
		require.Equal(t, want, b.open)
	})
}
