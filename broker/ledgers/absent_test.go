package ledgers

import (
	"testing"
	"testing/synctest"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/extension/extensiontest"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
)

// transaction appends records of a transaction of a producer.
func (r *rig) transaction(tp extension.TopicPartition, producer int64, sequence int32, n int) {
	o := protocol.PlainBatch(0)
	o.ProducerID, o.ProducerEpoch, o.BaseSequence, o.Transactional = producer, 0, sequence, true
	var b protocol.BatchBuilder
	b.Reset(o)
	for range n {
		b.Append([]byte("k"), []byte("v"), nil, 1)
	}
	r.append(tp, &b)
}

// marker ends the transaction of a producer.
func (r *rig) marker(tp extension.TopicPartition, producer int64, commit bool) {
	var b protocol.BatchBuilder
	batch, err := b.AppendEndTxnMarker(nil, protocol.EndTxnMarker{ProducerID: producer, Commit: commit}, 1)
	require.NoError(r.t, err)
	r.appendBatch(tp, batch)
}

// TestMarkersDoNotPinTheStableOffset: they are closed when it reaches them, but not above
// the LSO.
func TestMarkersDoNotPinTheStableOffset(t *testing.T) {
	r := newRig(t)
	tp := part(1, 0)
	r.transaction(tp, 7, 0, 2) // 0, 1
	r.marker(tp, 7, true)      // 2
	r.marker(tp, 8, false)     // 3: a second one at once
	r.produce(tp, 2)           // 4, 5
	r.transaction(tp, 7, 2, 1) // 6: open
	r.marker(tp, 8, true)      // 7: above the LSO

	r.mustCommit("g", commitOf(tp, 0, 1), 4, 4) // the answer knows already
	r.mustCommit("g", commitOf(tp, 4, 5, 6), 7, 7)
	r.requireLedger("g", tp, 7, 7)
	r.mustCommit("g", reopenOf(tp, 5, 6), 5, 5) // below and above the LSO
	r.mustCommit("g", commitOf(tp, 5, 6), 7, 7)
	r.marker(tp, 7, true) // 8
	r.requireLedger("g", tp, 9, 9)
	r.c.followAll(ctx)
	require.EqualValues(t, 9, r.primary.at("g", tp))
	r.c.followAll(ctx)    // nothing is left to follow
	r.marker(tp, 8, true) // 9: somebody looks, nobody commits
	r.requireLedger("g", tp, 10, 10)
	r.c.followAll(ctx)
	require.EqualValues(t, 10, r.primary.at("g", tp))

	r.restart()
	r.requireLedger("g", tp, 10, 10)
	r.mustCommit("g", reopenOf(tp, 1), 1, 10)
	r.restart()
	r.requireLedger("g", tp, 1, 10, run(1, 2)) // the markers stay closed
	r.mustCommit("g", commitOf(tp, 1), 10, 10)

	all := reopenOf(tp)
	all.Reopen = []protocol.Run{run(0, 20)}
	r.mustCommit("g", all, 0, 10)
	r.requireLedger("g", tp, 0, 10, run(0, 2), run(4, 7)) // also when what is around them is reopened
	r.mustCommit("g", commitOf(tp, 0, 1), 4, 10)

	// A rewind while somebody looks at the log: what was found is not closed below it.
	s := r.c.shardOf("g")
	require.False(t, s.closeTo(idOf("g", tp), 5, 7, 7))
	r.requireLedger("g", tp, 4, 10, run(4, 7))
}

// keyed appends records with the given keys.
func (r *rig) keyed(tp extension.TopicPartition, keys ...string) {
	var b protocol.BatchBuilder
	b.Reset(protocol.PlainBatch(0))
	for _, key := range keys {
		b.Append([]byte(key), []byte("v"), nil, 1)
	}
	r.append(tp, &b)
}

// TestCompactionDoesNotPinTheStableOffset: neither when the records that a cleaner took
// lay ahead of it, nor when it stood on one.
func TestCompactionDoesNotPinTheStableOffset(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		tp := part(1, 0)
		r.keyed(tp, "a", "b", "c") // 0 to 2: c stays
		r.keyed(tp, "a", "b")      // 3, 4: gone
		r.keyed(tp, "a", "d", "b") // 5 to 7
		r.keyed(tp, "a", "b")      // 8, 9
		r.mustCommit("g", commitOf(tp, 6), 0, 7)
		log, err := r.Open(extensiontest.DataDir(tp))
		require.NoError(t, err)
		require.NoError(t, log.Roll(farFuture))
		r.keyed(tp, "z") // 10
		_, err = log.Clean(farFuture)
		require.NoError(t, err)

		pass(2 * solidFor) // so long it may have been known that there is a record
		r.requireLedger("g", tp, 2, 7, run(2, 6))
		r.mustCommit("g", commitOf(tp, 2), 8, 8) // 3 to 5 and 7 are gone, too
		synctest.Wait()
	})
}

// TestRetentionMovesTheStableOffset, and the primary topic after it.
func TestRetentionMovesTheStableOffset(t *testing.T) {
	inBubble(t, func(t *testing.T, r *rig) {
		tp := part(1, 0)
		r.produce(tp, 10)
		r.mustCommit("g", commitOf(tp, 1, 8), 0, 9)
		log, err := r.Open(extensiontest.DataDir(tp))
		require.NoError(t, err)
		_, err = log.DeleteRecords(5)
		require.NoError(t, err)
		r.mustCommit("g", commitOf(tp, 2), 5, 9) // below the log start: a commit that changes nothing
		r.requireLedger("g", tp, 5, 9, run(5, 8))
		pass(2 * followEvery)
		synctest.Wait()
		require.EqualValues(t, 5, r.primary.at("g", tp))
		_, err = log.DeleteRecords(10)
		require.NoError(t, err)
		r.restart()
		r.requireLedger("g", tp, 10, 10)
	})
}

// TestRecordAt looks for the next record in batches as compaction leaves them.
func TestRecordAt(t *testing.T) {
	full := func(base int64, deltas ...int32) []byte {
		var b protocol.BatchBuilder
		b.Reset(protocol.PlainBatch(base))
		for _, d := range deltas {
			b.AppendAt(d, []byte("k"), []byte("v"), nil, 1)
		}
		batch, err := b.Build(nil)
		require.NoError(t, err)
		return batch
	}
	h, err := protocol.ParseBatchHeader(full(20, 0, 1, 2, 3))
	require.NoError(t, err)
	var b protocol.BatchBuilder
	b.RebuildCompacted(&h, -1)
	none, err := b.Build(nil)
	require.NoError(t, err)

	batches := append(append(full(10, 0, 1, 2), full(15, 1, 4)...), none...)
	batches = append(batches, full(30, 0, 1)...)
	c := &Coordinator{opts: Options{Decode: commitlog.NewDecodeLimiter(1, 0).Records}}
	for from, want := range map[int64][2]int64{
		10: {10, 13}, 12: {12, 13}, 13: {16, 17}, 16: {16, 17}, 17: {19, 20}, 20: {30, 32}, 25: {30, 32}, 32: {32, 32},
	} {
		at, solidTo := c.recordAt(batches, from)
		require.Equal(t, want, [2]int64{at, solidTo}, "from %d", from)
	}
	at, _ := c.recordAt(batches[:len(batches)-1], 25)
	require.EqualValues(t, 25, at, "of a batch that is cut off nothing is known")
}
