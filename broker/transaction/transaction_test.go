package transaction

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestCommit is the life of a transaction in each version of the protocol.
func TestCommit(t *testing.T) {
	for version, epoch := range map[int8]int16{0: 0, 2: 1} {
		r := newRig(t)
		p := r.mustInit(None)
		require.Equal(t, Producer{ID: 100}, p)
		require.Nil(t, r.add(p, version, b0, a1))
		require.Nil(t, r.add(p, version, a0, b0))
		logged := len(r.log)
		require.Nil(t, r.add(p, version, a1), "it is there already")
		require.Len(t, r.log, logged)
		require.True(t, r.state.Ongoing("t", p, a1))
		require.False(t, r.state.Ongoing("t", p, TopicPartition{Topic: "b", Partition: 1}))

		next, err := r.end(p, version, true)
		require.Nil(t, err)
		require.Equal(t, []string{"t"}, r.ended)
		require.False(t, r.state.Ongoing("t", p, a1))
		ended := Producer{ID: 100, Epoch: epoch}
		if version == 2 {
			require.Equal(t, ended, next)
		} else {
			require.Equal(t, None, next)
		}
		require.Equal(t, Completion{
			Producer: ended, Version: version, Commit: true, Partitions: []TopicPartition{a0, a1, b0},
		}, r.complete())
		require.Equal(t, CompleteCommit, r.describe().Status)
		require.Empty(t, r.state.Ending())
	}
}
