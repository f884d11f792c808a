package journal

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/statestore"
	"github.com/stretchr/testify/require"
)

// requireView checks what a view holds.
func requireView(t *testing.T, view *statestore.View, applied int64, want map[string]string) {
	t.Helper()
	offset, ok, err := view.Applied(source)
	require.NoError(t, err)
	require.Equal(t, applied >= 0, ok)
	if ok {
		require.Equal(t, applied, offset)
	}
	got := map[string]string{}
	require.NoError(t, view.Scan(nil, func(key, value []byte) error {
		got[string(key)] = string(value)
		return nil
	}))
	require.Equal(t, want, got)
}

// change appends records and applies them at once, as an owner does.
func change(t *testing.T, log Log, state *keep, pairs ...string) (applied int64) {
	t.Helper()
	records := put(pairs...)
	receipt, err := Open(log, "j").Append(records)
	require.NoError(t, err)
	for i, r := range records {
		require.NoError(t, state.Apply(receipt.First+int64(i), r))
	}
	return receipt.Next
}

func TestNothingReachesTheViewBeforeItIsDurable(t *testing.T) {
	log, view, state := &memLog{lag: true}, openStore(t, vfs.NewMem()).View("v"), newKeep()
	c := NewCheckpointer(view, source, log)
	require.NoError(t, c.Stage(state, change(t, log, state, "a", "1", "b", "1")))

	soon, cancel := context.WithCancel(ctx)
	done := make(chan error)
	go func() { done <- c.Commit(soon) }()
	log.change(func() { log.high = 1 })
	cancel()
	require.ErrorIs(t, <-done, context.Canceled)
	requireView(t, view, -1, map[string]string{})

	go func() { done <- c.Commit(ctx) }()
	log.change(func() { log.high = 2 })
	require.NoError(t, <-done)
	requireView(t, view, 2, map[string]string{"a": "1", "b": "1"})
}

func TestCheckpointOfALogThatFailed(t *testing.T) {
	log, view, state := &memLog{lag: true}, openStore(t, vfs.NewMem()).View("v"), newKeep()
	c := NewCheckpointer(view, source, log)
	require.NoError(t, c.Stage(state, change(t, log, state, "a", "1")))
	done := make(chan error)
	go func() { done <- c.Commit(ctx) }()
	log.change(func() { log.err = commitlog.ErrReadOnly })
	require.ErrorIs(t, <-done, commitlog.ErrReadOnly)
	requireView(t, view, -1, map[string]string{})
}

func TestStagedTwiceIsCommittedOnce(t *testing.T) {
	log, view, state := &memLog{}, openStore(t, vfs.NewMem()).View("v"), newKeep()
	c := NewCheckpointer(view, source, log)
	require.NoError(t, c.Commit(ctx), "nothing to do")
	require.NoError(t, c.Stage(state, change(t, log, state, "a", "1", "b", "1")))
	require.NoError(t, c.Stage(state, change(t, log, state, "a", "2", "b", "")))
	require.NoError(t, c.Commit(ctx))
	requireView(t, view, 4, map[string]string{"a": "2"})
	require.NoError(t, c.Commit(ctx), "nothing to do")
	requireView(t, view, 4, map[string]string{"a": "2"})
}

// tight is a file system that may be nearly full.
type tight struct {
	vfs.FS
	full bool
}

func (fs *tight) GetDiskUsage(string) (vfs.DiskUsage, error) {
	if fs.full {
		return vfs.DiskUsage{}, nil
	}
	return vfs.DiskUsage{AvailBytes: 1 << 40}, nil
}

// What a failed Commit did not write, the state does not name again; it is kept, before
// what came later.
func TestFailedCommitLosesNothing(t *testing.T) {
	fs := &tight{FS: vfs.NewMem()}
	log, view, state := &memLog{}, openStore(t, fs).View("v"), newKeep()
	c := NewCheckpointer(view, source, log)
	require.NoError(t, c.Stage(state, change(t, log, state, "a", "1", "b", "1", "c", "1")))
	fs.full = true
	require.ErrorIs(t, c.Commit(ctx), statestore.ErrNoSpace)
	require.NoError(t, c.Stage(state, change(t, log, state, "b", "2", "c", "")))
	require.ErrorIs(t, c.Commit(ctx), statestore.ErrNoSpace)
	requireView(t, view, -1, map[string]string{})
	fs.full = false
	require.NoError(t, c.Commit(ctx))
	requireView(t, view, 5, map[string]string{"a": "1", "b": "2"})
}

// broken is a State whose checkpoint fails after it wrote a part.
type broken struct {
	*keep
	err error
}

func (b *broken) Checkpoint(w Writer) error {
	w.Set([]byte("part"), nil)
	return b.err
}

func TestFailedStageNeverReachesTheView(t *testing.T) {
	log, view := &memLog{}, openStore(t, vfs.NewMem()).View("v")
	state := &broken{newKeep(), errors.New("cannot encode")}
	applied := change(t, log, state.keep, "a", "1")
	c := NewCheckpointer(view, source, log)
	require.ErrorIs(t, c.Stage(state, applied), state.err)
	require.ErrorIs(t, c.Stage(state.keep, applied), state.err)
	require.ErrorIs(t, c.Commit(ctx), state.err)
	requireView(t, view, -1, map[string]string{})
}
