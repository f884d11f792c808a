package processor

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// A task that is aborted while it opens what it reads calls no processor any more: its state
// is not to be seen yet.
func TestAnAbortedTaskDoesNothing(t *testing.T) {
	store, err := statestore.InMemory()(nil, "")
	require.NoError(t, err)
	kept, ok := store.(statestore.OffsetStore)
	require.True(t, ok)
	for _, aborted := range []bool{false, true} {
		a := &App{cfg: defaultConfig(), outlet: plain{}, topology: Topology{Ack: AckOnPunctuate}}
		task := newTask(a, nil, 0, areas{}, assignor.Group{})
		calls := 0
		task.store, task.state, task.chain = kept, &state{backing: kept}, &chain{now: time.Now}
		task.chain.schedules.add(time.Millisecond, WallClock, func(time.Time) error { calls++; return nil }, time.Unix(0, 0), time.Time{})
		if aborted {
			task.abort()
		}
		task.work()
		require.Equal(t, map[bool]int{false: 1}[aborted], calls)
		task.abort()
	}
}
