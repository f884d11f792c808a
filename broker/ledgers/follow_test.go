package ledgers

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/stretchr/testify/require"
)

// inBubble runs a test with a clock of its own. The rig must be stopped in the bubble.
func inBubble(t *testing.T, f func(t *testing.T, r *rig)) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		f(t, r)
		r.stop()
	})
}

// TestThePrimaryTopicFollows at most once a second when stable offsets rise, however
// many commits there are, and without writing what it has.
func TestThePrimaryTopicFollows(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		a, b := part(1, 0), part(1, 1)
		r.produce(a, 1000)
		r.produce(b, 10)
		r.mustCommit("g", commitOf(a, 0), 1, 1)
		r.mustCommit("g", commitOf(b, 5), 0, 6)
		pass(followEvery)
		r.primary.puts = nil
		start := time.Now()
		for x := int64(1); time.Since(start) < 3*followEvery; x++ {
			r.mustCommit("g", commitOf(a, x), x+1, x+1)
			pass(10 * time.Millisecond)
		}
		synctest.Wait()
		puts := len(r.primary.puts)
		require.LessOrEqual(t, puts, 4)
		require.GreaterOrEqual(t, puts, 3)
		pass(2 * followEvery)
		synctest.Wait()
		require.Equal(t, r.fetch("g", a).Offset, r.primary.at("g", a))

		puts = len(r.primary.puts)
		r.mustCommit("g", commitOf(b, 7), 0, 8) // its stable offset stays
		pass(10 * followEvery)
		synctest.Wait()
		require.Len(t, r.primary.puts, puts)
		require.Empty(t, r.c.shardOf("g").mu.loaded.moved, "nothing is looked at again and again")
	})
}

// TestThePrimaryTopicHasTheEpochBelowTheStableOffset, and the metadata.
func TestThePrimaryTopicHasTheEpochBelowTheStableOffset(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		tp := part(1, 0)
		r.produce(tp, 5)
		r.mustCommit("g", commitOf(tp, 0, 1), 2, 2)
		first := r.fetch("g", tp).LeaderEpoch
		r.stop()
		r.unclean = true // the epoch rises
		r.start()
		r.produce(tp, 5)
		r.mustCommit("g", plainOf(tp, 5, "five"), 5, 5)
		pass(followEvery)
		synctest.Wait()
		require.Equal(t, extension.CommittedOffset{TopicPartition: tp, Offset: 5, LeaderEpoch: first, Metadata: "five"}, r.primary.puts[len(r.primary.puts)-1])
		r.mustCommit("g", commitOf(tp, 5), 6, 6)
		pass(followEvery)
		synctest.Wait()
		last := r.primary.puts[len(r.primary.puts)-1]
		require.EqualValues(t, 6, last.Offset)
		require.Greater(t, last.LeaderEpoch, first)
		require.Equal(t, "five", last.Metadata)
	})
}

// TestThePrimaryTopicFollowsAtACleanStop, so that who starts without the individual log
// loses nothing of it.
func TestThePrimaryTopicFollowsAtACleanStop(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	r.mustCommit("g", commitOf(tp, 0, 1, 2), 3, 3)
	r.mustCommit("g", commitOf(tp, 3), 4, 4)
	r.stop()
	require.EqualValues(t, 4, r.primary.at("g", tp))
	r.primary.puts = nil
	r.start()
	r.c.followAll(ctx)
	require.Empty(t, r.primary.puts, "after a start, what the primary topic has is not written again")
}

// TestAPrimaryTopicThatFails delays what must be there before the answer, and is caught
// up with.
func TestAPrimaryTopicThatFails(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		tp := part(1, 0)
		r.produce(tp, 10)
		r.mustCommit("g", commitOf(tp, 0, 1), 2, 2)
		broken := errors.New("the primary topic is broken")
		r.primary.fail(broken)
		r.mustCommit("g", commitOf(tp, 2), 3, 3)
		require.ErrorIs(t, r.commit("g", plainOf(tp, 1, ""))[0].Err, broken)
		pass(2 * followEvery)
		r.primary.fail(nil)
		pass(2 * followEvery)
		synctest.Wait()
		require.EqualValues(t, 1, r.primary.at("g", tp))
		r.requireLedger("g", tp, 1, 1)
	})
}

// TestThePrimaryTopicIsNeverAhead of what is durable in the individual log.
func TestThePrimaryTopicIsNeverAhead(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		tp := part(1, 0)
		r.produce(tp, 10)
		r.mustCommit("g", commitOf(tp, 0), 1, 1)
		waiting, release := r.gate.hold("")
		r.c.Begin(ctx, &extension.Member{Group: "g", Generation: -1}, []PartitionCommit{commitOf(tp, 1)})
		<-waiting
		pass(3 * followEvery)
		synctest.Wait()
		require.EqualValues(t, 1, r.primary.at("g", tp))
		release()
		synctest.Wait()
		require.EqualValues(t, 2, r.primary.at("g", tp))
	})
}

// TestADeletedGroupStaysDeleted: a write to the primary topic that began before does not
// come after.
func TestADeletedGroupStaysDeleted(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		tp := part(1, 0)
		r.produce(tp, 10)
		r.mustCommit("g", commitOf(tp, 0), 1, 1)
		r.mustCommit("g", commitOf(tp, 1), 2, 2)
		hold, begun := make(chan struct{}), make(chan struct{})
		r.primary.mu.Lock()
		r.primary.hold, r.primary.begun = hold, begun
		r.primary.mu.Unlock()
		go func() { _ = r.c.shardOf("g").follow(ctx, nil) }()
		<-begun
		go func() {
			_ = r.c.DeleteGroup(ctx, "g")
			r.primary.mu.Lock()
			delete(r.primary.offsets, "g") // as the group coordinator does then
			r.primary.mu.Unlock()
		}()
		synctest.Wait()
		close(hold)
		pass(2 * followEvery)
		synctest.Wait()
		require.EqualValues(t, -1, r.primary.at("g", tp))
		r.requireNoLedger("g", tp)
	})
}
