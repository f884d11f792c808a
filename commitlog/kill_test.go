package commitlog

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// abandon ends the process of a log: what it wrote stays in the system's memory.
func abandon(l *Log) {
	l.waitFlusher()
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.closed = true
	l.mu.flush.stopTimer()
}

// TestRecoveredMeansDurable: what a restart finds in the system's memory is durable
// before it is visible, with the names of its files.
func TestRecoveredMeansDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	o := testOptions(mem)
	makeParent(t, o)
	o.Config.FlushMs = 1 << 40
	l := openTest(t, o)
	first, second := plainBatch(t, 1, "first", 1), plainBatch(t, 1, "second", 1)
	mustAppend(t, l, first)
	require.NoError(t, l.Flush(t.Context()))
	require.NoError(t, l.Seal())
	l.waitFlusher()
	mustAppend(t, l, second) // in a new file, of which nothing is durable
	abandon(l)

	o.Unclean, o.Config.FlushMs = true, -1
	l = openTest(t, o)
	require.Equal(t, int64(2), l.Bounds().HighWatermark)
	o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
	require.Equal(t, append(first, second...), readAll(t, openTest(t, o)))
}

// TestSealedInRecoveryMeansDurable: the same for a segment that recovery seals because
// of what follows in it.
func TestSealedInRecoveryMeansDurable(t *testing.T) {
	mem := vfs.NewCrashableMem()
	disk := &smallDisk{FS: mem, left: 1 << 20}
	o := testOptions(disk)
	makeParent(t, o)
	l := openTest(t, o)
	first := plainBatch(t, 1, "first", 1)
	_, err := l.Append(first, AppendOptions{NoWait: true})
	require.NoError(t, err)
	disk.free(10)
	_, err = l.Append(plainBatch(t, 1, "torn", 1), AppendOptions{NoWait: true})
	require.ErrorIs(t, err, ErrNoSpace)
	disk.free(1 << 20)
	abandon(l)

	o.Unclean = true
	l = openTest(t, o)
	require.Equal(t, int64(1), l.Bounds().HighWatermark)
	require.Equal(t, []Dropped{{Segment: 0, Offset: 1, Bytes: 10, Reason: "unexpected EOF"}}, l.Recovery().Dropped)
	o.FS = mem.CrashClone(vfs.CrashCloneCfg{})
	require.Equal(t, first, readAll(t, openTest(t, o)))
}
