package ledgers

import (
	"maps"
	"slices"
	"testing"
	"testing/synctest"

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

// TestShareOwnerHears what others do to the ledger: just what was changed, and what it
// leaves is logged with it.
func TestShareOwnerHears(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	owner := &listener{}
	share := r.openShare("g", tp, owner)
	r.deal(share, []individualcommit.Run{run(3, 5)})
	owner.leaves = cooperative.Changes{Commit: offsets(9), Counts: []int64{0}}
	owner.counts = map[int64][]byte{0: countsOf(6, 7, 1)}

	p := commitOf(tp)
	p.Commit = []individualcommit.Run{run(2, 6)}
	r.mustCommit("g", p, 0, 10)
	require.Equal(t, []string{"committed [{2 3} {5 6}]"}, owner.heardSince())
	requireCounts(t, share, map[int64][]byte{0: countsOf(6, 7, 1)})
	r.requireLedger("g", tp, 0, 10, run(0, 2), run(6, 9))

	owner.leaves, owner.counts = cooperative.Changes{Counts: []int64{0}}, nil
	p = commitOf(tp)
	p.Reopen = []individualcommit.Run{run(0, 3), run(8, 10)}
	r.mustCommit("g", p, 0, 6)
	require.Equal(t, []string{"reopened [{2 3} {9 10}]"}, owner.heardSince())
	requireCounts(t, share, map[int64][]byte{})

	r.mustCommit("g", p, 0, 6)
	require.Empty(t, owner.heardSince(), "nothing was changed")
	r.startAfterCrash(r.fs.CrashClone(vfs.CrashCloneCfg{}))
	r.requireLedger("g", tp, 0, 6, run(0, 3))
	requireCounts(t, r.openShare("g", tp, owner), map[int64][]byte{})
}

// TestShareOwnerHearsOfTheLog: where it starts, and which offsets of it hold no record.
func TestShareOwnerHearsOfTheLog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t)
		tp := part(1, 0)
		r.produce(tp, 4)
		r.transaction(tp, 7, 0, 2) // 4, 5
		r.marker(tp, 7, true)      // 6
		r.produce(tp, 3)
		owner := &listener{counts: map[int64][]byte{0: countsOf(0, 4, 1)}}
		share := r.openShare("g", tp, owner)
		r.deal(share, nil, 0)
		owner.leaves.Counts, owner.counts[0] = []int64{0}, countsOf(2, 4, 1)

		_, err := r.Logs[extensiontest.DataDir(tp)].DeleteRecords(2)
		require.NoError(t, err)
		require.NoError(t, share.Advance())
		require.NoError(t, share.Advance())
		require.Equal(t, []string{"advanced 2"}, owner.heardSince())
		requireCounts(t, share, map[int64][]byte{0: countsOf(2, 4, 1)})

		owner.counts[0] = countsOf(3, 4, 1)
		_, err = r.Logs[extensiontest.DataDir(tp)].DeleteRecords(3)
		require.NoError(t, err)
		pass(2 * followEvery)
		synctest.Wait()
		require.Equal(t, []string{"advanced 3"}, owner.heardSince())
		require.EqualValues(t, 3, r.primary.at("g", tp))
		requireCounts(t, share, map[int64][]byte{0: countsOf(3, 4, 1)})

		delete(owner.counts, 0)
		r.deal(share, []individualcommit.Run{run(3, 6), run(8, 9)}, 0)
		pass(2 * followEvery)
		synctest.Wait()
		require.Equal(t, []string{"committed [{6 7}]"}, owner.heardSince())
		r.requireLedger("g", tp, 7, 9, run(7, 8))
		require.EqualValues(t, 7, r.primary.at("g", tp))
		r.stop()
	})
}

// TestCountsWithoutAnOwner: while nobody deals, what is reopened starts again without
// deliveries, and what is done is no longer counted when the next one comes.
func TestCountsWithoutAnOwner(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 3000)
	owner := &listener{counts: map[int64][]byte{0: countsOf(2, 9, 1), 1: countsOf(0, 4, 2), 2: {7, 'l', 'a', 't', 'e', 'r'}}}
	share := r.openShare("g", tp, owner)
	r.deal(share, []individualcommit.Run{run(4, 6), run(1024, 2050)}, 0, 1, 2)
	share.Close()

	r.mustCommit("g", reopenOf(tp, 0, 5, 2049), 0, 2049)
	require.Contains(t, r.warnings(), "delivery counts cannot be read and are forgotten: block 2: unknown version of delivery counts: 7")
	share = r.openShare("g", tp, owner)
	requireCounts(t, share, map[int64][]byte{0: {0, 2, 2, 3, 1, 0, 1, 3, 1, 0}})
	share.Close()
	r.mustCommit("g", commitOf(tp, 2, 3, 5, 6, 7, 8), 0, 2049)
	share = r.openShare("g", tp, owner)
	requireCounts(t, share, map[int64][]byte{0: {0, 2, 2, 3, 1, 0, 1, 3, 1, 0}})
	share.Close()
	p := commitOf(tp)
	p.Commit = []individualcommit.Run{run(0, 1024)}
	r.mustCommit("g", p, 2049, 2049)
	requireCounts(t, r.openShare("g", tp, owner), map[int64][]byte{})
}

