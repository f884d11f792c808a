package processor_test

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/processor"
	"github.com/lacunamq/lacuna/statestore"
)

// offsetless is a store that keeps data and no offsets.
type offsetless struct{ statestore.Store }

func (s offsetless) Commit(...statestore.Offset) error { return s.Store.Commit() }

func openOffsetless(fs vfs.FS, dir string) (statestore.Store, error) {
	s, err := statestore.Pebble()(fs, dir)
	if err != nil {
		return nil, err
	}
	return offsetless{s}, nil
}

// A store without offsets keeps its place in a checkpoint. Opened later as one that has its
// own it takes the checkpoint in. At no time is a record applied again.
func TestAStoreWithoutOffsets(t *testing.T) {
	const checkpoint = "states/job/0/state/" + statestore.CheckpointFile
	r := newRig(t, 1)
	c := new(counting)
	fs := vfs.NewMem()
	run := func(records, outputs int, opener statestore.Opener) {
		t.Helper()
		r.produce(records, 10)
		a := r.open(c.topology(), processor.StateDir("states"), processor.StateFS(fs), processor.StoreOpener(opener))
		r.requireCounts(r.output(outputs))
		require.NoError(t, a.Close(context.Background()))
	}
	run(1000, 1000, openOffsetless)
	run(10, 1010, openOffsetless)
	_, err := fs.Stat(checkpoint)
	require.NoError(t, err)

	run(10, 1020, statestore.Pebble())
	_, err = fs.Stat(checkpoint)
	require.Error(t, err, "the store has the offsets now")
	run(10, 1030, statestore.Pebble())
	c.check(t)
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Zero(t, c.silently, "records applied again")
}
