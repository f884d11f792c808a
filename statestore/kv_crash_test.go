package statestore

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
)

// states is what a store held at each offset. Commit n makes a few changes and moves the
// offsets of two ranges of slots to n, which are one range now and then.
type states []map[string]string

func (h *states) change(rng *rand.Rand, s Store) error {
	state := map[string]string{}
	n := len(*h)
	if n > 0 {
		for k, v := range (*h)[n-1] {
			state[k] = v
		}
	}
	for range 1 + rng.IntN(5) {
		key, value := strconv.Itoa(rng.IntN(50)), strconv.Itoa(n)+string(make([]byte, rng.IntN(3000)))
		if err := s.Put([]byte(key), []byte(value)); err != nil {
			return err
		}
		state[key] = value
	}
	gone := strconv.Itoa(rng.IntN(50))
	delete(state, gone)
	*h = append(*h, state)
	return s.Delete([]byte(gone))
}

func (h *states) commit(rng *rand.Rand, s Store) error {
	if err := h.change(rng, s); err != nil {
		return err
	}
	n := int64(len(*h) - 1)
	if n%5 == 0 {
		return s.Commit(Offset{part("in", 0, 0, 99), n})
	}
	middle := uint16(rng.IntN(98))
	return s.Commit(Offset{part("in", 0, 0, middle), n}, Offset{part("in", 0, middle+1, 99), n})
}

// requireState checks that a store is exactly what it was at its offset, which is at
// least atLeast.
func (h states) requireState(t *testing.T, s OffsetStore, atLeast int64) {
	t.Helper()
	next, ok, err := s.CommittedOffset(part("in", 0, 0, 99))
	require.NoError(t, err)
	got := contents(t, s, nil, nil)
	if !ok {
		require.Negative(t, atLeast, "a commit is lost")
		require.Empty(t, got, "data without offsets")
		return
	}
	offsets, err := s.Offsets()
	require.NoError(t, err)
	require.Equal(t, []Offset{{part("in", 0, 0, 99), next}}, offsets, "both ranges are of one commit")
	require.GreaterOrEqual(t, next, atLeast)
	require.Less(t, next, int64(len(h)))
	require.Equal(t, h[next], got, "offset %d", next)
}

// A crash at any write leaves data and offsets of one commit. If the file system keeps all
// that it was given, as in the crash of the process alone, that is the last one.
func TestStoreCrashAtEveryWrite(t *testing.T) {
	crashEvery := 3
	if os.Getenv("LACUNA_LONG") != "" {
		crashEvery = 1
	}
	for seed := range uint64(seeds(t, 2)) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 1))
			mem := vfs.NewCrashableMem()
			type crash struct {
				fs      *vfs.MemFS
				atLeast int64
			}
			var crashes []crash
			var committed, synced atomic.Int64
			committed.Store(-1)
			synced.Store(-1)
			ops := &writes{before: func(n int) error {
				if n%crashEvery != 0 {
					return nil
				}
				percent := []int{0, 50, 100}[len(crashes)%3]
				c := crash{atLeast: synced.Load()}
				if percent == 100 {
					c.atLeast = committed.Load()
				}
				c.fs = mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: rand.New(rand.NewPCG(seed, uint64(n)))})
				crashes = append(crashes, c)
				return nil
			}}
			open := Pebble(SyncWithin(time.Hour, 20_000))
			s := openStore(t, open, ops.wrap(mem))
			var h states
			for i := range int64(60) {
				require.NoError(t, h.commit(rng, s))
				committed.Store(i)
				if i%11 == 10 {
					require.NoError(t, s.(Syncer).Sync())
					synced.Store(i)
				}
				if i%17 == 16 { // what is rolled back never comes back
					before := h
					require.NoError(t, h.change(rng, s))
					require.NoError(t, s.Rollback())
					h = before
				}
				if i == 30 {
					require.NoError(t, s.Close())
					synced.Store(i)
					s = openStore(t, open, ops.wrap(mem))
				}
			}
			require.NoError(t, s.Close())
			require.Greater(t, len(crashes), 30)
			for _, c := range crashes {
				after := openStore(t, open, c.fs)
				h.requireState(t, after, c.atLeast)
				require.NoError(t, after.Close())
			}
		})
	}
}

