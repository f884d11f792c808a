package commitlog

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// TestIdleLogsCostLittle: thousands of partitions that nobody uses hold no goroutine,
// no open file and little memory.
func TestIdleLogsCostLittle(t *testing.T) {
	fs := vfs.NewMem()
	options := func(i int) Options {
		o := testOptions(fs)
		o.Dir = fmt.Sprintf("data/orders-%d", i)
		return o
	}
	const n = 500
	for i := range n {
		l := openTest(t, options(i))
		mustAppend(t, l, plainBatch(t, 1, "value", 1000))
		require.NoError(t, l.Close())
	}
	goroutines, before := runtime.NumGoroutine(), heapBytes()
	logs := make([]*Log, n)
	for i := range n {
		l, err := Open(options(i))
		require.NoError(t, err)
		require.Equal(t, int64(1), l.Bounds().HighWatermark)
		logs[i] = l
	}
	perLog := (heapBytes() - before) / n
	t.Log("bytes per idle log:", perLog)
	require.LessOrEqual(t, perLog, int64(4<<10), "bytes of heap for each")
	require.LessOrEqual(t, runtime.NumGoroutine(), goroutines)
	for _, l := range logs {
		for _, s := range *l.segments.Load() {
			require.Nil(t, s.handle.file)
		}
		require.NoError(t, l.Close())
	}
}

func heapBytes() int64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return int64(m.HeapAlloc)
}
