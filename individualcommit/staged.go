package individualcommit

import (
	"cmp"
	"slices"
)

// StageRequest is what a transaction wants committed of a ledger when it commits.
type StageRequest struct {
	Offset   int64 // a cumulative commit; NoOffset: none
	Metadata *string
	Commit   []Run
}

// Stage makes what a transaction asks for pending, and appends the record that says so.
// Ledger.CheckStage has let the runs pass. Pending records have keys of their own, never
// a place in the ring, since a transaction may outlive any number of snapshots.
func (s *State) Stage(w *Records, e *Entry, p Producer, q StageRequest) {
	key := stagedKey{ownerEpoch: s.ownerEpoch, producerID: p.ID}
	for used := range e.staged {
		if used.producerID == p.ID {
			key.counter = max(key.counter, used.counter+1)
		}
	}
	s.writeStaged(w, e, key, staged{
		producerEpoch: p.Epoch, offset: q.Offset, cumulatives: e.Ledger.cumulatives,
		metadata: q.Metadata, commit: slices.Clone(q.Commit),
	})
}

func (s *State) writeStaged(w *Records, e *Entry, key stagedKey, st staged) {
	start := len(w.buf)
	buf := key.of(e).AppendTo(w.buf)
	keyEnd := len(buf)
	w.append(st.appendTo(buf, s.ownerEpoch, &s.packer), start, keyEnd)
	s.stage(e, key, st)
}

// stage is what a pending record does, live or replayed.
func (s *State) stage(e *Entry, key stagedKey, st staged) {
	s.take(e, key)
	if e.staged == nil {
		e.staged = make(map[stagedKey]staged)
	}
	e.staged[key] = st
	if st.unread != nil {
		e.unread++
	}
	p := Producer{key.producerID, st.producerEpoch}
	e.Ledger.Stage(p, st.commit)
	of := s.staging[p]
	if of == nil {
		of = make(map[ID]int)
		s.staging[p] = of
	}
	of[e.ID]++
	s.recount(e)
}

// unstage is what the tombstone of a pending record does, live or replayed.
func (s *State) unstage(e *Entry, key stagedKey) {
	s.take(e, key)
	s.recount(e)
	s.removeIfNothing(e)
}

// take takes a pending record away, if it is there.
func (s *State) take(e *Entry, key stagedKey) {
	st, ok := e.staged[key]
	if !ok {
		return
	}
	delete(e.staged, key)
	if st.unread != nil {
		e.unread--
	}
	p := Producer{key.producerID, st.producerEpoch}
	if of := s.staging[p]; of[e.ID] > 1 {
		of[e.ID]--
	} else if delete(of, e.ID); len(of) == 0 {
		delete(s.staging, p)
	}
	e.Ledger.EndStage(p)
	for other, st := range e.staged { // what its other records hold stays pending
		if other.producerID == p.ID && st.producerEpoch == p.Epoch {
			e.Ledger.Stage(p, st.commit)
		}
	}
}

// Staging are the ledgers of which the transaction of p holds something, in no order, but
// for those that have its outcome.
func (s *State) Staging(p Producer) (list []ID) {
	for id := range s.staging[p] {
		if e := s.groups[id.Group][topicPartition{id.Topic, id.Partition}]; !e.decided(p.ID) {
			list = append(list, id)
		}
	}
	return list
}

// Transactions are the transactions of a producer id of which there is something pending,
// in no order: one, but for what an operator has mixed up.
func (s *State) Transactions(producerID int64) (list []Producer) {
	for p := range s.staging {
		if p.ID == producerID {
			list = append(list, p)
		}
	}
	return list
}

// stagedKeys are the keys of the pending records, in order.
func (e *Entry) stagedKeys() []stagedKey {
	keys := make([]stagedKey, 0, len(e.staged))
	for key := range e.staged {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b stagedKey) int {
		return cmp.Or(cmp.Compare(a.producerID, b.producerID), cmp.Compare(a.counter, b.counter),
			cmp.Compare(a.ownerEpoch, b.ownerEpoch))
	})
	return keys
}

// EndTransaction ends the transaction of p for the ledger of e: if it commits, what is
// pending in it becomes committed, with a record as for any commit; then its pending
// records are buried. All of it belongs in one batch. Ending a transaction that holds
// nothing does nothing. The result is what it changed of the ledger, nothing if it aborts.
//
// Of a ledger in trouble, all that is pending of the producer id is ended, since a producer
// has one transaction at a time and the record may be one that cannot be read. If it
// commits, the outcome is logged instead and waits for SettleOutcomes.
func (s *State) EndTransaction(w *Records, e *Entry, p Producer, commit bool, highWatermark, nowMs int64) (d Delta) {
	if e.Trouble() != nil {
		s.decide(w, e, p.ID, commit)
		return d
	}
	return s.endTransaction(w, e, p, commit, highWatermark, nowMs)
}

func (s *State) endTransaction(w *Records, e *Entry, p Producer, commit bool, highWatermark, nowMs int64) (d Delta) {
	keys := slices.DeleteFunc(e.stagedKeys(), func(key stagedKey) bool {
		return key.producerID != p.ID || e.staged[key].producerEpoch != p.Epoch
	})
	if commit {
		var move Move
		var metadata *string
		for _, key := range keys {
			if st := e.staged[key]; st.offset != NoOffset && st.cumulatives == e.Ledger.cumulatives {
				move, metadata = e.Ledger.moveTo(st.offset, highWatermark), st.metadata
			}
		}
		d = e.Ledger.plan(Request{Commit: slices.Collect(e.Ledger.Staged(p))}, move)
		if !d.Empty() {
			s.Log(w, e, d, metadata, nowMs)
		}
	}
	for _, key := range keys {
		s.buryStaged(w, e, key)
	}
	return d
}

func (s *State) buryStaged(w *Records, e *Entry, key stagedKey) {
	w.tombstone(key.of(e))
	s.unstage(e, key)
}

// Clamp makes the ledger of e, and what is pending, forget what lies at and above the end
// of the data's log after an unclean stop, and appends the records that say so, if any.
func (s *State) Clamp(w *Records, e *Entry, logEnd int64) {
	d := e.Ledger.DecideClamp(logEnd)
	if d.Empty() {
		return
	}
	s.Log(w, e, d, nil, e.LastCommitMs)
	for _, key := range e.stagedKeys() {
		if st := e.staged[key]; clampRuns(&st.commit, logEnd) {
			if key.ownerEpoch != s.ownerEpoch {
				s.buryStaged(w, e, key)
				key.ownerEpoch = s.ownerEpoch
			}
			s.writeStaged(w, e, key, st)
		}
	}
}

// clampRuns cuts off what of runs lies at and above end, and tells whether that was any.
func clampRuns(runs *[]Run, end int64) bool {
	n := len(*runs)
	if n == 0 || (*runs)[n-1].End <= end {
		return false
	}
	kept := slices.Clone(*runs)
	for n > 0 && kept[n-1].Start >= end {
		n--
	}
	if kept = kept[:n]; n > 0 {
		kept[n-1].End = min(kept[n-1].End, end)
	}
	*runs = kept
	return true
}