func TestWipeSurvivesACrash(t *testing.T) {
	mem := vfs.NewCrashableMem()
	s := openStore(t, Pebble(), mem)
	var h states
	require.NoError(t, h.commit(rand.New(rand.NewPCG(1, 1)), s))
	require.NoError(t, s.Wipe())
	after := openStore(t, Pebble(), mem.CrashClone(vfs.CrashCloneCfg{}))
	require.Empty(t, contents(t, after, nil, nil))
	offsets, err := after.Offsets()
	require.NoError(t, err)
	require.Empty(t, offsets)
}

// With SyncEach, and soon after each Commit without it, a crash of the machine loses
// nothing.
func TestCommitsSurviveACrashOfTheMachine(t *testing.T) {
	for name, option := range map[string]Option{"each": SyncEach(), "bytes": SyncWithin(time.Hour, 1), "later": SyncWithin(time.Microsecond, 1<<20)} {
		t.Run(name, func(t *testing.T) {
			mem := vfs.NewCrashableMem()
			s := openStore(t, Pebble(option), mem)
			var h states
			rng := rand.New(rand.NewPCG(1, 1))
			require.NoError(t, h.commit(rng, s))
			if name == "later" {
				s.(*pebbleStore).sync.pending.Wait() // the timer has done it
			}
			after := openStore(t, Pebble(), mem.CrashClone(vfs.CrashCloneCfg{}))
			h.requireState(t, after, 0)
		})
	}
}

// The n-th write fails, and all after it: the store says so, hangs nowhere, and what is on
// disk is of one commit.
func TestStoreFailsAtEveryWrite(t *testing.T) {
	broken := fmt.Errorf("broken disk: %w", syscall.EIO)
	for n := 1; ; n++ {
		mem := vfs.NewCrashableMem()
		ops := failingFrom(n, broken)
		h, committed, failed := commitUntilFailure(ops.wrap(mem))
		after, err := Pebble()(mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 100, RNG: rand.New(rand.NewPCG(1, 1))}), "task/store")
		require.NoError(t, err, "after a fault at write %d", n)
		h.requireState(t, after.(OffsetStore), committed)
		require.NoError(t, after.Close())
		if failed == nil {
			require.Greater(t, n, 20, "the faults were too few to mean anything")
			return
		}
		require.ErrorIs(t, failed, broken)
	}
}

func commitUntilFailure(fs vfs.FS) (h states, committed int64, err error) {
	committed = -1
	s, err := Pebble(SyncWithin(time.Hour, 20_000))(fs, "task/store")
	if err != nil {
		return h, committed, err
	}
	rng := rand.New(rand.NewPCG(1, 1))
	for range 12 {
		if err = h.commit(rng, s); err != nil {
			break
		}
		committed++
	}
	if closeErr := s.Close(); err == nil {
		err = closeErr
	}
	return h, committed, err
}

func TestFullDiskRefusesACommitThatMayBeDoneLater(t *testing.T) {
	fs := &nearlyFull{FS: vfs.NewMem(), free: 1 << 30}
	s := openStore(t, Pebble(), fs)
	require.NoError(t, s.Put([]byte("k"), []byte("v")))
	fs.free = spaceReserveBytes - 1
	require.ErrorIs(t, s.Commit(Offset{part("in", 0, 0, 1), 1}), ErrNoSpace)
	_, ok, err := s.CommittedOffset(part("in", 0, 0, 1))
	require.NoError(t, err)
	require.False(t, ok)
	require.Positive(t, s.UncommittedBytes())
	fs.free = 1 << 30
	require.NoError(t, s.Commit(Offset{part("in", 0, 0, 1), 1}))
	require.Equal(t, map[string]string{"k": "v"}, contents(t, s, nil, nil))
}
