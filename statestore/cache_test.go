package statestore

import (
	"context"
	"fmt"
	"path/filepath"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// storesOnDisk makes n stores by copying the files of one, whose offset is 7.
func storesOnDisk(t testing.TB, fs vfs.FS, root string, n int) {
	t.Helper()
	dir := fs.PathJoin(root, "0", "counts")
	s, err := Pebble()(fs, dir)
	require.NoError(t, err)
	for i := range 100 {
		require.NoError(t, s.Put(fmt.Append(nil, i), make([]byte, 100)))
	}
	require.NoError(t, s.Commit(Offset{part("in", 0, 0, 0xffff), 7}))
	require.NoError(t, s.Close())
	names, err := fs.List(dir)
	require.NoError(t, err)
	for i := 1; i < n; i++ {
		to := fs.PathJoin(root, fmt.Sprint(i), "counts")
		require.NoError(t, fs.MkdirAll(to, 0o755))
		for _, name := range names {
			require.NoError(t, vfs.Copy(fs, fs.PathJoin(dir, name), fs.PathJoin(to, name)))
		}
	}
}

func TestScanOffsets(t *testing.T) {
	fs, root := vfs.Default, t.TempDir()
	storesOnDisk(t, fs, root, 60)
	before := &writes{}
	cache, err := ScanOffsets(ctx, before.wrap(fs), root, Pebble(), 4)
	require.NoError(t, err)
	require.Equal(t, 60, before.count(), "a scan changes nothing but takes the lock of each store")
	require.Len(t, cache.Tasks(), 60)
	for _, bucket := range cache.Tasks() {
		got, ok := cache.Task(bucket)
		require.True(t, ok)
		require.Equal(t, []Offset{{part("in", 0, 0, 0xffff), 7}}, got)
		// The stores have been closed, so that their owner gets them.
		s, err := Pebble()(fs, filepath.Join(root, fmt.Sprint(bucket), "counts"))
		require.NoError(t, err)
		require.NoError(t, s.Close())
		if bucket > 3 {
			break
		}
	}
}

func TestScanOfNothing(t *testing.T) {
	fs := vfs.NewMem()
	cache, err := ScanOffsets(ctx, fs, "root", Pebble(), 2)
	require.NoError(t, err)
	require.Empty(t, cache.Tasks())
	require.NoError(t, fs.MkdirAll("root/3/new", 0o755)) // a crash came before the store
	require.NoError(t, fs.MkdirAll("root/03/x", 0o755))
	require.NoError(t, fs.MkdirAll("root/other/x", 0o755))
	writeFile(t, fs, "root/4", nil)
	cache, err = ScanOffsets(ctx, fs, "root", Pebble(), 2)
	require.NoError(t, err)
	require.Equal(t, []int32{3}, cache.Tasks())
	ended, cancel := context.WithCancel(ctx)
	cancel()
	_, err = ScanOffsets(ended, fs, "root", Pebble(), 2)
	require.ErrorIs(t, err, context.Canceled)
}

func TestScanNamesWhatItCannotRead(t *testing.T) {
	fs, root := vfs.NewMem(), "root"
	storesOnDisk(t, fs, root, 5)
	names, err := fs.List("root/2/counts")
	require.NoError(t, err)
	for _, name := range names {
		writeFile(t, fs, "root/2/counts/"+name, []byte("damaged"))
	}
	open := Pebble()
	busy, err := open(fs, "root/4/counts")
	require.NoError(t, err)
	_, err = ScanOffsets(ctx, fs, root, open, 2)
	require.ErrorIs(t, err, ErrCorrupt)
	require.ErrorContains(t, err, "task 2, store root/2/counts")
	require.ErrorContains(t, err, "task 4, store root/4/counts")
	require.NotContains(t, err.Error(), "task 3")
	require.NoError(t, busy.Close())
}

// A scan sees what a file will bring a store, and leaves the taking-in to its owner.
func TestScanReadsCheckpoints(t *testing.T) {
	for name, open := range map[string]Opener{"own": Pebble(), "plain": plainOpener()} {
		t.Run(name, func(t *testing.T) {
			fs := vfs.NewMem()
			s, err := open(fs, "root/1/a")
			require.NoError(t, err)
			require.NoError(t, s.Close())
			writeFile(t, fs, "root/1/a/.checkpoint", []byte("0\n1\nin 0 70\n"))
			before := &writes{}
			cache, err := ScanOffsets(ctx, before.wrap(fs), "root", open, 1)
			require.NoError(t, err)
			require.Equal(t, 1, before.count(), "the lock")
			got, _ := cache.Task(1)
			require.Equal(t, []Offset{{nameless("in", 0), 71}}, got)
		})
	}
}

func TestStoreForReadingOnly(t *testing.T) {
	fs := vfs.NewMem()
	s := openStore(t, Pebble(), fs)
	require.NoError(t, s.Put([]byte("k"), []byte("v")))
	require.NoError(t, s.Commit(Offset{part("in", 0, 0, 1), 4}))
	require.NoError(t, s.Close())
	s = openStore(t, Pebble(), ReadOnly(fs))
	require.Equal(t, map[string]string{"k": "v"}, contents(t, s, nil, nil))
	require.ErrorIs(t, s.Put(nil, nil), ErrReadOnly)
	require.ErrorIs(t, s.Delete(nil), ErrReadOnly)
	require.ErrorIs(t, s.Wipe(), ErrReadOnly)
	require.ErrorIs(t, s.Commit(Offset{part("in", 0, 0, 1), 5}), ErrReadOnly)
	require.ErrorIs(t, ReadOnly(fs).Remove("x"), ErrReadOnly)
}

func TestLagOfTasks(t *testing.T) {
	c := &OffsetCache{tasks: map[int32]cachedTask{}}
	ends := []Offset{{part("in", 0, 0, 9), 100}, {part("in", 1, 0, 9), 50}}
	_, ok := c.Lag(3, ends)
	require.False(t, ok)
	c.Own(3)
	lag, ok := c.Lag(3, ends)
	require.True(t, ok)
	require.Equal(t, Latest, lag)
	c.Release(3, []Offset{{part("in", 0, 0, 4), 90}, {part("in", 0, 5, 9), 80}, {part("in", 1, 0, 8), 50}})
	lag, ok = c.Lag(3, ends)
	require.True(t, ok)
	require.EqualValues(t, 20+50, lag, "slot 9 of partition 1 begins at 0")
	c.Own(3)
	got, ok := c.Task(3)
	require.True(t, ok)
	require.Equal(t, Latest, got[0].Next)
	c.Forget(3)
	_, ok = c.Task(3)
	require.False(t, ok)
}

func TestMinOffsets(t *testing.T) {
	require.Empty(t, MinOffsets())
	a := []Offset{{part("in", 0, 0, 9), 5}, {part("in", 1, 0, 9), 5}}
	b := []Offset{{part("in", 0, 5, 20), 4}, {part("other", 0, 0, 9), 5}}
	require.Equal(t, a, MinOffsets(a))
	require.Equal(t, []Offset{{part("in", 0, 5, 9), 4}}, MinOffsets(a, b))
}

func TestCacheIsForManyGoroutines(t *testing.T) {
	c := &OffsetCache{tasks: map[int32]cachedTask{}}
	var users sync.WaitGroup
	for i := range int32(4) {
		users.Go(func() {
			for range 200 {
				c.Own(i)
				c.Lag((i+1)%4, []Offset{{part("in", 0, 0, 9), 100}})
				c.Tasks()
				c.Release(i, []Offset{{part("in", 0, 0, 9), 40}})
			}
		})
	}
	users.Wait()
	for i := range int32(4) {
		lag, ok := c.Lag(i, []Offset{{part("in", 0, 0, 9), 100}})
		require.True(t, ok)
		require.EqualValues(t, 60, lag)
	}
}
