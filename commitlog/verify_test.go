package commitlog

import (
	"bytes"
	"slices"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"
)

// verifyCrash opens what a crash left and compares it with the account. At random
// operations of this recovery it crashes again, depth times over.
func (w *world) verifyCrash(s snapshot, depth int) {
	var again []snapshot
	var l *Log
	visible := s.visible
	o := w.o
	o.Unclean = true
	o.FS = errorfs.Wrap(s.fs, errorfs.InjectorFunc(func(op errorfs.Op) error {
		if depth == 0 || op.Kind.ReadOrWrite() != errorfs.OpIsWrite || w.snap.rng.IntN(3) != 0 {
			return nil
		}
		percent := []int{0, 50, 100}[w.snap.rng.IntN(3)]
		again = append(again, snapshot{
			fs:      s.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: percent, RNG: w.snap.rng}),
			visible: visible,
			process: s.process && percent == 100,
		})
		return nil
	}))
	files := s.fs.String()
	l, err := Open(o)
	require.NoError(w.t, err)
	visible = l.Bounds()
	defer func() {
		if w.t.Failed() {
			w.t.Logf("after the crash:\n%svisible before: %+v\nrecovery: %+v\nbounds: %+v", files, s.visible, l.Recovery(), visible)
		}
	}()
	if s.process || l.answersAfterSyncLocked() {
		w.verifyRecovered(l, s.visible)
	} else {
		w.verifyRemains(l)
	}
	for _, s := range again {
		w.verifyCrash(s, depth-1)
	}
	w.goOn(l)
	require.NoError(w.t, l.Close())
}

// goOn appends to a recovered log and opens it once more, cleanly.
func (w *world) goOn(l *Log) {
	before := l.Bounds()
	batch := w.plain()
	a := mustAppend(w.t, l, batch)
	require.Equal(w.t, before.End, a.Base)
	r, err := l.Read(nil, a.Base, ReadOptions{MaxBytes: 1 << 20, UpTo: a.Last + 1})
	require.NoError(w.t, err)
	require.Equal(w.t, batch, r.Data)
	require.NoError(w.t, l.CheckInvariants())
	require.NoError(w.t, l.Close())
	o := l.opts
	o.Unclean = false
	again, err := Open(o)
	require.NoError(w.t, err)
	require.Equal(w.t, Recovery{End: a.Last + 1}, again.Recovery())
	require.Equal(w.t, before.LeaderEpoch, again.Bounds().LeaderEpoch)
	require.Equal(w.t, l.Producers(), again.Producers())
	require.NoError(w.t, again.Close())
}

// verifyRecovered compares a log with the account, given what was visible before.
func (w *world) verifyRecovered(l *Log, visible Bounds) {
	t := w.t
	b := l.Bounds()
	require.NoError(t, l.CheckInvariants())
	require.GreaterOrEqual(t, b.HighWatermark, visible.HighWatermark, "nothing visible is lost")
	require.GreaterOrEqual(t, b.Start, visible.Start)
	require.Equal(t, b.End, b.HighWatermark)
	seen := w.truth.below(b.End)
	if b.Start < b.End {
		require.Equal(t, b.End, seen.end(), "the log ends where a batch does")
	}
	if n := len(seen.batches); n > 0 {
		require.Greater(t, b.LeaderEpoch, seen.lastEpoch(), "an unclean stop raises the epoch")
		found, end := l.EndOfEpoch(seen.lastEpoch())
		require.Equal(t, seen.lastEpoch(), found)
		require.Equal(t, b.End, end)
	}
	w.verifyData(l, seen)
	w.verifyTxns(l, seen)
	w.verifyProducers(l, seen)
	w.verifyTimes(l)
}

// verifyRemains checks what a power cut left of a log that does not wait for fsyncs:
// maybe little, but nothing that was not appended, and without a gap.
func (w *world) verifyRemains(l *Log) {
	b := l.Bounds()
	require.NoError(w.t, l.CheckInvariants())
	got := readAll(w.t, l)
	if len(got) == 0 {
		require.Equal(w.t, b.Start, b.End)
		return
	}
	require.True(w.t, bytes.Equal(w.truth.below(b.End).bytesFrom(b.Start), got), "the stored bytes")
}

