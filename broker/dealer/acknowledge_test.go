package dealer

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/lacunamq/lacuna/cooperative"
)

// TestAnErrorNamesTheTopicAsToolsDo, by the text of its id.
func TestAnErrorNamesTheTopicAsToolsDo(t *testing.T) {
	require.Equal(t, `share group "g", topic id AQAAAAAAAAAAAAAAAAAAAA, partition 0`, key{"g", tp}.String())
}

// As in Kafka, of the acknowledgements of one partition in a request all count or none.
func TestAcknowledgementsOfARequestCountTogether(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(3)
		r.groups.join("a", "b")
		require.Equal(t, []int64{0, 1}, r.fetch("a", 2))
		require.Equal(t, []int64{2}, r.fetch("b", 1))
		a := r.d.BeginAcknowledge("g", "a", tp, []cooperative.Ack{
			{Run: cooperative.Run{Start: 0, End: 1}, Type: cooperative.Accept},
			{Run: cooperative.Run{Start: 2, End: 3}, Type: cooperative.Accept}, // which b has
		})
		require.ErrorIs(t, a.Wait(ctx), kerr.InvalidRecordState)
		r.mustAck("a", cooperative.Release, 0, 2)
		require.Equal(t, []int64{0, 1}, r.fetch("b", 2))
	})
}
