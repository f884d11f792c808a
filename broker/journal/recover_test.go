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

const source = "j-0/AAAAAAAAAAAAAAAAAAAAAQ"

func recoverKeep(t testing.TB, view *statestore.View, log Log) (*keep, Recovery) {
	t.Helper()
	state := newKeep()
	r, err := Recover(ctx, view, source, log, state)
	require.NoError(t, err)
	return state, r
}

// checkpointed makes a log and a view that is applied to offset 3 of 5.
func checkpointed(t *testing.T) (*memLog, *statestore.View) {
	log, view := &memLog{}, openStore(t, vfs.NewMem()).View("v")
	appendTo(t, log, put("a", "1", "b", "1", "a", "2"))
	state, r := recoverKeep(t, view, log)
	require.Equal(t, Recovery{Applied: 3, Replayed: 3}, r)
	c := NewCheckpointer(view, source, log)
	require.NoError(t, c.Stage(state, r.Applied))
	require.NoError(t, c.Commit(ctx))
	appendTo(t, log, put("b", "", "c", "3"))
	return log, view
}

func TestRecoverFromTheViewOn(t *testing.T) {
	log, view := checkpointed(t)
	state, r := recoverKeep(t, view, log)
	require.Equal(t, Recovery{Applied: 5, From: 3, Loaded: 2, Replayed: 2}, r)
	require.Equal(t, map[string]string{"a": "2", "c": "3"}, state.values)
	require.Equal(t, map[string]bool{"b": true, "c": true}, state.dirty, "what the view does not have yet")
}

func TestRecoverWithoutAnything(t *testing.T) {
	state, r := recoverKeep(t, openStore(t, vfs.NewMem()).View("v"), &memLog{})
	require.Equal(t, Recovery{}, r)
	require.Empty(t, state.values)
}

func TestRecoverDropsAViewThatDoesNotFit(t *testing.T) {
	for name, c := range map[string]struct {
		spoil func(*memLog, *statestore.View)
		why   string
	}{
		"ahead": {func(log *memLog, _ *statestore.View) {
			log.batches, log.end, log.high = nil, 0, 0
			appendTo(t, log, put("x", "1"))
		}, "it is at offset 3, ahead of the log's end 1"},
		"behind": {func(log *memLog, _ *statestore.View) {
			log.start, log.batches = 4, nil
			log.end, log.high = 4, 4
			appendTo(t, log, put("x", "1"))
		}, "it is at offset 3, behind the log's start 4"},
		"another log": {func(log *memLog, view *statestore.View) {
			log.batches, log.end, log.high = nil, 0, 0
			appendTo(t, log, put("x", "1"))
			require.NoError(t, view.Drop(ctx))
			b := view.NewBatch()
			b.Set([]byte("a"), []byte("1"))
			b.SetApplied("j-0/another", 1)
			require.NoError(t, b.Commit(ctx))
		}, "it was made from another log"},
	} {
		t.Run(name, func(t *testing.T) {
			log, view := checkpointed(t)
			c.spoil(log, view)
			state, r := recoverKeep(t, view, log)
			require.Equal(t, c.why, r.Dropped)
			require.Equal(t, map[string]string{"x": "1"}, state.values)
			require.Equal(t, Recovery{Applied: log.end, From: log.start, Replayed: 1, Dropped: c.why}, r)
			empty, err := view.Empty()
			require.NoError(t, err)
			require.True(t, empty)
		})
	}
}

// refusing is a State that cannot read its view.
type refusing struct{ *keep }

func (r refusing) Load(key, value []byte) error { return errors.New("what is this?") }

func TestRecoverDropsAViewThatCannotBeRead(t *testing.T) {
	log, view := checkpointed(t)
	state := refusing{newKeep()}
	r, err := Recover(ctx, view, source, log, state)
	require.NoError(t, err)
	require.Equal(t, "it cannot be understood: what is this?", r.Dropped)
	require.Equal(t, map[string]string{"a": "2", "c": "3"}, state.values)
	require.Zero(t, r.Loaded)
	require.Equal(t, 5, r.Replayed)
}

// strict is a State that does not take a record.
type strict struct{ *keep }

func (s strict) Apply(offset int64, r Record) error {
	if offset == 4 {
		return errors.New("no such thing")
	}
	return s.keep.Apply(offset, r)
}

func TestRecoverEndsWithTheErrorOfApply(t *testing.T) {
	log, view := checkpointed(t)
	_, err := Recover(ctx, view, source, log, strict{newKeep()})
	require.EqualError(t, err, "recover the state of "+source+": journal "+source+", record at offset 4: no such thing")
	recoverKeep(t, view, log) // and may be done again
}

func TestRecoverEndsWithItsContext(t *testing.T) {
	log, view := checkpointed(t)
	gone, cancel := context.WithCancel(ctx)
	cancel()
	_, err := Recover(gone, view, source, log, newKeep())
	require.ErrorIs(t, err, context.Canceled)
}

// tolerant is a State that goes on without lost records.
type tolerant struct {
	*keep
	lost   []*CorruptError
	refuse error
}

func (s *tolerant) Lost(e *CorruptError) error {
	s.lost = append(s.lost, e)
	return s.refuse
}

func TestRecoverWithoutLostRecords(t *testing.T) {
	log, view := &memLog{}, openStore(t, vfs.NewMem()).View("v")
	for _, value := range []string{"1", "2", "3"} {
		appendTo(t, log, put("a"+value, value, "b", value))
	}
	log.batches[1][70] ^= 1

	_, err := Recover(ctx, view, source, log, newKeep())
	var corrupt *CorruptError
	require.ErrorAs(t, err, &corrupt, "a state that is not asked loses nothing in silence")

	state := &tolerant{keep: newKeep()}
	r, err := Recover(ctx, view, source, log, state)
	require.NoError(t, err)
	require.Equal(t, map[string]string{"a1": "1", "a3": "3", "b": "3"}, state.values)
	require.Len(t, r.Lost, 1)
	require.Equal(t, state.lost, r.Lost)
	require.EqualValues(t, 2, r.Lost[0].Offset)
	require.EqualValues(t, 4, r.Lost[0].Next)
	require.EqualValues(t, 6, r.Applied)

	state = &tolerant{keep: newKeep(), refuse: errors.New("too much is lost")}
	_, err = Recover(ctx, view, source, log, state)
	require.ErrorIs(t, err, state.refuse)

	log.batches[1][16] = 9 // now nobody knows where the next batch is
	state = &tolerant{keep: newKeep()}
	_, err = Recover(ctx, view, source, log, state)
	require.ErrorAs(t, err, &corrupt)
	require.Len(t, state.lost, 1)
}

func TestCleanUpToFollowsWhatIsDurable(t *testing.T) {
	log := openLog(t, vfs.NewMem(), commitlog.Options{})
	db := openStore(t, vfs.NewMem())
	view := db.View("v")
	upTo := CleanUpTo(view, source)
	require.Zero(t, upTo())
	appendTo(t, log, put("a", "1", "b", "2"))
	state, r := recoverKeep(t, view, log)
	c := NewCheckpointer(view, source, log)
	require.NoError(t, c.Stage(state, r.Applied))
	require.NoError(t, c.Commit(ctx))
	require.Zero(t, upTo(), "a crash could take this back")
	require.NoError(t, db.Sync(ctx))
	require.EqualValues(t, 2, upTo())
}
