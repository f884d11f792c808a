package coordinator

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// outcome runs f on its own and says later how it ended.
func outcome[T any](f func() (T, error)) <-chan result[T] {
	c := make(chan result[T], 1)
	go func() {
		v, err := f()
		c <- result[T]{v, err}
	}()
	return c
}

type result[T any] struct {
	value T
	err   error
}

func requireWaits[T any](t *testing.T, c <-chan result[T]) {
	t.Helper()
	select {
	case r := <-c:
		t.Fatalf("answered before its time: %+v", r)
	default:
	}
}

func TestAnswersWaitUntilDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		require.NoError(t, r.commit("g", 1))
		member := r.lead("h", "a")

		waiting, release := r.syncs.hold()
		commit := outcome(func() (struct{}, error) { return struct{}{}, r.commit("g", 2) })
		<-waiting
		fetch := outcome(func() (int64, error) { return r.committed("g") })
		synctest.Wait()
		requireWaits(t, commit)
		requireWaits(t, fetch) // it would see what a crash may take back
		require.NotEqual(t, PartitionFor("g", rigPartitions), PartitionFor("h", rigPartitions))
		require.NoError(t, r.heartbeat("h", member), "another partition does not wait")

		release(nil)
		require.NoError(t, (<-commit).err)
		require.EqualValues(t, 2, (<-fetch).value)
	})
}

func TestDecidedAnswersWaitUntilDurable(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		joined, err := r.join("g", "a", "")
		require.NoError(t, err)

		waiting, release := r.syncs.hold()
		assigned := outcome(func() (group.SyncAnswer, error) {
			return r.c.Sync(context.Background(), &group.SyncRequest{Group: "g", MemberID: joined.MemberID, Generation: 1})
		})
		<-waiting
		synctest.Wait()
		requireWaits(t, assigned)
		release(nil)
		require.Nil(t, (<-assigned).value.Err)
	})
}

func TestCommitsThatComeTogetherAreWrittenTogether(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var opens chan struct{}
		r := newRig(t, nil)
		defer r.stop()
		// The shard's owner is busy opening its partition while the commits come.
		opens = make(chan struct{})
		inner := r.c.opts.Open
		r.c.opts.Open = func(p int32) (journal.Partition, error) {
			<-opens
			return inner(p)
		}
		r.c.opts.Written = func(int32) bool { return true }
		const n = 100
		var pending []Commit
		for i := range n {
			pending = append(pending, r.c.BeginCommit(commitOf("g", int32(i), int64(i))))
		}
		close(opens)
		for _, p := range pending {
			errs, err := p.Wait(context.Background())
			require.NoError(t, err)
			require.Empty(t, errs)
		}
		log := r.Logs[PartitionFor("g", rigPartitions)]
		require.EqualValues(t, n, log.Bounds().End)
		require.LessOrEqual(t, batches(t, r, "g"), 2)
	})
}

// batches counts the batches in the log of a group's partition.
func batches(t *testing.T, r *rig, id string) int {
	log := r.Logs[PartitionFor(id, rigPartitions)]
	n := 0
	for next := int64(0); next < log.Bounds().HighWatermark; n++ {
		read, err := log.Read(nil, next, oneBatch)
		require.NoError(t, err)
		next = read.Next
	}
	return n
}

var errDisk = errors.New("the disk is on fire")

// TestFailedFsync holds that a commit which did not come to be durable is refused, and
// that the state afterwards is what the log holds.
func TestFailedFsync(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		require.NoError(t, r.commit("g", 1))
		member := r.lead("g2", "a")
		require.Equal(t, PartitionFor("g", rigPartitions), PartitionFor("g2", rigPartitions))
		parked := outcome(func() (group.JoinAnswer, error) { return r.join("g2", "b", "") })
		synctest.Wait()
		requireWaits(t, parked)

		waiting, release := r.syncs.hold()
		commit := outcome(func() (struct{}, error) { return struct{}{}, r.commit("g", 2) })
		<-waiting
		fetch := outcome(func() (int64, error) { return r.committed("g") })
		synctest.Wait()
		release(errDisk)
		require.ErrorIs(t, (<-commit).err, kerr.NotCoordinator)
		require.ErrorIs(t, (<-fetch).err, kerr.NotCoordinator)

		r.requireCommitted("g", 1)
		require.ErrorIs(t, (<-parked).err, kerr.NotCoordinator)
		require.NoError(t, r.heartbeat("g2", member), "the assignment was durable, and is still there")
		require.ErrorIs(t, r.commit("g", 3), kerr.NotCoordinator, "the log takes no more")
		r.requireCommitted("g", 1)
	})
}

// TestRefusedAppend holds that a partition which refuses an append goes on as before it, and
// recovers by itself.
func TestRefusedAppend(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, nil)
		defer r.stop()
		require.NoError(t, r.commit("g", 1))
		full := &fullLog{Log: r.Logs[PartitionFor("g", rigPartitions)]}
		inner := r.c.opts.Open
		r.c.opts.Open = func(p int32) (journal.Partition, error) {
			part, err := inner(p)
			part.Log = full
			return part, err
		}
		r.restartShards()
		full.full.Store(true)
		require.ErrorIs(t, r.commit("g", 2), kerr.NotCoordinator)
		r.requireCommitted("g", 1)
		full.full.Store(false)
		require.NoError(t, r.commit("g", 2))
		r.requireCommitted("g", 2)
	})
}
