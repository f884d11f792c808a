package dealer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/lacunamq/lacuna/cooperative"
)

// What a member was dealt and did not get goes to the next who waits, and counts no
// delivery.
func TestGiveBack(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(10)
		r.groups.join("a", "b")
		unsent := r.begin(query("a", 10))
		require.Equal(t, upTo(10), unsent.offsets())
		waiting := r.begin(query("b", 10))
		synctest.Wait()
		waiting.waits()
		unsent.dealt[0].GiveBack()
		require.Equal(t, upTo(10), waiting.offsets())
		require.EqualValues(t, 1, waiting.dealt[0].Deliveries[0].Count)
		require.Empty(t, unsent.dealt[0].Deliveries)
		require.ErrorIs(t, r.ack("a", cooperative.Accept, 0, 1), kerr.InvalidRecordState)
		r.mustAck("b", cooperative.Accept, 0, 10)
	})
}

// Who gives back late does not take from others what they acquired since.
func TestGiveBackAfterTheLockRanOut(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(1)
		r.groups.join("a")
		late := r.begin(query("a", 1))
		late.offsets()
		time.Sleep(lockMs * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int16{2}, r.counts("a", 1))
		late.dealt[0].GiveBack()
		r.mustAck("a", cooperative.Accept, 0, 1)
	})
}
