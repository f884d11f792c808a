package dealer

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
)

var one, other = individualcommit.Producer{ID: 1}, individualcommit.Producer{ID: 2}

// stage has offsets [start, end) pending in a transaction, and waits until that is durable.
func (r *rig) stage(member string, p individualcommit.Producer, start, end int64) error {
	a := r.d.BeginStage(ctx, "g", member, tp, p, []individualcommit.Run{{Start: start, End: end}})
	return a.Wait(ctx)
}

func (r *rig) endStage(p individualcommit.Producer, commit bool) {
	r.t.Helper()
	require.NoError(r.t, r.ledgers.BeginEnd(ctx, 0, p.ID, commit).Wait(ctx))
}

// What is pending in a transaction has no deadline, comes to nobody and cannot be
// acknowledged. When it commits, that is done.
func TestStagedAndCommitted(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(4)
		r.groups.join("a", "b")
		require.Equal(t, upTo(3), r.fetch("a", 3))
		require.NoError(t, r.stage("a", one, 0, 2))
		require.NoError(t, r.stage("a", one, 0, 2), "once more")
		require.ErrorIs(t, r.ack("a", cooperative.Accept, 0, 1), kerr.InvalidRecordState)
		require.ErrorIs(t, r.ack("a", cooperative.Renew, 1, 2), kerr.InvalidRecordState)
		time.Sleep(2 * lockMs * time.Millisecond)
		synctest.Wait()
		require.Equal(t, []int64{2, 3}, r.fetch("b", 4), "the lock of one ran out, it was not staged")
		waiting := r.begin(query("b", 4))
		synctest.Wait()
		r.mustAck("b", cooperative.Accept, 2, 4)
		r.endStage(one, true)
		synctest.Wait()
		waiting.waits()
		require.EqualValues(t, 4, r.stable())
	})
}

// What a transaction that aborts had pending comes again, to those who wait for it.
func TestStagedAndAborted(t *testing.T) {
	for _, mode := range []share.Mode{share.RoundRobin, share.KeyOrdered, share.KeyRange} {
		for _, left := range []bool{false, true} {
			bubble(t, func(t *testing.T, r *rig) {
				r.groups.mode(mode)
				r.groups.join("a")
				r.produce("k", "k")
				require.Equal(t, upTo(2), r.fetch("a", 2))
				require.NoError(t, r.stage("a", one, 0, 2))
				r.groups.join("b")
				waiting := []*pending{r.begin(query("b", 2))}
				if left {
					r.groups.leave("a")
				} else {
					waiting = append(waiting, r.begin(query("a", 2)))
				}
				synctest.Wait()
				for _, w := range waiting {
					w.waits()
				}
				r.endStage(one, false)
				synctest.Wait()
				for offset, state := range []cooperative.State{cooperative.Acquired, cooperative.Available} {
					e, ok := r.d.Explain("g", tp, int64(offset))
					require.True(t, ok)
					require.False(t, e.Staged)
					require.Equal(t, 1, e.Deliveries)
					if e.State != cooperative.Acquired { // it waits for whoever has the first of its key
						require.Equal(t, state, e.State)
					}
				}
			})
		}
	}
}

// A transaction gets what its member has acquired, and all or nothing.
func TestStagingNeedsTheAcquisition(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.produceN(6)
		r.groups.join("a", "b")
		require.ErrorIs(t, r.stage("a", one, 0, 1), kerr.InvalidRecordState, "there is no ledger")
		require.Equal(t, upTo(3), r.fetch("a", 3))
		require.Equal(t, between(3, 5), r.fetch("b", 2))
		require.ErrorIs(t, r.stage("a", one, 2, 4), kerr.InvalidRecordState)
		require.ErrorIs(t, r.stage("a", one, 5, 6), kerr.InvalidRecordState)
		require.ErrorIs(t, r.stage("a", one, 5, 7), kerr.OffsetOutOfRange)
		require.ErrorIs(t, r.stage("a", one, 2, 2), kerr.InvalidRequest)
		r.mustAck("a", cooperative.Accept, 2, 3)
		require.ErrorIs(t, r.stage("a", one, 2, 3), kerr.InvalidRecordState, "it is accepted")
		require.NoError(t, r.stage("a", one, 0, 2))
		require.ErrorIs(t, r.stage("a", other, 0, 1), kerr.InvalidRecordState, "another transaction has it")
		time.Sleep(lockMs * time.Millisecond)
		require.ErrorIs(t, r.stage("b", other, 3, 5), kerr.InvalidRecordState, "the lock ran out")
		r.endStage(one, true)
		require.EqualValues(t, 3, r.stable())
	})
}

// Pending records stay so when the broker crashes, whether somebody fetches after it or not.
func TestStagedThenCrashed(t *testing.T) {
	for _, commits := range []bool{false, true} {
		for _, fetched := range []bool{false, true} {
			bubble(t, func(t *testing.T, r *rig) {
				r.produceN(4)
				r.groups.join("a")
				require.Equal(t, upTo(4), r.fetch("a", 4))
				require.NoError(t, r.stage("a", one, 1, 3))
				r.crash()
				require.NoError(t, r.stage("a", one, 1, 3), "the client did not hear of it")
				require.ErrorIs(t, r.stage("a", other, 1, 3), kerr.InvalidRecordState)
				r.groups.join("a", "b")
				if fetched {
					require.Equal(t, []int64{0, 3}, r.fetch("b", 4))
				}
				r.endStage(one, commits)
				r.crash()
				r.groups.join("b")
				if commits {
					require.Equal(t, []int64{0, 3}, r.fetch("b", 4))
				} else {
					require.Equal(t, upTo(4), r.fetch("b", 4))
				}
			})
		}
	}
}

// An abort is a delivery that ended: at the limit the record is archived, its dead letter
// first.
func TestAbortedAtTheLimit(t *testing.T) {
	bubble(t, func(t *testing.T, r *rig) {
		r.change(func(s *Settings) { s.Limits.Deliveries = 1 })
		r.produceN(2)
		r.groups.join("a")
		require.Equal(t, upTo(2), r.fetch("a", 2))
		require.NoError(t, r.stage("a", one, 0, 1))
		r.endStage(one, false)
		require.EqualValues(t, 1, r.stable())
	})
}
