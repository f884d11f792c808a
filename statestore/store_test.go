package statestore

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/statestore/storetest"
	"github.com/stretchr/testify/require"
	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m, storetest.Abandoned()...) }

var ctx = context.Background()

func open(t *testing.T, fs vfs.FS) *DB {
	t.Helper()
	db, err := Open(fs, "views", Options{})
	require.NoError(t, err)
	t.Cleanup(func() { _ = db.Close() })
	return db
}

func commit(t *testing.T, b *Batch) {
	t.Helper()
	require.NoError(t, b.Commit(ctx))
	require.True(t, b.Empty(), "a committed batch is ready to be filled again")
}

// dump lists a view as "key=value" strings.
func dump(t *testing.T, v *View, prefix string) []string {
	t.Helper()
	got := []string{}
	require.NoError(t, v.Scan([]byte(prefix), func(key, value []byte) error {
		got = append(got, string(key)+"="+string(value))
		return nil
	}))
	return got
}

func TestViewsShareNothing(t *testing.T) {
	db := open(t, vfs.NewMem())
	names := []string{"a", "ab", "b", "\x01", string(make([]byte, 255))}
	for _, name := range names {
		b := db.View(name).NewBatch()
		b.Set([]byte("k"), []byte(name))
		b.Set([]byte{0xff, 0xff}, []byte("last"))
		b.Set(nil, []byte("first"))
		b.SetApplied("s", int64(len(name)))
		commit(t, b)
	}
	require.NoError(t, db.View("ab").Drop(ctx))
	for _, name := range names {
		v := db.View(name)
		empty, err := v.Empty()
		require.NoError(t, err)
		require.Equal(t, name == "ab", empty)
		if name == "ab" {
			require.Empty(t, dump(t, v, ""))
			continue
		}
		require.Equal(t, []string{"=first", "k=" + name, "\xff\xff=last"}, dump(t, v, ""))
		offset, ok, err := v.Applied("s")
		require.NoError(t, err)
		require.True(t, ok)
		require.EqualValues(t, len(name), offset)
	}
}

func TestBatchChangesInOrder(t *testing.T) {
	db := open(t, vfs.NewMem())
	v := db.View("v")
	b := v.NewBatch()
	for _, key := range []string{"a/1", "a/2", "b/1", "b/2"} {
		b.Set([]byte(key), []byte("old"))
	}
	b.DeletePrefix([]byte("a/"))
	b.Set([]byte("a/2"), []byte("new"))
	b.Delete([]byte("b/1"))
	b.Delete([]byte("never there"))
	commit(t, b)
	require.Equal(t, []string{"a/2=new", "b/2=old"}, dump(t, v, ""))
	require.Equal(t, []string{"b/2=old"}, dump(t, v, "b/"))

	value, ok, err := v.Get([]byte("a/2"))
	require.NoError(t, err)
	require.True(t, ok)
	require.Equal(t, "new", string(value))
	_, ok, err = v.Get([]byte("a/1"))
	require.NoError(t, err)
	require.False(t, ok)
}

func TestScanEndsWithTheErrorOfItsCallback(t *testing.T) {
	v := open(t, vfs.NewMem()).View("v")
	b := v.NewBatch()
	b.Set([]byte("a"), nil)
	b.Set([]byte("b"), nil)
	commit(t, b)
	enough, calls := errors.New("enough"), 0
	err := v.Scan(nil, func(_, _ []byte) error { calls++; return enough })
	require.ErrorIs(t, err, enough)
	require.Equal(t, 1, calls)
}

func TestCloseKeepsWhatWasCommitted(t *testing.T) {
	fs := vfs.NewMem()
	db := open(t, fs)
	b := db.View("v").NewBatch()
	b.Set([]byte("k"), []byte("1"))
	b.SetApplied("s", 7)
	commit(t, b)
	require.NoError(t, db.Close())
	require.NoError(t, db.Close(), "closing twice is harmless")
	require.ErrorIs(t, b.Commit(ctx), ErrClosed)
	_, _, err := db.View("v").Get([]byte("k"))
	require.ErrorIs(t, err, ErrClosed)
	require.ErrorIs(t, db.Sync(ctx), ErrClosed)

	v := open(t, fs).View("v")
	require.Equal(t, []string{"k=1"}, dump(t, v, ""))
	offset, ok, err := v.Applied("s")
	require.NoError(t, err)
	require.True(t, ok)
	require.EqualValues(t, 7, offset)
}

