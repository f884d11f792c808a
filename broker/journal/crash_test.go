package journal

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/statestore"
	"github.com/stretchr/testify/require"
)

// machine runs an owner of derived state on a real log and a real store, on a file
// system that crashes. history is all that was ever appended, by offset.
type machine struct {
	t     *testing.T
	rng   *rand.Rand
	fsync bool

	mem   *vfs.MemFS
	store *statestore.DB
	log   *commitlog.Log
	view  *statestore.View

	state   *keep
	saver   *Checkpointer
	applied int64
	history []Record

	crash struct {
		sync.Mutex
		writes int // of the file system, until it is to crash; 0: never
		left   *vfs.MemFS
		acked  int64 // the appends below were answered before the crash
	}
	acked int64
	clock int64 // seconds
}

// watch takes a copy of what a crash at the chosen write would leave.
func (m *machine) watch(mem *vfs.MemFS, unsynced int) vfs.FS {
	rng := rand.New(rand.NewPCG(m.rng.Uint64(), 0))
	return errorfs.Wrap(mem, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
			return nil
		}
		m.crash.Lock()
		defer m.crash.Unlock()
		if m.crash.writes--; m.crash.writes == 0 {
			cfg := vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: rng}
			m.crash.left, m.crash.acked = mem.CrashClone(cfg), m.acked
		}
		return nil
	}))
}

// start opens everything on mem and recovers. Every durable record must be there.
func (m *machine) start(mem *vfs.MemFS, crashAfter, unsynced int) error {
	m.mem = mem
	m.crash.Lock()
	m.crash.writes, m.crash.left = crashAfter, nil
	m.crash.Unlock()
	fs := m.watch(mem, unsynced)
	var err error
	// A crash in the middle of an opening may leave the store without its manifest: then
	// it is made anew, and all is replayed.
	m.store, _, err = statestore.OpenOrReset(fs, "views", statestore.Options{})
	if err != nil {
		return err
	}
	m.view = m.store.View("v")
	config := commitlog.DefaultConfig()
	config.Delete, config.Compact = false, true
	config.SegmentBytes, config.MinCleanableRatio, config.DeleteRetentionMs = 700, 0, 0
	m.log, err = commitlog.Open(commitlog.Options{
		FS: fs, Dir: "log", Name: "j-0", Fsync: m.fsync, Config: config, Unclean: true,
		CleanUpTo: CleanUpTo(m.view, source),
		Now:       func() time.Time { return time.Unix(m.clock, 0) },
	})
	if err != nil {
		return err
	}
	m.state = newKeep()
	r, err := Recover(ctx, m.view, source, m.log, m.state)
	if err != nil {
		return err
	}
	m.saver = NewCheckpointer(m.view, source, m.log)
	m.applied = r.Applied
	m.check(r)
	return nil
}

// check compares the state with the fold of the history up to the log's end.
func (m *machine) check(r Recovery) {
	end := m.log.Bounds().End
	require.Equal(m.t, end, r.Applied)
	require.LessOrEqual(m.t, end, int64(len(m.history)))
	require.GreaterOrEqual(m.t, end, m.acked, "what was answered is lost")
	require.Empty(m.t, r.Dropped, "the view passed its log")
	m.history, m.acked = m.history[:end], end
	require.Equal(m.t, fold(m.history), m.state.values, "at offset %d, replayed from %d", end, r.From)
}

func fold(history []Record) map[string]string {
	k := newKeep()
	for i, r := range history {
		_ = k.Apply(int64(i), r) // never fails
	}
	return k.values
}

// run does random things until the crash.
func (m *machine) run(steps int) {
	for range steps {
		m.crash.Lock()
		crashed := m.crash.left != nil
		m.crash.Unlock()
		if crashed {
			return
		}
		m.clock++
		switch m.rng.IntN(12) {
		case 0:
			require.NoError(m.t, m.saver.Stage(m.state, m.applied))
		case 1, 2:
			require.NoError(m.t, m.saver.Stage(m.state, m.applied))
			require.NoError(m.t, m.saver.Commit(ctx))
		case 3:
			require.NoError(m.t, m.store.Sync(ctx))
		case 4:
			require.NoError(m.t, m.log.Roll(time.Unix(m.clock, 0)))
			_, err := m.log.Clean(time.Unix(m.clock, 0))
			require.NoError(m.t, err)
		default:
			m.append()
		}
	}
}

func (m *machine) append() {
	var records []Record
	for range 1 + m.rng.IntN(3) {
		r := Record{Key: fmt.Appendf(nil, "key%d", m.rng.IntN(8)), TimestampMs: m.clock * 1000}
		if m.rng.IntN(4) > 0 {
			r.Value = fmt.Appendf(nil, "%d", len(m.history)+len(records))
		}
		records = append(records, r)
	}
	m.crash.Lock()
	first := int64(len(m.history))
	m.history = append(m.history, records...)
	m.crash.Unlock()
	receipt, err := Open(m.log, "j").Append(records)
	require.NoError(m.t, err)
	require.Equal(m.t, first, receipt.First)
	for i, r := range records {
		require.NoError(m.t, m.state.Apply(receipt.First+int64(i), r))
	}
	m.applied = receipt.Next
	if m.rng.IntN(2) == 0 {
		require.NoError(m.t, receipt.Wait(ctx))
		m.crash.Lock()
		m.acked = receipt.Next
		m.crash.Unlock()
	}
}

