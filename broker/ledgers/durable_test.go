package ledgers

import (
	"context"
	"errors"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/extension/extensiontest"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
)

// TestAnswersWaitForTheDisk: neither a commit nor a read of what it changed is answered
// before it is durable, nor does a commit that changes nothing get ahead of one that does.
func TestAnswersWaitForTheDisk(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	r.mustCommit("g", commitOf(tp, 1), 0, 2)

	waiting, release := r.gate.hold("")
	first := r.c.Begin(ctx, &extension.Member{Group: "g", Generation: -1}, []PartitionCommit{commitOf(tp, 3)})
	<-waiting
	again := r.c.Begin(ctx, &extension.Member{Group: "g", Generation: -1}, []PartitionCommit{commitOf(tp, 3)})
	gone, cancel := context.WithCancel(ctx)
	cancel()
	require.ErrorIs(t, first.Wait(gone)[0].Err, context.Canceled)
	require.ErrorIs(t, again.Wait(gone)[0].Err, context.Canceled)
	_, err := r.c.Fetch(gone, "g", []extension.TopicPartition{tp}, nil)
	require.ErrorIs(t, err, context.Canceled)

	answered := make(chan View)
	go func() {
		views, _ := r.c.Fetch(ctx, "g", []extension.TopicPartition{tp}, nil)
		answered <- views[0]
	}()
	release()
	require.EqualValues(t, 4, (<-answered).MaxCommit)
}

// TestAFailedWriteChangesNothing: what the log did not take is forgotten, also in memory,
// whether a write fails or an fsync.
func TestAFailedWriteChangesNothing(t *testing.T) {
	for name, fail := range map[string]func(*gate, error){"write": (*gate).failWrites, "fsync": (*gate).failSyncs} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tp := part(1, 0)
			r.produce(tp, 10)
			r.mustCommit("g", commitOf(tp, 1), 0, 2)
			fail(r.gate, errors.New("the disk is gone"))
			require.Error(t, r.commit("g", commitOf(tp, 3))[0].Err)
			r.requireLedger("g", tp, 0, 2, run(0, 1))
			require.Error(t, r.commit("g", commitOf(tp, 3))[0].Err)
			r.requireLedger("g", tp, 0, 2, run(0, 1))
			fail(r.gate, nil)
			r.startAfterCrash(r.fs.CrashClone(vfs.CrashCloneCfg{}))
			r.requireLedger("g", tp, 0, 2, run(0, 1))
			r.mustCommit("g", commitOf(tp, 3), 0, 4)
		})
	}
}

// TestALedgerLargerThanASegment of the internal log is logged all the same.
func TestALedgerLargerThanASegment(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 20_000)
	r.stop()
	r.segmentBytes = 500
	r.start()
	for from := int64(0); from < 20_000; from += 400 {
		var some []int64
		for x := from; x < from+400; x += 2 + x*x%5 {
			some = append(some, x)
		}
		require.NoError(t, r.commit("g", commitOf(tp, some...))[0].Err)
	}
	want := r.fetch("g", tp).Gaps
	require.Greater(t, len(want), 4000)
	for _, views := range []bool{true, false} {
		r.stop()
		if !views {
			require.NoError(t, r.fs.RemoveAll("views"))
		}
		r.start()
		require.Equal(t, want, r.fetch("g", tp).Gaps)
	}
}

// TestUncleanStopCutsLedgersOff: with fsync off a log may come back shorter than its
// ledgers knew. What is appended there later is open, whatever the internal log held
// before.
func TestUncleanStopCutsLedgersOff(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	r.mustCommit("g", commitOf(tp, 0, 1, 2, 5, 8, 9), 3, 10)

	r.stop()
	require.NoError(t, r.fs.RemoveAll(extensiontest.DataDir(tp)))
	r.unclean = true
	r.start()
	r.requireLedger("g", tp, 0, 0)
	require.Contains(t, r.warnings(), "a ledger was ahead of its partition after an unclean stop and is cut off")
	r.produce(tp, 10)
	r.mustCommit("g", commitOf(tp, 7), 0, 8)
	r.restart()
	r.requireLedger("g", tp, 0, 8, run(0, 7))
}

// TestNothingIsServedBeforeLedgersAreCutOff, durably: else a second crash could bring back
// what they had committed, over records that came meanwhile.
func TestNothingIsServedBeforeLedgersAreCutOff(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	r.mustCommit("g", commitOf(tp, 7), 0, 8)
	partition := r.c.shardOf("g").index
	r.stop()
	require.NoError(t, r.fs.RemoveAll(extensiontest.DataDir(tp)))
	r.unclean = true
	waiting, release := r.gate.hold(extensiontest.JournalDir(partition) + "/00000000000000000000.log")
	started := make(chan struct{})
	go func() {
		defer close(started)
		r.start()
	}()
	select {
	case <-waiting:
	case <-started:
		t.Error("the start was over before")
	}
	release()
	<-started
}

// TestLedgersOfTopicsThatAreGone are forgotten at the start; if it is not sure that the
// topic is gone, the start fails and they stay.
func TestLedgersOfTopicsThatAreGone(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	r.mustCommit("g", commitOf(tp, 1), 0, 2)
	r.stop()

	r.Gone[tp] = errors.New("cannot read the directory")
	require.ErrorContains(t, r.tryStart(), "cannot read the directory")
	r.closeFiles()
	delete(r.Gone, tp)
	r.start()
	r.requireLedger("g", tp, 0, 2, run(0, 1))
	r.stop()

	r.Gone[tp] = extension.ErrUnknownPartition
	r.start()
	r.stop()
	delete(r.Gone, tp)
	r.start()
	r.requireNoLedger("g", tp)
}