func TestDurableFollowsSyncOnly(t *testing.T) {
	fs := vfs.NewCrashableMem()
	v := open(t, fs).View("v")
	b := v.NewBatch()
	b.SetApplied("s", 5)
	commit(t, b)
	_, ok := v.Durable("s")
	require.False(t, ok, "committed is not durable")
	require.NoError(t, v.db.Sync(ctx))
	offset, ok := v.Durable("s")
	require.True(t, ok)
	require.EqualValues(t, 5, offset)

	b.SetApplied("s", 9)
	commit(t, b)
	offset, _ = v.Durable("s")
	require.EqualValues(t, 5, offset)

	require.NoError(t, v.Drop(ctx))
	_, ok = v.Durable("s")
	require.False(t, ok)
	after := open(t, fs.CrashClone(vfs.CrashCloneCfg{}))
	empty, err := after.View("v").Empty()
	require.NoError(t, err)
	require.True(t, empty, "a dropped view does not come back")
}

func TestSyncWithoutNewsWritesNothing(t *testing.T) {
	ops := &writes{}
	db := open(t, ops.wrap(vfs.NewMem()))
	b := db.View("v").NewBatch()
	b.Set([]byte("k"), nil)
	commit(t, b)
	require.NoError(t, db.Sync(ctx))
	before := ops.count()
	for range 10 {
		require.NoError(t, db.Sync(ctx))
	}
	require.Equal(t, before, ops.count())
}

func TestBatchLargerThanAMemtable(t *testing.T) {
	fs := vfs.NewCrashableMem()
	db := open(t, fs)
	v := db.View("v")
	b := v.NewBatch()
	big := make([]byte, 3*memTableBytes)
	for i := range 4 {
		big[0] = byte(i)
		b.Set(fmt.Appendf(nil, "big%d", i), big)
	}
	b.SetApplied("s", 4)
	commit(t, b)
	b.Set([]byte("big0"), []byte("small"))
	commit(t, b)
	require.NoError(t, db.Sync(ctx))

	after := open(t, fs.CrashClone(vfs.CrashCloneCfg{})).View("v")
	for i := range 4 {
		value, ok, err := after.Get(fmt.Appendf(nil, "big%d", i))
		require.NoError(t, err)
		require.True(t, ok)
		if i == 0 {
			require.Equal(t, "small", string(value))
			continue
		}
		require.Len(t, value, len(big))
		require.Equal(t, byte(i), value[0])
	}
}

func TestGivesUpWaitingWithItsContext(t *testing.T) {
	db := open(t, vfs.NewMem())
	b := db.View("v").NewBatch()
	b.SetApplied("s", 3)
	commit(t, b)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	err := db.Sync(gone)
	if err != nil { // the flush may have been quicker
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, db.Sync(ctx), "a sync given up is made up for by the next")
	offset, ok := db.View("v").Durable("s")
	require.True(t, ok)
	require.EqualValues(t, 3, offset)
}

func TestDestroy(t *testing.T) {
	fs := vfs.NewCrashableMem()
	require.NoError(t, Destroy(fs, "views"), "nothing there")
	db := open(t, fs)
	b := db.View("v").NewBatch()
	b.Set([]byte("k"), nil)
	commit(t, b)
	require.NoError(t, db.Close())
	require.NoError(t, Destroy(fs, "views"))
	for _, f := range []vfs.FS{fs, fs.CrashClone(vfs.CrashCloneCfg{})} {
		empty, err := open(t, f).View("v").Empty()
		require.NoError(t, err)
		require.True(t, empty)
	}
}

func TestUpperBound(t *testing.T) {
	require.Equal(t, []byte("b"), upperBound([]byte("a")))
	require.Equal(t, []byte{2}, upperBound([]byte{1, 0xff, 0xff}))
	require.Nil(t, upperBound([]byte{0xff}))
	require.Nil(t, upperBound(nil))
}
