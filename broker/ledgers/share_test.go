package ledgers

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/extension/extensiontest"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// listener is an owner that notes what it hears, and leaves behind what it is told to.
type listener struct {
	heard  []string
	leaves cooperative.Changes
	counts map[int64][]byte
}

func (o *listener) hear(out *cooperative.Changes, format string, args ...any) {
	o.heard = append(o.heard, fmt.Sprintf(format, args...))
	out.Commit, out.Counts = append(out.Commit, o.leaves.Commit...), append(out.Counts, o.leaves.Counts...)
}

func (o *listener) Committed(runs []individualcommit.Run, out *cooperative.Changes) {
	o.hear(out, "committed %v", runs)
}

func (o *listener) Reopened(runs []individualcommit.Run, out *cooperative.Changes) {
	o.hear(out, "reopened %v", runs)
}

func (o *listener) Advanced(logStart int64, out *cooperative.Changes) {
	o.hear(out, "advanced %d", logStart)
}

func (o *listener) Ended(runs []individualcommit.Run, committed bool, out *cooperative.Changes) {
	o.hear(out, "ended %v, committed: %v", runs, committed)
}

func (o *listener) Gone() { o.heard = append(o.heard, "gone") }

func (o *listener) AppendCounts(dst []byte, block int64) []byte {
	return append(dst, o.counts[block]...)
}

// heardSince gives what was heard since the last call.
func (o *listener) heardSince() []string {
	heard := o.heard
	o.heard = nil
	return heard
}

// countsOf is a value of counts: the offsets of a block from, up to to, were delivered n
// times.
func countsOf(from, to, n byte) []byte { return []byte{0, 1, from, to - from, n, 0} }

func (r *rig) openShare(group string, tp extension.TopicPartition, owner ShareOwner) *Share {
	r.t.Helper()
	share, err := r.c.OpenShare(ctx, group, tp, 0, owner)
	require.NoError(r.t, err)
	return share
}

// deal commits and counts as a dispatcher does, and waits.
func (r *rig) deal(s *Share, commit []individualcommit.Run, blocks ...int64) {
	r.t.Helper()
	out := cooperative.Changes{Commit: commit, Counts: blocks}
	receipt, err := s.Do(&out, func(*individualcommit.Ledger) {})
	require.NoError(r.t, err)
	require.NoError(r.t, s.Wait(ctx, receipt))
}

// requireCounts checks the counts that are logged.
func requireCounts(t testing.TB, s *Share, want map[int64][]byte) {
	t.Helper()
	var got map[int64][]byte
	_, err := s.Do(&cooperative.Changes{}, func(*individualcommit.Ledger) {
		got = maps.Collect(s.Counts())
	})
	require.NoError(t, err)
	require.Equal(t, want, got)
}

// entries is the number of records in all internal logs.
func (r *rig) entries() (n int64) {
	for p := range int32(rigPartitions) {
		if log := r.Logs[extensiontest.JournalDir(p)]; log != nil {
			n += log.Bounds().End
		}
	}
	return n
}

func TestOpenShareFoundsTheLedger(t *testing.T) {
	for name, of := range map[string]struct {
		committed, origin int64 // below 0: there is none
		want              int64
	}{
		"at the origin":           {-1, 7, 7},
		"at the end":              {-1, 99, 10},
		"at the start":            {-1, 0, 2},
		"where the group stands":  {5, 7, 5},
		"where the group stood":   {1, 7, 2},
		"where the group will be": {12, 7, 12},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tp := part(1, 0)
			r.produce(tp, 10)
			_, err := r.Logs[extensiontest.DataDir(tp)].DeleteRecords(2)
			require.NoError(t, err)
			if of.committed >= 0 {
				require.NoError(t, r.primary.Put(ctx, "g", []extension.CommittedOffset{{TopicPartition: tp, Offset: of.committed, Metadata: "m"}}))
			}
			founded, err := r.c.Founded(ctx, "g", tp)
			require.NoError(t, err)
			require.False(t, founded)
			share, err := r.c.OpenShare(ctx, "g", tp, of.origin, nil)
			require.NoError(t, err)
			require.Nil(t, share)
			require.Equal(t, of.want, r.primary.at("g", tp))

			r.startAfterCrash(r.fs.CrashClone(vfs.CrashCloneCfg{}))
			founded, err = r.c.Founded(ctx, "g", tp)
			require.NoError(t, err)
			require.True(t, founded)
			before := r.entries()
			share, err = r.c.OpenShare(ctx, "g", tp, 4, &listener{})
			require.NoError(t, err)
			require.NotNil(t, share)
			require.Equal(t, before, r.entries(), "the origin is for one that is founded")
			require.Equal(t, min(of.want, 10), r.fetch("g", tp).Offset, "after a crash it is at most the end")
		})
	}
}