// TestLossOfTheInternalLog: groups go on at the offset in the primary topic.
func TestLossOfTheInternalLog(t *testing.T) {
	for name, views := range map[string]bool{"with its views": true, "alone": false} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tp := part(1, 0)
			r.produce(tp, 10)
			r.mustCommit("g", commitOf(tp, 0, 1, 5), 2, 6)
			r.stop()
			require.EqualValues(t, 2, r.primary.at("g", tp), "it follows at a clean stop")
			for p := range int32(rigPartitions) {
				require.NoError(t, r.fs.RemoveAll(extensiontest.JournalDir(p)))
			}
			if views {
				require.NoError(t, r.fs.RemoveAll("views"))
			}
			r.start()
			r.requireNoLedger("g", tp)
			r.mustCommit("g", commitOf(tp, 7), 2, 8)
			r.restart()
			r.requireLedger("g", tp, 2, 8, run(2, 7))
		})
	}
}

// damage changes a byte of the internal log's segment, at that share of its length.
func (r *rig) damage(partition int32, at func(size int64) int64) {
	r.t.Helper()
	path := extensiontest.JournalDir(partition) + "/00000000000000000000.log"
	f, err := r.fs.OpenReadWrite(path, vfs.WriteCategoryUnspecified)
	require.NoError(r.t, err)
	info, err := f.Stat()
	require.NoError(r.t, err)
	pos := at(info.Size())
	var b [1]byte
	_, err = f.ReadAt(b[:], pos)
	require.NoError(r.t, err)
	b[0] ^= 0xff
	_, err = f.WriteAt(b[:], pos)
	require.NoError(r.t, err)
	require.NoError(r.t, f.Close())
}

// TestDamageOfTheInternalLog: a batch that cannot be read, or behind which nobody knows
// where the next one is, makes a warning and no refusal to start. All ledgers of that
// partition are given up, since each may have lost a record; and only once.
func TestDamageOfTheInternalLog(t *testing.T) {
	for name, at := range map[string]func(second, size int64) int64{
		"records":         func(second, _ int64) int64 { return second + protocol.BatchHeaderLen + 10 },
		"length":          func(second, _ int64) int64 { return second + 8 },
		"magic":           func(second, _ int64) int64 { return second + 16 },
		"last batch":      func(_, size int64) int64 { return size - 3 },
		"the first batch": func(int64, int64) int64 { return protocol.BatchHeaderLen + 5 },
	} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t)
			tp := part(1, 0)
			r.produce(tp, 20)
			r.mustCommit("g", commitOf(tp, 0), 1, 1)
			partition := r.c.shardOf("g").index
			second := r.Logs[extensiontest.JournalDir(partition)].Size()
			for x := int64(2); x < 10; x++ {
				r.mustCommit("g", commitOf(tp, x), 1, x+1)
			}
			r.stop()
			require.NoError(t, r.fs.RemoveAll("views"))
			r.damage(partition, func(size int64) int64 { return at(second, size) })

			r.start()
			r.requireNoLedger("g", tp)
			require.Equal(t, 1, r.logged.FilterMessageSnippet("are lost: all its ledgers are given up").Len())
			require.EqualValues(t, 1, r.primary.at("g", tp))
			require.NoError(t, r.DB.Sync(ctx))
			r.mustCommit("g", commitOf(tp, 15), 1, 16)

			// What was lost is behind the next start, also after a crash.
			r.startAfterCrash(r.fs.CrashClone(vfs.CrashCloneCfg{}))
			require.Zero(t, r.logged.FilterMessageSnippet("lost").Len(), "%v", r.warnings())
			r.requireLedger("g", tp, 1, 16, run(1, 15))
			r.restart()
			require.Empty(t, r.warnings())
			r.requireLedger("g", tp, 1, 16, run(1, 15))
		})
	}
}

// appendLater appends a record of a later version, and restarts.
func (r *rig) appendLater(key individualcommit.Key) {
	r.t.Helper()
	later := []byte{0, 9, 0, 0, 0, 0, 'n', 'e', 'w'}
	journalOf := r.c.shardOf(key.ID.Group).mu.loaded.journal
	receipt, err := journalOf.Append([]journal.Record{{Key: key.AppendTo(nil), Value: later}})
	require.NoError(r.t, err)
	require.NoError(r.t, receipt.Wait(ctx))
	r.stop()
	require.NoError(r.t, r.fs.RemoveAll("views")) // which the record went by
	r.start()
}

// TestLaterVersionsAreLeftAlone: a ledger that a later Lacuna wrote takes no commits and
// is not written over.
func TestLaterVersionsAreLeftAlone(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.produce(tp, 10)
	r.mustCommit("g", commitOf(tp, 1), 0, 2)
	r.appendLater(individualcommit.Key{ID: idOf("g", tp), Kind: individualcommit.KindSnapshot})
	for range 2 {
		r.restart()
		r.requireNoLedger("g", tp)
		require.ErrorIs(t, r.commit("g", commitOf(tp, 3))[0].Err, individualcommit.ErrUnknownVersion)
		require.Equal(t, 1, r.logged.FilterMessageSnippet("left alone").Len())
	}
}
