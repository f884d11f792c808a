package commitlog

import (
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// Where compaction has left nothing of a segment there is a hole, which is read over from
// before it, from its first offset, and from within.
func TestReadOverAHoleBetweenSegments(t *testing.T) {
	o := testOptions(vfs.NewMem())
	o.Now = nil
	o.Config.SegmentBytes = 400
	l := openTest(t, o)
	produceMany(t, l, 1, 20)
	list := *l.segments.Load()
	require.Greater(t, len(list), 4)
	hole, behind := list[1], list[2]
	holed := slices.Delete(slices.Clone(list), 1, 2)
	l.segments.Store(&holed)
	defer l.segments.Store(&list)
	for _, from := range []int64{0, hole.base, hole.base + 1, behind.base} {
		r, err := l.Read(nil, from, ReadOptions{MaxBytes: 1 << 20, UpTo: l.Bounds().HighWatermark, MinOne: true})
		require.NoError(t, err, "from %d", from)
		require.Equal(t, l.Bounds().HighWatermark, r.Next)
		require.NotEmpty(t, r.Data)
		var end int64
		require.NoError(t, l.ScanHeaders(from, func(_ SegmentInfo, _ int64, h *protocol.BatchHeader) bool {
			end = h.NextOffset()
			return true
		}))
		require.Equal(t, l.Bounds().HighWatermark, end)
		if from < behind.base { // as a filtered fetch comes to it
			read, err := l.Read(nil, behind.base, ReadOptions{MaxBytes: 1, UpTo: l.Bounds().HighWatermark, MinOne: true})
			require.NoError(t, err)
			require.NoError(t, l.CheckBatch(behind.info(), read.Data, from, true))
		}
	}
	r, err := l.Read(nil, hole.base, ReadOptions{MaxBytes: 1 << 20, UpTo: hole.base + 1, MinOne: true})
	require.NoError(t, err)
	require.Equal(t, hole.base+1, r.Next)
	require.Empty(t, r.Data)
}
