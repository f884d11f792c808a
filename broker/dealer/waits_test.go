package dealer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/lacunamq/lacuna/broker/extension"
)

// TestNoRoomInTheLedgers holds that a fetch for which the ledgers have no memory waits, as
// one for which there is nothing, and gets what there is soon after another group has made
// room.
func TestNoRoomInTheLedgers(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(4)
		r.groups.join("a")
		r.memory.Store(0)
		q := query("a", 10)
		q.MaxWait = 5 * time.Second
		asked := time.Now()
		f := r.begin(q)
		<-f.done
		require.Equal(t, q.MaxWait, time.Since(asked))
		require.NoError(t, f.err)
		require.ErrorIs(t, f.dealt[0].Err, kerr.PolicyViolation)

		f = r.begin(query("a", 10))
		synctest.Wait()
		f.waits()
		r.memory.Store(1 << 30)
		asked = time.Now()
		require.Equal(t, upTo(4), f.offsets())
		require.LessOrEqual(t, time.Since(asked), time.Second)
	})
}

// TestAPartitionThatIsGone keeps no fetch from waiting for another, and is told of when that
// is over; when there is no other, at once.
func TestAPartitionThatIsGone(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(1)
		r.groups.join("a")
		require.Equal(t, upTo(1), r.fetch("a", 1))
		gone := extension.TopicPartition{Topic: tp.Topic, Partition: 9}
		r.Gone[gone] = extension.ErrUnknownPartition

		q := query("a", 10)
		q.Partitions = []extension.TopicPartition{gone, tp}
		f := r.begin(q)
		synctest.Wait()
		f.waits()
		r.produceN(1)
		<-f.done
		require.ErrorIs(t, f.dealt[0].Err, extension.ErrUnknownPartition)
		require.EqualValues(t, 1, f.dealt[1].Deliveries[0].Start)

		q = query("a", 10)
		q.Partitions = []extension.TopicPartition{gone}
		f = r.begin(q)
		synctest.Wait()
		<-f.done
		require.ErrorIs(t, f.dealt[0].Err, extension.ErrUnknownPartition)
	})
}