func (w *world) verifyData(l *Log, seen *truth) {
	b := l.Bounds()
	if !w.o.Config.Compact {
		require.True(w.t, bytes.Equal(seen.bytesFrom(b.Start), readAll(w.t, l)), "the stored bytes")
		return
	}
	stored := storedTruth(w.t, l)
	got := map[int64]truthRecord{}
	for _, r := range stored.records() {
		got[r.rec.Offset] = r
	}
	all := seen.records()
	txns := seen.txns()
	last := map[string]int64{}
	for i := range all {
		if r := &all[i]; !seen.abortedOffset(txns, r) {
			last[string(r.rec.Key)] = r.rec.Offset
		}
	}
	for i := range all {
		r := &all[i]
		stored, ok := got[r.rec.Offset]
		delete(got, r.rec.Offset)
		switch {
		case ok:
			require.True(w.t, sameRecord(&r.rec, &stored.rec), "offset %d", r.rec.Offset)
		case r.batch.h.NextOffset() <= b.Start, seen.abortedOffset(txns, r), last[string(r.rec.Key)] > r.rec.Offset:
		case r.rec.Value == nil && w.nowMs > r.rec.TimestampMs+w.o.Config.DeleteRetentionMs:
		default:
			require.Fail(w.t, "record is missing", "offset %d, key %s, value %q", r.rec.Offset, r.rec.Key, r.rec.Value)
		}
	}
	require.Empty(w.t, got, "records that were never appended")
}

func (w *world) verifyTxns(l *Log, seen *truth) {
	b := l.Bounds()
	require.Equal(w.t, max(seen.stable(), b.Start), b.LSO)
	got, err := l.AbortedTxns(b.Start, b.LSO)
	require.NoError(w.t, err)
	var want []AbortedTxn
	for _, x := range seen.txns() {
		if x.aborted && x.last >= b.Start && x.first < b.LSO {
			want = append(want, AbortedTxn{ProducerID: x.producerID, FirstOffset: x.first})
		}
	}
	if !w.o.Config.Compact {
		require.Equal(w.t, want, got)
		return
	}
	require.Subset(w.t, want, got)
}

func (w *world) verifyProducers(l *Log, seen *truth) {
	want := seen.producers()
	for _, p := range l.Producers() {
		require.Equal(w.t, want[p.ID], p)
		delete(want, p.ID)
	}
	require.Empty(w.t, want, "producers that were forgotten")
	w.verifyRepeats(l, seen)
}

// verifyRepeats sends the last batches of each producer again, in a transaction or not: the
// log still knows them, and where they are.
func (w *world) verifyRepeats(l *Log, seen *truth) {
	end := l.Bounds().End
	type state struct {
		epoch int16
		kept  []truthBatch
	}
	producers := make(map[int64]*state)
	for _, b := range seen.batches {
		p := producers[b.h.ProducerID]
		if p == nil || p.epoch != b.h.ProducerEpoch {
			p = &state{epoch: b.h.ProducerEpoch}
			producers[b.h.ProducerID] = p
		}
		if b.marker == nil {
			p.kept = append(p.kept, b)
		}
	}
	delete(producers, noProducer)
	for id, p := range producers {
		for _, b := range p.kept[max(0, len(p.kept)-keptBatches):] {
			a, err := l.Append(slices.Clone(b.bytes), AppendOptions{})
			require.NoError(w.t, err)
			require.True(w.t, a.Duplicate, "offset %d of producer %d", b.h.BaseOffset, id)
			require.Equal(w.t, [2]int64{b.h.BaseOffset, b.h.LastOffset()}, [2]int64{a.Base, a.Last})
		}
	}
	require.Equal(w.t, end, l.Bounds().End, "none is written twice")
}

// verifyTimes looks timestamps up and compares with a scan of all records.
func (w *world) verifyTimes(l *Log) {
	b := l.Bounds()
	stored := storedTruth(w.t, l)
	var all []TimestampedOffset
	largest := TimestampedOffset{TimestampMs: -1}
	for _, r := range stored.allRecords() {
		if r.rec.Offset < b.Start {
			continue
		}
		x := TimestampedOffset{Offset: r.rec.Offset, TimestampMs: r.rec.TimestampMs, LeaderEpoch: r.batch.h.LeaderEpoch}
		all = append(all, x)
		if x.TimestampMs > largest.TimestampMs {
			largest = x
		}
	}
	got, ok, err := l.MaxTimestamp()
	require.NoError(w.t, err)
	require.Equal(w.t, largest.TimestampMs >= 0, ok)
	if ok {
		require.Equal(w.t, largest, got)
	}
	for range 5 {
		ms := w.nowMs - w.rng.Int64N(60_000)
		got, ok, err := l.OffsetForTimestamp(ms)
		require.NoError(w.t, err)
		want, found := firstAt(all, ms)
		require.Equal(w.t, found, ok)
		if ok {
			require.Equal(w.t, want, got)
		}
	}
}

func firstAt(all []TimestampedOffset, ms int64) (TimestampedOffset, bool) {
	for _, x := range all {
		if x.TimestampMs >= ms {
			return x, true
		}
	}
	return TimestampedOffset{}, false
}

// verifySome verifies at most n of the snapshots.
func (w *world) verifySome(t *testing.T, n, depth int) {
	w.t = t
	w.snapEvery = 0
	taken := w.snap.taken
	w.rng.Shuffle(len(taken), func(i, j int) { taken[i], taken[j] = taken[j], taken[i] })
	for _, s := range taken[:min(n, len(taken))] {
		w.verifyCrash(s, depth)
	}
}