func (m *machine) stop() {
	if m.log != nil {
		_ = m.log.Close() // the crash may have come in between
	}
	if m.store != nil {
		_ = m.store.Close()
	}
	m.log, m.store = nil, nil
}

// crashed is the file system that the crash left, or that a clean stop does.
func (m *machine) crashed() *vfs.MemFS {
	m.stop()
	m.crash.Lock()
	defer m.crash.Unlock()
	if m.crash.left == nil {
		return m.mem
	}
	m.acked = m.crash.acked
	return m.crash.left
}

// After a crash at any write, also one during the recovery from another, the state is
// the fold of the log, which has all that was answered.
func TestCrashAnywhere(t *testing.T) {
	seeds := 25
	if os.Getenv("LACUNA_LONG") != "" {
		seeds = 3000
	}
	if n, err := strconv.Atoi(os.Getenv("LACUNA_SEEDS")); err == nil {
		seeds = n
	}
	for seed := range seeds {
		for _, fsync := range []bool{true, false} {
			t.Run(fmt.Sprintf("seed=%d/fsync=%t", seed, fsync), func(t *testing.T) {
				m := &machine{t: t, rng: rand.New(rand.NewPCG(uint64(seed), 7)), fsync: fsync, clock: 1}
				t.Cleanup(m.stop)
				mem := vfs.NewCrashableMem()
				for range 5 {
					// Most crashes come late enough for some work, some in the recovery.
					crashAfter := 1 + m.rng.IntN([]int{20, 300}[m.rng.IntN(2)])
					unsynced := []int{0, 50, 100}[m.rng.IntN(3)]
					if !fsync {
						unsynced = 100 // kill -9 loses nothing, a power cut may lose anything
					}
					require.NoError(t, m.start(mem, crashAfter, unsynced))
					m.run(120)
					mem = m.crashed()
				}
				require.NoError(t, m.start(mem, 0, 0))
			})
		}
	}
}

// A view that is ahead of its log is dropped durably. Otherwise a crash after more
// appends would bring it back, and it would pass for a view of what the log holds then.
func TestDroppedViewStaysDropped(t *testing.T) {
	mem := vfs.NewCrashableMem()
	store := openStore(t, mem)
	view := store.View("v")
	log := &memLog{}
	state := newKeep()
	c := NewCheckpointer(view, source, log)
	require.NoError(t, c.Stage(state, change(t, log, state, "lost", "1", "lost", "2")))
	require.NoError(t, c.Commit(ctx))
	require.NoError(t, store.Sync(ctx))

	log = &memLog{} // the power cut took the log's tail: nothing had synced it
	_, err := Recover(ctx, view, source, log, state)
	require.NoError(t, err)
	appendTo(t, log, put("kept", "1", "kept", "2", "kept", "3"))

	view = openStore(t, mem.CrashClone(vfs.CrashCloneCfg{})).View("v")
	_, err = Recover(ctx, view, source, log, state)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"kept": "3"}, state.values)
}

// When the disk of the store fails, the log goes on, and the next start replays.
func TestStoreFailureCostsReplayOnly(t *testing.T) {
	mem, logFS := vfs.NewCrashableMem(), vfs.NewMem()
	var broken errorfs.Toggle
	broken.Injector = errorfs.InjectorFunc(func(op errorfs.Op) error {
		if op.Kind.ReadOrWrite() == errorfs.OpIsWrite {
			return errorfs.ErrInjected
		}
		return nil
	})
	store := openStore(t, errorfs.Wrap(mem, &broken))
	log := openLog(t, logFS, commitlog.Options{Fsync: true})
	view, state := store.View("v"), newKeep()
	c := NewCheckpointer(view, source, log)
	require.NoError(t, c.Stage(state, change(t, log, state, "a", "1")))
	require.NoError(t, c.Commit(ctx))
	require.NoError(t, store.Sync(ctx))
	broken.On()
	require.NoError(t, c.Stage(state, change(t, log, state, "a", "2")))
	err := c.Commit(ctx)
	require.ErrorIs(t, errors.Join(err, store.Sync(ctx)), statestore.ErrFailed)
	appendTo(t, log, put("a", "3"))

	view = openStore(t, mem.CrashClone(vfs.CrashCloneCfg{})).View("v")
	state, r := recoverKeep(t, view, log)
	require.Equal(t, map[string]string{"a": "3"}, state.values)
	require.EqualValues(t, 1, r.From)
	require.EqualValues(t, 1, CleanUpTo(view, source)(), "known from disk, so durable")
}