func TestOpenShareRefuses(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	_, err := r.c.OpenShare(ctx, string(make([]byte, 40_000)), tp, 0, &listener{})
	require.ErrorIs(t, err, kerr.InvalidGroupID)
	r.Gone[part(2, 0)] = extension.ErrUnknownPartition
	_, err = r.c.OpenShare(ctx, "g", part(2, 0), 0, &listener{})
	require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
	r.limit = 100
	_, err = r.c.OpenShare(ctx, "g", tp, 0, &listener{})
	require.ErrorIs(t, err, kerr.PolicyViolation)
	r.limit = 1 << 20
	r.primary.fail(errors.New("not now"))
	_, err = r.c.OpenShare(ctx, "g", tp, 0, &listener{})
	require.ErrorContains(t, err, "not now")
	r.primary.fail(nil)
	share := r.openShare("g", tp, &listener{})
	require.EqualValues(t, 0, r.primary.at("g", tp), "it follows also when the ledger was there")

	require.NoError(t, share.Room(1000))
	require.ErrorIs(t, share.Room(1<<20), kerr.PolicyViolation)
}

func TestShareOpenedByManyAtOnceIsOneLedger(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	owners := make([]*listener, 8)
	shares := make([]*Share, len(owners))
	var wg sync.WaitGroup
	for i := range owners {
		owners[i] = &listener{}
		wg.Go(func() { shares[i], _ = r.c.OpenShare(ctx, "g", tp, int64(i), owners[i]) })
	}
	wg.Wait()
	require.EqualValues(t, 1, r.entries())
	alive := 0
	for i, owner := range owners {
		_, err := shares[i].Do(&cooperative.Changes{}, func(*individualcommit.Ledger) { alive++ })
		if err != nil {
			require.ErrorIs(t, err, ErrShareGone)
			require.Equal(t, []string{"gone"}, owner.heard)
		}
	}
	require.Equal(t, 1, alive, "the last to open it has it")

	// Nor is it founded again by who found none, and came second.
	_, err := r.c.shardOf("g").foundShareAt(ctx, idOf("g", tp), 9)
	require.NoError(t, err)
	require.EqualValues(t, 1, r.entries())
}

// TestShareLogsCommitsAndCountsTogether and after a crash both are there.
func TestShareLogsCommitsAndCountsTogether(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 5000)
	owner := &listener{counts: map[int64][]byte{0: countsOf(5, 9, 1), 3: countsOf(0, 4, 2)}}
	share := r.openShare("g", tp, owner)
	log := r.Logs[extensiontest.JournalDir(r.c.shardOf("g").index)]
	batches := log.Bounds().End
	r.deal(share, []individualcommit.Run{run(0, 3), run(20, 30)}, 0, 3)
	require.Equal(t, batches+3, log.Bounds().End)
	read, err := log.Read(nil, batches, commitlog.ReadOptions{MaxBytes: 1 << 20, UpTo: batches + 3})
	require.NoError(t, err)
	h, err := protocol.ParseBatchHeader(read.Data)
	require.NoError(t, err)
	require.EqualValues(t, 3, h.NumRecords, "one batch")

	before := r.entries()
	r.deal(share, []individualcommit.Run{run(1, 2)}, 0, 3) // known already
	r.deal(share, nil)
	require.Equal(t, before, r.entries())

	delete(owner.counts, 0)
	r.deal(share, nil, 0)
	requireCounts(t, share, map[int64][]byte{3: countsOf(0, 4, 2)})
	r.startAfterCrash(r.fs.CrashClone(vfs.CrashCloneCfg{}))
	share = r.openShare("g", tp, owner)
	requireCounts(t, share, map[int64][]byte{3: countsOf(0, 4, 2)})
	r.requireLedger("g", tp, 3, 30, run(3, 20))
	require.Empty(t, owner.heard)
}

// TestShareAnswersWaitForTheDisk, also those that changed nothing themselves.
func TestShareAnswersWaitForTheDisk(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	share := r.openShare("g", tp, &listener{})
	waiting, release := r.gate.hold("")
	release = sync.OnceFunc(release)
	defer release()
	first, err := share.Do(&cooperative.Changes{Commit: offsets(3)}, func(*individualcommit.Ledger) {})
	require.NoError(t, err)
	<-waiting
	second, err := share.Do(&cooperative.Changes{}, func(*individualcommit.Ledger) {})
	require.NoError(t, err)
	stopped, cancel := context.WithCancel(ctx)
	cancel()
	for _, receipt := range []ShareReceipt{first, second} {
		select {
		case <-receipt.Done():
			t.Error("it is not durable")
		default:
		}
		require.ErrorIs(t, share.Wait(stopped, receipt), context.Canceled)
	}
	release()
	<-second.Done()
	require.NoError(t, share.Wait(stopped, second), "what is durable is so for everybody")
	require.NoError(t, share.Wait(ctx, first))
}

