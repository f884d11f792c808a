package statestore

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"syscall"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// writes counts the operations that change a file system, and calls before each.
type writes struct {
	mu     sync.Mutex
	n      int
	before func(n int) error
}

// failingFrom fails the n-th operation and all after it.
func failingFrom(n int, err error) *writes {
	return &writes{before: func(i int) error {
		if i >= n {
			return err
		}
		return nil
	}}
}

func (w *writes) wrap(fs vfs.FS) vfs.FS {
	return errorfs.Wrap(fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		w.mu.Lock()
		defer w.mu.Unlock()
		w.n++
		if w.before != nil {
			return w.before(w.n)
		}
		return nil
	}))
}

func (w *writes) count() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return w.n
}

// history is what a view held at each applied offset. Offset n is the state after n
// batches; batch n sets a few keys to n, deletes one, and now and then all of a kind.
type history []map[string]string

func (h *history) next(rng *rand.Rand, b *Batch) {
	state := map[string]string{}
	if n := len(*h); n > 0 {
		for k, v := range (*h)[n-1] {
			state[k] = v
		}
	}
	n := len(*h)
	value := strconv.Itoa(n) + string(make([]byte, rng.IntN(2000)))
	if rng.IntN(10) == 0 {
		prefix := strconv.Itoa(rng.IntN(10))
		b.DeletePrefix([]byte(prefix))
		for k := range state {
			if k[:1] == prefix {
				delete(state, k)
			}
		}
	}
	for range 1 + rng.IntN(5) {
		key := strconv.Itoa(10 + rng.IntN(90))
		b.Set([]byte(key), []byte(value))
		state[key] = value
	}
	gone := strconv.Itoa(10 + rng.IntN(90))
	b.Delete([]byte(gone))
	delete(state, gone)
	*h = append(*h, state)
	b.SetApplied("source", int64(n))
}

// requireConsistent checks that the view is exactly the state of its applied offset,
// which is at least atLeast, and returns the offset.
func (h history) requireConsistent(t *testing.T, v *View, atLeast int64) int64 {
	t.Helper()
	applied, ok, err := v.Applied("source")
	require.NoError(t, err)
	if !ok {
		require.Negative(t, atLeast, "a durable state is lost")
		empty, err := v.Empty()
		require.NoError(t, err)
		require.True(t, empty, "data without an applied offset")
		return -1
	}
	require.GreaterOrEqual(t, applied, atLeast)
	require.Less(t, applied, int64(len(h)))
	got := map[string]string{}
	require.NoError(t, v.Scan(nil, func(key, value []byte) error {
		got[string(key)] = string(value)
		return nil
	}))
	require.Equal(t, h[applied], got, "applied offset %d", applied)
	return applied
}

func seeds(t *testing.T, quick int) int {
	if n, err := strconv.Atoi(os.Getenv("LACUNA_SEEDS")); err == nil {
		return n
	}
	if os.Getenv("LACUNA_LONG") != "" {
		return 10 * quick
	}
	return quick
}

// A crash at any write leaves each view at a state that it had, with that state's
// offset, and none older than what was reported durable.
func TestCrashAtEveryWrite(t *testing.T) {
	crashEvery := 7
	if os.Getenv("LACUNA_LONG") != "" {
		crashEvery = 1
	}
	for seed := range seeds(t, 3) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(uint64(seed), 1))
			mem := vfs.NewCrashableMem()
			type crash struct {
				fs      *vfs.MemFS
				durable [2]int64
			}
			var crashes []crash
			var views [2]*View
			var db *DB
			ops := &writes{}
			ops.before = func(n int) error {
				if n%crashEvery != 0 {
					return nil
				}
				c := crash{durable: [2]int64{-1, -1}}
				for i, v := range views {
					if v != nil {
						if offset, ok := v.Durable("source"); ok {
							c.durable[i] = offset
						}
					}
				}
				cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: []int{0, 50, 100}[n%3], RNG: rand.New(rand.NewPCG(uint64(seed), uint64(n)))}
				c.fs = mem.CrashClone(cfg)
				crashes = append(crashes, c)
				return nil
			}
			db = open(t, ops.wrap(mem))
			var histories [2]history
			batches := [2]*Batch{}
			ops.mu.Lock()
			for i := range views {
				views[i] = db.View(fmt.Sprintf("view%d", i))
				batches[i] = views[i].NewBatch()
			}
			ops.mu.Unlock()
			for range 150 {
				i := rng.IntN(2)
				histories[i].next(rng, batches[i])
				commit(t, batches[i])
				if rng.IntN(8) == 0 {
					require.NoError(t, db.Sync(ctx))
				}
			}
			require.NoError(t, db.Close())
			require.Greater(t, len(crashes), 20)
			for _, c := range crashes {
				db, err := Open(c.fs, "views", Options{})
				require.NoError(t, err)
				for i := range histories {
					histories[i].requireConsistent(t, db.View(fmt.Sprintf("view%d", i)), c.durable[i])
				}
				require.NoError(t, db.Close())
			}
		})
	}
}

