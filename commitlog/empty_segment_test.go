package commitlog

import (
	"bytes"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// TestASegmentOfWhichNothingIsLeft: a crash, or a failed fsync, may leave a segment
// without one good batch. The next one begins at the same offset, and so has the same
// name; what it holds must not be taken for the old one's.
func TestASegmentOfWhichNothingIsLeft(t *testing.T) {
	for name, before := range map[string]int{"the first segment": 0, "a later segment": 2} {
		t.Run(name, func(t *testing.T) {
			o := testOptions(vfs.NewMem())
			o.Config.RetentionMs = -1
			makeParent(t, o)
			l := openTest(t, o)
			var want []byte
			add := func(value string) {
				batch := plainBatch(t, 3, value, 1)
				mustAppend(t, l, batch)
				want = append(want, batch...)
			}
			for range before {
				add("before")
			}
			base := l.Bounds().End
			if before > 0 {
				require.NoError(t, l.Seal())
			}
			require.NoError(t, l.Close())
			torn, err := o.FS.Create(o.FS.PathJoin(o.Dir, segmentName(base, logExt)), vfs.WriteCategoryUnspecified)
			require.NoError(t, err)
			_, err = torn.Write(bytes.Repeat([]byte{7}, 100))
			require.NoError(t, err)
			require.NoError(t, torn.Close())

			o.Unclean = true
			for range 3 {
				l = openTest(t, o)
				require.Equal(t, want, readAll(t, l))
				add("after")
				require.NoError(t, l.ApplyRetention(time.Now()))
				_, err = l.DeleteRecords(0)
				require.NoError(t, err)
				require.Equal(t, want, readAll(t, l))
				require.NoError(t, l.CheckInvariants())
				// It crashes: nothing of what a clean stop writes is there.
				crashed := cloneMem(t, o.FS, o.Dir)
				require.NoError(t, l.Close())
				o.FS = crashed
			}
			l = openTest(t, o)
			require.Equal(t, want, readAll(t, l))
			start, err := l.DeleteRecords(base)
			require.NoError(t, err)
			require.Equal(t, base, start)
			require.Equal(t, l.Bounds().End, base+9)
			r, err := l.Read(nil, base, ReadOptions{MaxBytes: 1 << 20, UpTo: base + 9})
			require.NoError(t, err)
			require.Equal(t, base+9, r.Next)
			require.NoError(t, l.Close())
		})
	}
}