// TestUncleanStopCutsCountsOff: a new record does not inherit the deliveries of one that
// was lost.
func TestUncleanStopCutsCountsOff(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 3000)
	owner := &listener{counts: map[int64][]byte{0: countsOf(2, 9, 1), 1: countsOf(0, 4, 2)}}
	r.deal(r.openShare("g", tp, owner), nil, 0, 1)
	r.stop()
	require.NoError(t, r.fs.RemoveAll(extensiontest.DataDir(tp)))
	r.produceAfterUnclean(tp, 5)
	requireCounts(t, r.openShare("g", tp, owner), map[int64][]byte{0: countsOf(2, 5, 1)})
	r.produce(tp, 3000)
	r.stop()
	require.NoError(t, r.fs.RemoveAll("views"))
	r.start()
	requireCounts(t, r.openShare("g", tp, owner), map[int64][]byte{0: countsOf(2, 5, 1)})
}

// produceAfterUnclean makes a log anew, with n records, before the ledgers are opened
// after an unclean stop.
func (r *rig) produceAfterUnclean(tp extension.TopicPartition, n int) {
	r.t.Helper()
	r.start()
	r.c.stop()
	r.c.wg.Wait()
	r.produce(tp, n)
	r.closeFiles()
	r.c, r.unclean = nil, true
	r.start()
}

// TestLossOfTheInternalLogTakesCounts along with the ledger, also from a view or a log
// that still has some.
func TestLossOfTheInternalLogTakesCounts(t *testing.T) {
	for name, lose := range map[string]func(*rig, int32){
		"the log": func(r *rig, partition int32) {
			require.NoError(r.t, r.fs.RemoveAll(extensiontest.JournalDir(partition)))
		},
		"a batch": func(r *rig, partition int32) {
			require.NoError(r.t, r.fs.RemoveAll("views"))
			r.damage(partition, func(int64) int64 { return 80 })
		},
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tp := part(1, 0)
			r.produce(tp, 10)
			owner := &listener{counts: map[int64][]byte{0: countsOf(2, 9, 1)}}
			share := r.openShare("g", tp, owner)
			r.deal(share, nil, 0)
			partition := r.c.shardOf("g").index
			r.stop()
			lose(r, partition)
			r.start()
			r.requireNoLedger("g", tp)
			require.Empty(t, r.countsInLog(partition), "they are buried")
			for range 2 {
				requireCounts(t, r.openShare("g", tp, owner), map[int64][]byte{})
				r.stop()
				require.NoError(t, r.fs.RemoveAll("views"))
				r.start()
			}
		})
	}
}

// countsInLog are the records of counts that a thorough cleaner would leave.
func (r *rig) countsInLog(partition int32) map[int64][]byte {
	r.t.Helper()
	log := r.Logs[extensiontest.JournalDir(partition)]
	if log == nil {
		return nil
	}
	left := map[int64][]byte{}
	for at, end := log.Bounds().Start, log.Bounds().End; at < end; {
		read, err := log.Read(nil, at, commitlog.ReadOptions{MinOne: true, UpTo: end})
		if err != nil { // damaged
			at++
			continue
		}
		h, err := protocol.ParseBatchHeader(read.Data)
		require.NoError(r.t, err)
		records := protocol.IterateRecords(&h, read.Data[protocol.BatchHeaderLen:h.Size()])
		for records.Next() {
			k, err := individualcommit.ParseKey(records.Record().Key)
			require.NoError(r.t, err)
			if k.Kind == individualcommit.KindCounts {
				left[k.Block] = records.Record().Value
			}
		}
		at = h.NextOffset()
	}
	maps.DeleteFunc(left, func(_ int64, value []byte) bool { return value == nil })
	return left
}

func TestShareOfALaterVersionIsRefused(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	owner := &listener{counts: map[int64][]byte{0: countsOf(2, 9, 1)}}
	r.deal(r.openShare("g", tp, owner), nil, 0)
	key := individualcommit.Key{ID: idOf("g", tp), Kind: individualcommit.KindCounts}
	r.appendLater(key)
	for range 2 {
		_, err := r.c.OpenShare(ctx, "g", tp, 0, owner)
		require.ErrorIs(t, err, kerr.UnsupportedVersion)
		r.restart()
	}
	require.Equal(t, []string{"gone"}, slices.Compact(owner.heard))
}
