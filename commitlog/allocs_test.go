//go:build !race

package commitlog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// TestSteadyStateAllocatesNothing: neither appends without an fsync to wait for, nor
// reads into a buffer that is large enough.
func TestSteadyStateAllocatesNothing(t *testing.T) {
	o := testOptions(vfs.Default)
	o.Dir, o.Fsync = t.TempDir()+"/orders-0", false
	o.Config.SegmentBytes = 1 << 30
	l := openTest(t, o)
	batch := plainBatch(t, 10, "value", 1000)
	h, err := protocol.ParseBatchHeader(batch)
	require.NoError(t, err)
	appendOne := func() {
		if _, err := l.Append(batch, AppendOptions{Header: &h}); err != nil {
			t.Fatal(err)
		}
	}
	for range 5000 { // the index has room for what follows
		appendOne()
	}
	require.Zero(t, testing.AllocsPerRun(1000, appendOne))

	buf, next := make([]byte, 0, 1<<20), int64(0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		r, err := l.Read(buf, next, ReadOptions{MaxBytes: 10_000, UpTo: l.Bounds().HighWatermark})
		if err != nil {
			t.Fatal(err)
		}
		next = r.Next - 3 // within a batch, so that it is looked for
	}))
}