// TestShareIsGone whatever took the ledger away from its owner.
func TestShareIsGone(t *testing.T) {
	tp := part(1, 0)
	for name, end := range map[string]func(*rig, *Share){
		"group deleted": func(r *rig, _ *Share) { require.NoError(r.t, r.c.DeleteGroup(ctx, "g")) },
		"partition deleted": func(r *rig, _ *Share) {
			require.NoError(r.t, r.c.DeletePartitions(ctx, "g", []extension.TopicPartition{tp}))
		},
		"topic deleted": func(r *rig, _ *Share) { require.NoError(r.t, r.c.DeleteTopic(ctx, tp.Topic)) },
		"rewound":       func(r *rig, _ *Share) { r.mustCommit("g", plainOf(tp, 2, ""), 2, 2) },
		"set":           func(r *rig, _ *Share) { r.mustCommit("g", plainOf(tp, 8, ""), 8, 8) },
		"opened again":  func(r *rig, _ *Share) { r.openShare("g", tp, &listener{}) },
		"write failed": func(r *rig, s *Share) {
			r.gate.failWrites(errors.New("the disk is gone"))
			_, err := s.Do(&cooperative.Changes{Commit: offsets(7)}, func(*individualcommit.Ledger) {})
			require.ErrorContains(r.t, err, "the disk is gone")
			require.NotErrorIs(r.t, err, ErrShareGone, "its function was called")
		},
		"fsync failed": func(r *rig, s *Share) {
			r.gate.failSyncs(errors.New("the disk is gone"))
			receipt, err := s.Do(&cooperative.Changes{Commit: offsets(7)}, func(*individualcommit.Ledger) {})
			require.NoError(r.t, err)
			require.ErrorContains(r.t, s.Wait(ctx, receipt), "the disk is gone")
		},
		"fsync failed for another": func(r *rig, _ *Share) {
			r.gate.failSyncs(errors.New("the disk is gone"))
			require.Error(r.t, r.commit("g", commitOf(part(1, 1), 1))[0].Err)
		},
		"ledger disagrees": func(r *rig, s *Share) {
			_, err := s.Do(&cooperative.Changes{Commit: []individualcommit.Run{run(7, 7)}}, func(*individualcommit.Ledger) {})
			require.ErrorIs(r.t, err, individualcommit.ErrInvalidRuns)
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			r.produce(tp, 10)
			r.produce(part(1, 1), 10)
			r.mustCommit("g", commitOf(part(1, 1), 0), 1, 1)
			owner := &listener{counts: map[int64][]byte{0: countsOf(4, 5, 1)}}
			share := r.openShare("g", tp, owner)
			r.deal(share, offsets(0, 1, 2, 3, 5), 0)
			end(r, share)
			require.Equal(t, []string{"gone"}, owner.heard)
			_, err := share.Do(&cooperative.Changes{}, func(*individualcommit.Ledger) { t.Error("it was called") })
			require.ErrorIs(t, err, ErrShareGone)
			require.ErrorIs(t, share.Advance(), ErrShareGone)
			share.Close()
			require.Equal(t, []string{"gone"}, owner.heard)

			r.gate.failWrites(nil)
			r.gate.failSyncs(nil)
			r.startAfterCrash(r.fs.CrashClone(vfs.CrashCloneCfg{}))
			share = r.openShare("g", tp, owner)
			switch name {
			case "opened again", "write failed", "fsync failed", "fsync failed for another", "ledger disagrees":
				requireCounts(t, share, map[int64][]byte{0: countsOf(4, 5, 1)})
				r.requireLedger("g", tp, 4, 6, run(4, 5))
			default:
				requireCounts(t, share, map[int64][]byte{})
			}
		})
	}
}

// TestShareIsClosed by an owner that is no longer interested.
func TestShareIsClosed(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	owner := &listener{}
	first := r.openShare("g", tp, owner)
	first.Close()
	r.mustCommit("g", commitOf(tp, 3), 0, 4)
	other := &listener{}
	r.openShare("g", tp, other)
	first.Close()
	r.mustCommit("g", commitOf(tp, 4), 0, 5)
	require.NoError(t, r.c.DeleteGroup(ctx, "g"))
	require.Empty(t, owner.heard)
	require.Equal(t, []string{"committed [{4 5}]", "gone"}, other.heard)
}
