package individualcommit

import "slices"

// Record is a record to append to the internal log. A nil Value is a tombstone.
type Record struct {
	Key, Value []byte
}

// Records collects the records of changes, to be appended to the log in one batch. It is
// reused: Reset makes the records invalid.
type Records struct {
	list []Record
	buf  []byte
}

// keepBytes is the largest buffer that Reset keeps.
const keepBytes = 1 << 20

// Reset empties the collection.
func (w *Records) Reset() {
	clear(w.list)
	w.list, w.buf = w.list[:0], w.buf[:0]
	if cap(w.buf) > keepBytes {
		w.buf = nil
	}
}

// All are the records, valid until Reset.
func (w *Records) All() []Record { return w.list }

// Len is the number of records.
func (w *Records) Len() int { return len(w.list) }

// append adds a record, of which buf from start up to keyEnd is the key and what follows
// the value, if there is one.
func (w *Records) append(buf []byte, start, keyEnd int) {
	w.buf = buf
	r := Record{Key: buf[start:keyEnd:keyEnd]}
	if keyEnd < len(buf) {
		r.Value = buf[keyEnd:len(buf):len(buf)]
	}
	w.list = append(w.list, r)
}

func (w *Records) tombstone(k *Key) {
	start := len(w.buf)
	buf := k.AppendTo(w.buf)
	w.append(buf, start, len(buf))
}

// deltasMin is how many bytes of deltas any ledger may have between two snapshots; with
// less, each delta of a small one would be a snapshot.
const deltasMin = 4096

// snapshotDue tells whether a delta of size bytes, key and value, should be a snapshot:
// when the ring is full, or so that what compaction leaves stays within one and a half
// bytes for each gap, or where a snapshot alone comes near to that, within a third more
// than the snapshot. The deltas of the round before that were not yet written over count
// too, hence the smaller shares here.
func (s *State) snapshotDue(e *Entry, size int) bool {
	room := e.snapshotBytes / 4
	if e.snapshotGaps > 0 {
		perGap := float64(e.snapshotBytes) / float64(e.snapshotGaps)
		room = max(room, int((1.25-perGap)*float64(e.Ledger.GapCount())))
	}
	return e.epoch != s.ownerEpoch || e.position == s.ring || e.deltaBytes+size > max(s.deltasMin, room)
}

// Found makes the ledger of id, or makes it anew if it is in trouble, and applies d to
// it. l is what it starts as; see NewLedger. Delivery counts and outcomes that there are
// belong to no ledger, or to one that is given up.
func (s *State) Found(w *Records, id ID, l *Ledger, d Delta, metadata *string, nowMs int64) *Entry {
	e := s.entry(id)
	s.BuryCounts(w, e)
	s.buryOutcomes(w, e)
	l.pending = e.Ledger.pending
	e.Ledger, e.Metadata = l, ""
	s.apply(e, &change{delta: d, metadata: metadata, lastCommitMs: nowMs})
	s.writeSnapshot(w, e)
	return e
}

// NewLedger is a ledger that starts with all below offset committed, in a log with the
// given bounds. An offset past the high watermark is kept as a cumulative commit is.
func NewLedger(offset, logStart, highWatermark int64) *Ledger {
	l := new(Ledger)
	l.start = logStart
	l.Apply(Delta{Move: Move{Kind: MoveCommit, From: max(highWatermark, logStart), To: max(offset, logStart)}})
	return l
}

// Log applies d to the ledger of e, which has let it pass, and appends the record that
// says so: a delta, or if it is time a snapshot. Null metadata changes none. With a
// cumulative commit, all deliveries before it are forgotten.
func (s *State) Log(w *Records, e *Entry, d Delta, metadata *string, nowMs int64) {
	if d.Move.Kind == MoveCommit || d.Move.Kind == MoveRewind {
		s.BuryCounts(w, e)
	}
	c := change{generation: e.generation, lastCommitMs: nowMs, floor: e.Ledger.takeFloor(), metadata: metadata, delta: d}
	start := len(w.buf)
	k := Key{OwnerEpoch: s.ownerEpoch, ID: e.ID, Kind: KindDelta, Position: e.position}
	buf := k.AppendTo(w.buf)
	keyEnd := len(buf)
	buf = c.appendTo(buf, s.ownerEpoch, &s.packer)
	size := len(buf) - start
	if s.snapshotDue(e, size) {
		w.buf = buf[:start]
		s.apply(e, &c)
		s.writeSnapshot(w, e)
		return
	}
	w.append(buf, start, keyEnd)
	s.apply(e, &c)
	e.deltaWritten(size)
}

// writeSnapshot appends the ledger as it is, and under a new owner what buries the
// records of the one before.
func (s *State) writeSnapshot(w *Records, e *Entry) {
	if e.epoch != s.ownerEpoch {
		s.bury(w, e)
		e.epoch, e.ring = s.ownerEpoch, 0
	}
	e.Ledger.takeFloor()
	if !e.founded || e.Trouble() != nil {
		e.generation = s.generation
	}
	e.generation++
	s.generation = max(s.generation, e.generation)
	start := len(w.buf)
	k := Key{OwnerEpoch: s.ownerEpoch, ID: e.ID, Kind: KindSnapshot}
	buf := k.AppendTo(w.buf)
	keyEnd := len(buf)
	snap := snapshot{generation: e.generation, lastCommitMs: e.LastCommitMs, metadata: &e.Metadata, ledger: e.Ledger}
	buf = snap.appendTo(buf, s.ownerEpoch, &s.packer)
	w.append(buf, start, keyEnd)
	e.snapshotWritten(len(buf) - start)
}

// Delete forgets a ledger and appends the tombstones of its records. They belong in one
// batch: of a ledger without its deltas, part would be lost.
func (s *State) Delete(w *Records, e *Entry) {
	for _, key := range e.stagedKeys() {
		s.buryStaged(w, e, key)
	}
	s.buryOutcomes(w, e)
	s.BuryCounts(w, e)
	s.bury(w, e)
	s.remove(e)
}

// bury appends the tombstones of the snapshot and the deltas of a ledger.
func (s *State) bury(w *Records, e *Entry) {
	if !e.founded && e.ring == 0 {
		return
	}
	w.list = slices.Grow(w.list, int(e.ring)+1)
	for position := range e.ring {
		w.tombstone(&Key{OwnerEpoch: e.epoch, ID: e.ID, Kind: KindDelta, Position: position})
	}
	w.tombstone(&Key{OwnerEpoch: e.epoch, ID: e.ID, Kind: KindSnapshot})
}
