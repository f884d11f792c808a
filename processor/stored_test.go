package processor

import (
	"context"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// What a member says of the states on its disk: how far behind the inputs they are.
func TestWhatIsStored(t *testing.T) {
	fs, id := vfs.NewMem(), [16]byte{7}
	commit := func(dir string, next int64, lo, hi uint16) {
		s, err := statestore.Pebble()(fs, dir)
		require.NoError(t, err)
		require.NoError(t, s.Commit(statestore.Offset{Next: next, Source: statestore.Source{Topic: "in", TopicID: id, Slots: client.SlotRange{Lo: lo, Hi: hi}}}))
		require.NoError(t, s.Close())
	}
	commit("states/job/0/state", 40, 0, 32767)
	commit("states/job/1/state", 70, 40000, 65535) // nothing of the other slots
	cache, err := statestore.ScanOffsets(context.Background(), fs, "states/job", statestore.Pebble(), 2)
	require.NoError(t, err)
	a := &App{cache: cache, topology: Topology{Inputs: []string{"in"}}, topics: map[string][16]byte{"in": id}}
	plan := assignor.Claim{Holders: []string{"a", "b"}, Group: &assignor.Group{Initial: 1,
		Topics: map[string]assignor.Topic{"in": {ID: id, Partitions: 1, Fold: 1}}}}
	unknown := []assignor.Stored{{Bucket: 0, Lag: -1}, {Bucket: 1, Lag: -1}}
	require.Equal(t, unknown, a.stored(&plan), "nobody looked")

	a.ends = map[client.TopicPartition]int64{{Topic: "in"}: 100}
	require.Equal(t, []assignor.Stored{{Bucket: 0, Lag: 60}, {Bucket: 1, Lag: 100}}, a.stored(&plan))
	cache.Own(1)
	require.Equal(t, []assignor.Stored{{Bucket: 0, Lag: 60}, {Bucket: 1, Lag: 0}}, a.stored(&plan))
	require.Equal(t, unknown, a.stored(&assignor.Claim{}), "whose the states are is not known")
}
