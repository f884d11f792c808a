package cooperative

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// plainCounts are the count and the mark of each offset of a block.
type plainCounts [BlockOffsets][2]uint8

func plain(t require.TestingT, value []byte) (p plainCounts) {
	if len(value) > 0 {
		require.NoError(t, parseCountRuns(value, func(c countRun) {
			for i := range c.n {
				p[c.at+i] = [2]uint8{c.count, c.mark}
			}
		}))
	}
	return p
}

var anyCounts = rapid.Custom(func(t *rapid.T) []byte {
	var runs []countRun
	for at := 0; at < BlockOffsets; {
		c := countRun{
			at: at + rapid.IntRange(0, 300).Draw(t, "skip"), n: rapid.IntRange(1, 300).Draw(t, "length"),
			count: rapid.Uint8Min(1).Draw(t, "count"), mark: rapid.Uint8Max(markRejected).Draw(t, "mark"),
		}
		if at = c.at + c.n; at <= BlockOffsets {
			runs = append(runs, c)
		}
	}
	if len(runs) == 0 {
		runs = append(runs, countRun{n: BlockOffsets, count: 1})
	}
	return appendCountRuns(nil, runs)
})

// TestCutCounts cuts a run out of counts: the others stay as they are.
func TestCutCounts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := anyCounts.Draw(t, "counts")
		block := rapid.SampledFrom([]int64{0, 1, 1 << 40}).Draw(t, "block")
		first := block * BlockOffsets
		gone := Run{Start: first + rapid.Int64Range(-5, BlockOffsets+5).Draw(t, "start")}
		gone.End = gone.Start + rapid.SampledFrom([]int64{0, 1, 100, BlockOffsets, 1 << 60}).Draw(t, "length")
		want := plain(t, value)
		for i := range want {
			if offset := first + int64(i); gone.Start <= offset && offset < gone.End {
				want[i] = [2]uint8{}
			}
		}
		left, err := CutCounts([]byte("before"), block, value, gone)
		require.NoError(t, err)
		require.Equal(t, "before", string(left[:6]))
		require.Equal(t, want, plain(t, left[6:]))
		if want == (plainCounts{}) {
			require.Len(t, left, 6, "no counts are no value")
		}
	})
}

func FuzzCutCounts(f *testing.F) {
	f.Add([]byte{countsVersion, 2, 1, 1, 3, 0, 5, 2, 1, markRejected}, int64(2), int64(8))
	f.Add([]byte{countsVersion, 1, 0x80, 0x08, 1, 1, 0}, int64(0), int64(1))
	f.Add([]byte{}, int64(0), int64(0))
	f.Fuzz(func(t *testing.T, value []byte, start, end int64) {
		left, err := CutCounts(nil, 0, value, Run{Start: start, End: end})
		if err != nil {
			require.Empty(t, left)
			return
		}
		want := plain(t, value)
		for i := range want {
			if start <= int64(i) && int64(i) < end {
				want[i] = [2]uint8{}
			}
		}
		require.Equal(t, want, plain(t, left))
	})
}
