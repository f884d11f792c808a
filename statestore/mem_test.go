package statestore

import (
	"fmt"
	"runtime"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// An idle broker has 24 MiB in all, so an idle store must be small.
func TestIdleMemory(t *testing.T) {
	inUse := func() uint64 {
		runtime.GC()
		runtime.GC()
		var m runtime.MemStats
		runtime.ReadMemStats(&m)
		return m.HeapInuse + m.StackInuse
	}
	fs, dir := vfs.Default, t.TempDir()
	before := inUse()
	db, err := Open(fs, dir, Options{})
	require.NoError(t, err)
	opened := inUse() - before
	b := db.View("v").NewBatch()
	for i := range 20000 {
		b.Set(fmt.Appendf(nil, "key%d", i), make([]byte, 100))
	}
	commit(t, b)
	require.NoError(t, db.Sync(ctx))
	require.Len(t, dump(t, db.View("v"), ""), 20000)
	b = nil
	worked := inUse() - before
	t.Logf("%d KiB after opening, %d KiB after work", opened>>10, worked>>10)
	require.Less(t, opened, uint64(2<<20))
	require.Less(t, worked, uint64(6<<20))
	require.NoError(t, db.Close())
}
