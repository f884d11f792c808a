package coordinator

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func txnCommitOf(producer group.Producer, id string, partition int32, offset int64) *group.TxnCommitRequest {
	return &group.TxnCommitRequest{CommitRequest: *commitOf(id, partition, offset), Producer: producer}
}

func (r *rig) commitIn(producer group.Producer, id string, offset int64) error {
	_, err := r.c.CommitInTransaction(context.Background(), txnCommitOf(producer, id, 0, offset))
	return err
}

// end ends a transaction of version 2, whose marker has an epoch of its own.
func (r *rig) end(producer group.Producer, id string, commit bool) error {
	return r.c.EndTransaction(context.Background(), PartitionFor(id, rigPartitions),
		protocol.EndTxnMarker{ProducerID: producer.ID, ProducerEpoch: producer.Epoch + 1, Commit: commit}, 2)
}

// requirePending is requireCommitted with a transaction that may change it.
func (r *rig) requirePending(id string, offset int64) {
	r.t.Helper()
	found, err := r.c.Committed(context.Background(), id, []PartitionOf{{TopicPartition: group.TopicPartition{Topic: "t"}}})
	require.NoError(r.t, err)
	require.True(r.t, found[0].Pending)
	if !found[0].OK {
		found[0].Offset = -1
	}
	require.Equal(r.t, offset, found[0].Offset)
}

// restartWithoutViews replays the logs, and starts once more with the views made of that.
func (r *rig) restartWithoutViews() {
	r.Age++
	r.restart()
	require.NoError(r.t, r.c.Load(context.Background()))
	r.restart()
}

func TestTransactions(t *testing.T) {
	r := newRig(t, nil)
	a, b := group.Producer{ID: 1, Epoch: 3}, group.Producer{ID: 2}
	require.NoError(t, r.commitIn(a, "g", 5))
	r.requirePending("g", -1)
	require.NoError(t, r.end(a, "g", true))
	r.requireCommitted("g", 5)
	require.NoError(t, r.end(a, "g", true), "driven again")

	require.NoError(t, r.commitIn(b, "g", 6))
	require.NoError(t, r.end(b, "g", false))
	r.requireCommitted("g", 5)

	// What came later counts, also when it went through a view.
	for _, restart := range []func(){func() {}, r.restart, r.restartShards, r.restartWithoutViews} {
		b.Epoch++
		require.NoError(t, r.commitIn(b, "g", 7))
		restart()
		require.NoError(t, r.commit("g", 8))
		restart()
		r.requirePending("g", 8)
		require.NoError(t, r.end(b, "g", true))
		restart()
		r.requireCommitted("g", 8)

		b.Epoch++
		require.NoError(t, r.commitIn(b, "g", 9))
		restart()
		r.requirePending("g", 8)
		require.NoError(t, r.end(b, "g", true))
		restart()
		r.requireCommitted("g", 9)
	}
}

// TestTransactionsThatTheLogRefuses holds that a producer that was fenced is told so, and
// that nobody else notices.
func TestTransactionsThatTheLogRefuses(t *testing.T) {
	r := newRig(t, nil)
	old, current := group.Producer{ID: 1, Epoch: 3}, group.Producer{ID: 1, Epoch: 5}
	require.NoError(t, r.commitIn(current, "g", 5))
	release := r.holdTurn("g") // what follows is in one turn
	var all []func() error
	for i := range int64(50) {
		plain := r.c.BeginCommit(commitOf("g", 0, i))
		late := r.c.BeginCommitInTransaction(txnCommitOf(old, "g", 0, 100+i))
		again := r.c.BeginEndTransaction(PartitionFor("g", rigPartitions), protocol.EndTxnMarker{ProducerID: 1, ProducerEpoch: 4}, 2)
		fine := r.c.BeginCommitInTransaction(txnCommitOf(current, "g", 0, 6+i))
		all = append(all, func() error {
			_, err := plain.Wait(context.Background())
			return err
		}, func() error {
			if _, err := late.Wait(context.Background()); !errors.Is(err, kerr.InvalidProducerEpoch) {
				return fmt.Errorf("the late commit: %w", err)
			}
			if err := again.Wait(context.Background()); !errors.Is(err, kerr.InvalidProducerEpoch) {
				return fmt.Errorf("the late marker: %w", err)
			}
			return nil
		}, func() error {
			_, err := fine.Wait(context.Background())
			return err
		})
	}
	release()
	for _, wait := range all {
		require.NoError(t, wait())
	}
	require.Equal(t, map[int32]int{PartitionFor("g", rigPartitions): 1}, r.Opened, "nothing was loaded anew")
	r.requirePending("g", 49)
	r.restartWithoutViews() // the log has all in the order of the requests
	r.requirePending("g", 49)
	require.NoError(t, r.end(current, "g", true))
	r.requireCommitted("g", 55)
	require.ErrorIs(t, r.commitIn(current, "g", 1), kerr.InvalidProducerEpoch, "the marker raised it")
	require.NoError(t, r.commitIn(group.Producer{ID: 1, Epoch: 6}, "g", 1))
	require.ErrorIs(t, r.c.EndTransaction(context.Background(), PartitionFor("g", rigPartitions),
		protocol.EndTxnMarker{ProducerID: 1, ProducerEpoch: 7, CoordinatorEpoch: -1}, 2), kerr.TransactionCoordinatorFenced)
}