// The n-th write fails, and all after it: the store says so, hangs nowhere, and what
// is on disk is a state that it had.
func TestFailAtEveryWrite(t *testing.T) {
	broken := fmt.Errorf("broken disk: %w", syscall.EIO)
	for n := 1; ; n++ {
		mem := vfs.NewCrashableMem()
		ops := failingFrom(n, broken)
		h, durable, failed := runUntilFailure(ops.wrap(mem))
		if n == 1 {
			require.ErrorIs(t, failed, broken)
		}
		after := mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(uint64(n), 2))})
		db, err := Open(after, "views", Options{})
		if errors.Is(err, ErrCorrupt) && durable < 0 {
			continue // it never came to be
		}
		require.NoError(t, err, "after a fault at write %d", n)
		h.requireConsistent(t, db.View("v"), durable)
		require.NoError(t, db.Close())
		if failed == nil {
			require.Greater(t, n, 30, "the faults were too few to mean anything")
			return
		}
	}
}

// runUntilFailure works with a store until it fails, and returns that failure.
func runUntilFailure(fs vfs.FS) (h history, durable int64, failed error) {
	durable = -1
	db, err := Open(fs, "views", Options{})
	if err != nil {
		return h, durable, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	v := db.View("v")
	b := v.NewBatch()
	for i := range 40 {
		h.next(rng, b)
		if err = b.Commit(ctx); err != nil {
			break
		}
		if i%4 == 3 {
			if err = db.Sync(ctx); err != nil {
				break
			}
			durable, _ = v.Durable("source")
		}
	}
	if closeErr := db.Close(); err == nil {
		err = closeErr
	}
	return h, durable, err
}

func TestFailedStoreSaysSo(t *testing.T) {
	broken := fmt.Errorf("broken disk: %w", syscall.EIO)
	var off bool
	ops := &writes{}
	ops.before = func(int) error {
		if off {
			return broken
		}
		return nil
	}
	var logged []string
	var mu sync.Mutex
	db, err := Open(ops.wrap(vfs.NewMem()), "views", Options{Logf: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		logged = append(logged, fmt.Sprintf(format, args...))
	}})
	require.NoError(t, err)
	b := db.View("v").NewBatch()
	b.Set([]byte("k"), nil)
	commit(t, b)
	ops.mu.Lock()
	off = true
	ops.mu.Unlock()
	require.ErrorIs(t, db.Sync(ctx), ErrFailed)
	require.ErrorIs(t, db.Sync(ctx), broken)
	b.Set([]byte("k2"), nil)
	require.ErrorIs(t, b.Commit(ctx), ErrFailed)
	require.False(t, b.Empty(), "a batch that was refused is kept")
	_, _, err = db.View("v").Applied("s")
	require.ErrorIs(t, err, ErrFailed)
	require.ErrorIs(t, db.Close(), ErrFailed)
	mu.Lock()
	defer mu.Unlock()
	require.Contains(t, fmt.Sprint(logged), "state store views failed")
}

// nearlyFull is a file system with little space left.
type nearlyFull struct {
	vfs.FS
	free uint64
}

func (fs *nearlyFull) GetDiskUsage(string) (vfs.DiskUsage, error) {
	return vfs.DiskUsage{AvailBytes: fs.free}, nil
}

func TestFullDiskRefusesAndRecovers(t *testing.T) {
	fs := &nearlyFull{FS: vfs.NewMem(), free: 1 << 30}
	db := open(t, fs)
	b := db.View("v").NewBatch()
	b.Set([]byte("k"), nil)
	commit(t, b)
	fs.free = spaceReserveBytes - 1
	require.ErrorIs(t, db.Sync(ctx), ErrNoSpace)
	b.Set([]byte("k2"), nil)
	b.SetApplied("s", 2)
	require.ErrorIs(t, b.Commit(ctx), ErrNoSpace)
	fs.free = 1 << 30
	commit(t, b)
	require.NoError(t, db.Sync(ctx))
	offset, ok := db.View("v").Durable("s")
	require.True(t, ok)
	require.EqualValues(t, 2, offset)
}
