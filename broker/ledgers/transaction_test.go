package ledgers

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

var one, other = individualcommit.Producer{ID: 1}, individualcommit.Producer{ID: 2}

// stage stages as a dispatcher does that holds everything, and waits.
func (r *rig) stage(s *Share, p individualcommit.Producer, runs ...individualcommit.Run) (refused error) {
	r.t.Helper()
	receipt, err := s.Stage(&cooperative.Changes{}, p, runs, func(_ *individualcommit.Ledger, why error) bool {
		refused = why
		return why == nil
	})
	require.NoError(r.t, err)
	require.NoError(r.t, s.Wait(ctx, receipt))
	return refused
}

// end ends a transaction on all partitions.
func (r *rig) end(p individualcommit.Producer, commit bool) {
	r.t.Helper()
	for index := range int32(rigPartitions) {
		require.NoError(r.t, r.c.BeginEnd(ctx, index, p.ID, commit).Wait(ctx))
	}
}

func TestTransactionsOfShareGroups(t *testing.T) {
	for name, commits := range map[string]bool{"committed": true, "aborted": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tp := part(1, 0)
			r.produce(tp, 10)
			o := &listener{}
			s := r.openShare("g", tp, o)
			require.NoError(t, r.stage(s, one, run(0, 3), run(5, 6)))
			require.NoError(t, r.stage(s, other, run(3, 4)))
			r.requireLedger("g", tp, 0, 0)
			r.end(one, commits)
			if commits {
				require.Equal(t, []string{"ended [{0 3} {5 6}], committed: true"}, o.heardSince())
				r.requireLedger("g", tp, 3, 6, run(3, 5))
			} else {
				require.Equal(t, []string{"ended [{0 3} {5 6}], committed: false"}, o.heardSince())
				r.requireLedger("g", tp, 0, 0)
			}
			r.end(one, commits) // as after a crash of who drives it
			require.Empty(t, o.heardSince())
			if !commits {
				require.NoError(t, r.stage(s, individualcommit.Producer{ID: 1, Epoch: 1}, run(0, 3)))
			}
		})
	}
}

// TestStagingIsRefused stages what the transaction may not have, of which nothing is logged.
func TestStagingIsRefused(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	s := r.openShare("g", tp, &listener{})
	r.deal(s, []individualcommit.Run{run(1, 2)})
	require.NoError(t, r.stage(s, one, run(3, 6)))
	before := r.entries()
	require.ErrorIs(t, r.stage(s, other, run(2, 4)), kerr.InvalidRecordState, "pending elsewhere")
	require.ErrorIs(t, r.stage(s, other, run(0, 2)), kerr.InvalidRecordState, "committed")
	require.ErrorIs(t, r.stage(s, other, run(9, 11)), kerr.OffsetOutOfRange)
	require.ErrorIs(t, r.stage(s, other, run(5, 5)), kerr.InvalidRequest)
	require.NoError(t, r.stage(s, one, run(3, 4), run(5, 6)), "its own once more")
	require.Equal(t, before, r.entries())
	require.ErrorIs(t, r.c.BeginEnd(ctx, rigPartitions, one.ID, true).Wait(ctx), kerr.UnknownTopicOrPartition)
}

// TestTransactionsSurviveACrash ends a transaction after a crash, when no partition is
// dealt, and has another crash follow.
func TestTransactionsSurviveACrash(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	require.NoError(t, r.stage(r.openShare("g", tp, &listener{}), one, run(2, 4)))
	r.startAfterCrash(r.fs.CrashClone(vfs.CrashCloneCfg{}))
	s := r.openShare("g", tp, &listener{})
	require.ErrorIs(t, r.stage(s, other, run(2, 3)), kerr.InvalidRecordState)
	s.Close()
	r.end(one, true)
	r.requireLedger("g", tp, 0, 4, run(0, 2))
	r.startAfterCrash(r.fs.CrashClone(vfs.CrashCloneCfg{}))
	r.requireLedger("g", tp, 0, 4, run(0, 2))
	r.end(one, false) // too late, and nothing is pending
	r.requireLedger("g", tp, 0, 4, run(0, 2))
}