// holdTurn keeps the group's shard busy until release is called.
func (r *rig) holdTurn(id string) (release func()) {
	begun, done := make(chan struct{}), make(chan struct{})
	begin(r.c.shardOf(id), func(*turn) struct{} {
		close(begun)
		<-done
		return struct{}{}
	})
	<-begun
	return func() { close(done) }
}

// TestTransactionsInOneTurn holds that the log has plain commits, those in transactions
// and markers in the order of the requests, however they are written.
func TestTransactionsInOneTurn(t *testing.T) {
	ctx := context.Background()
	for _, requests := range []string{"p", "s", "ps", "sp", "pspe", "spe", "pse", "spse", "psep", "spep", "sepspe", "psaps", "spaes", "pppsseppsse"} {
		t.Run(requests, func(t *testing.T) {
			r := newRig(t, nil)
			require.NoError(t, r.commit("g", 100))
			want, staged, producer := int64(100), int64(0), group.Producer{ID: 1}
			release := r.holdTurn("g")
			var commits []Commit
			var ends []End
			for i, kind := range requests {
				offset := int64(i)
				switch kind {
				case 'p':
					commits = append(commits, r.c.BeginCommit(commitOf("g", 0, offset)))
					want = offset
					if staged > 0 {
						staged = -1
					}
				case 's':
					commits = append(commits, r.c.BeginCommitInTransaction(txnCommitOf(producer, "g", 0, 200+offset)))
					staged = 200 + offset
				default:
					producer.Epoch++
					ends = append(ends, r.c.BeginEndTransaction(PartitionFor("g", rigPartitions),
						protocol.EndTxnMarker{ProducerID: 1, ProducerEpoch: producer.Epoch, Commit: kind == 'e'}, 2))
					if kind == 'e' && staged > 0 {
						want = staged
					}
					staged = 0
				}
			}
			release()
			for _, c := range commits {
				_, err := c.Wait(ctx)
				require.NoError(t, err)
			}
			for _, e := range ends {
				require.NoError(t, e.Wait(ctx))
			}
			for range 2 {
				if staged != 0 {
					r.requirePending("g", want)
				} else {
					r.requireCommitted("g", want)
				}
				r.restartWithoutViews()
			}
			require.NoError(t, r.end(producer, "g", true))
			if staged > 0 {
				want = staged
			}
			r.requireCommitted("g", want)
		})
	}
}

// TestClampInTransaction holds that an offset which is lowered within its transaction stays
// in it.
func TestClampInTransaction(t *testing.T) {
	r := newRig(t, nil)
	producer := group.Producer{ID: 1}
	require.NoError(t, r.commit("g", 70))
	require.NoError(t, r.commitIn(producer, "g", 30))
	require.NoError(t, r.commitIn(producer, "h", 60))
	end := func(string, [16]byte, int32) (int64, bool) { return 50, true }
	n, err := r.c.Clamp(context.Background(), end)
	require.NoError(t, err)
	require.Equal(t, 2, n)
	for range 2 {
		r.requirePending("g", 50)
		r.requirePending("h", -1)
		r.restartWithoutViews()
	}
	require.NoError(t, r.end(producer, "g", true))
	require.NoError(t, r.end(producer, "h", true))
	r.requireCommitted("g", 30)
	r.requireCommitted("h", 50)
}

// TestEndWithoutOffsets holds that partitions which were never written stay so, and that
// there is one to end a transaction in.
func TestEndWithoutOffsets(t *testing.T) {
	r := newRig(t, nil)
	producer := group.Producer{ID: 1}
	require.NoError(t, r.end(producer, "g", true))
	require.Empty(t, r.Opened)
	require.NoError(t, r.commit("g", 1))
	require.NoError(t, r.end(producer, "g", true))
	require.NoError(t, r.end(producer, "g", true))
	r.requireCommitted("g", 1)
	for _, partition := range []int32{-1, rigPartitions} {
		require.ErrorIs(t, r.c.EndTransaction(context.Background(), partition, protocol.EndTxnMarker{}, 2), kerr.UnknownTopicOrPartition)
	}
}

// TestTransactionsOnAFullDisk holds that a commit which could not be written has not
// happened, nor has a marker.
func TestTransactionsOnAFullDisk(t *testing.T) {
	full := &fullLog{}
	r := newRig(t, func(o *Options) {
		inner := o.Open
		o.Open = func(p int32) (journal.Partition, error) {
			part, err := inner(p)
			full.Log = part.Log
			part.Log = full
			return part, err
		}
	})
	producer := group.Producer{ID: 1}
	require.NoError(t, r.commitIn(producer, "g", 5))
	full.full.Store(true)
	require.ErrorIs(t, r.end(producer, "g", true), kerr.NotCoordinator)
	require.ErrorIs(t, r.commitIn(producer, "g", 6), kerr.NotCoordinator)
	r.requirePending("g", -1)
	full.full.Store(false)
	require.NoError(t, r.end(producer, "g", true))
	r.requireCommitted("g", 5)
}
