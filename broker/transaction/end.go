package transaction

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// EndRequest is an EndTxn.
type EndRequest struct {
	TransactionalID string
	Producer
	Version int8 // of the protocol: 0 to 2
	Commit  bool
	// NewID is a producer id that nobody was given yet, if EndWantsProducerID says that one
	// may be needed; else negative.
	NewID int64
}

// EndWantsProducerID tells whether End may need a new producer id in version 2, because the
// epochs of the current one have run out.
func (s *State) EndWantsProducerID(transactionalID string) bool {
	e := s.ids[transactionalID]
	return e != nil && !e.status.ending() && exhausted(e.producer.Epoch)
}

// End decides a transaction. In version 2 it answers the id and epoch that the producer
// goes on with, in version 1 None. A retry is answered CONCURRENT_TRANSACTIONS until the
// markers are written, then like the first; so is a request that needs a new producer id
// when NewID has none.
func (s *State) End(now time.Time, req *EndRequest, out *Output) (Producer, *kerr.Error) {
	if req.TransactionalID == "" {
		return None, kerr.InvalidRequest
	}
	e := s.ids[req.TransactionalID]
	switch {
	case e == nil:
		return None, kerr.InvalidProducerIDMapping
	case req.Version < epochBumps:
		return None, s.endWithoutBump(now, e, req, out)
	}
	return s.endWithBump(now, e, req, out)
}

// endWithoutBump is End in version 1: a retry has the epoch of the first request, so it
// cannot be told from the end of another transaction, and the status has to do.
func (s *State) endWithoutBump(now time.Time, e *entry, req *EndRequest, out *Output) *kerr.Error {
	if err := e.check(req.Producer); err != nil {
		return err
	}
	switch {
	case e.status.ending():
		return kerr.ConcurrentTransactions
	case e.status == Ongoing:
		next := e.successor(now, decided(req.Commit))
		next.version = 0
		s.emit(e.id, next, out)
		out.Ended = append(out.Ended, e.id)
		return nil
	case e.status == completed(req.Commit):
		return nil
	}
	return kerr.InvalidTxnState
}

// endWithBump is End in version 2. Of the producer that the id has now it ends a
// transaction, which may be empty if it is aborted; of the one before it is a retry.
func (s *State) endWithBump(now time.Time, e *entry, req *EndRequest, out *Output) (Producer, *kerr.Error) {
	switch {
	case e.status.ending():
		return None, kerr.ConcurrentTransactions
	case e.status.complete() && e.follows(req.Producer):
		if e.status != completed(req.Commit) {
			return None, kerr.InvalidTxnState
		}
		return s.endedBefore(now, e, req, out)
	}
	if err := e.check(req.Producer); err != nil {
		return None, err
	}
	if e.status != Ongoing && req.Commit {
		return None, kerr.InvalidTxnState
	}
	next := e.successor(now, decided(req.Commit))
	next.version = req.Version
	if e.status != Ongoing {
		next.startMs = next.updateMs
	}
	if exhausted(e.producer.Epoch) {
		if req.NewID < 0 {
			return None, kerr.ConcurrentTransactions
		}
		next.nextID = req.NewID
	}
	next.producer.Epoch++
	s.emit(e.id, next, out)
	out.Ended = append(out.Ended, e.id)
	return next.afterwards(), nil
}

// endedBefore answers a retry. If the coordinator had aborted the transaction by itself,
// this answer is the first, and the place to take a new producer id.
func (s *State) endedBefore(now time.Time, e *entry, req *EndRequest, out *Output) (Producer, *kerr.Error) {
	if e.producer.Epoch != maxEpoch {
		return e.producer, nil
	}
	if req.NewID < 0 {
		return None, kerr.ConcurrentTransactions
	}
	next := e.successor(now, e.status)
	next.producer = Producer{ID: req.NewID}
	s.emit(e.id, next, out)
	return next.producer, nil
}

func decided(commit bool) Status {
	if commit {
		return PrepareCommit
	}
	return PrepareAbort
}

func completed(commit bool) Status {
	if commit {
		return CompleteCommit
	}
	return CompleteAbort
}

// afterwards is the producer that goes on when the markers are written.
func (v *value) afterwards() Producer {
	if v.nextID != noID {
		return Producer{ID: v.nextID}
	}
	return v.producer
}

// Completion is what a decided transaction still has to write.
type Completion struct {
	Producer                    // that the markers carry
	Version    int8             // of the protocol by which it was ended
	Commit     bool             // or abort
	Partitions []TopicPartition // read only
}

// Completion tells what is left to do of a transaction that is decided, and whether it is.
func (s *State) Completion(transactionalID string) (Completion, bool) {
	e := s.ids[transactionalID]
	if e == nil || !e.status.ending() {
		return Completion{}, false
	}
	return Completion{
		Producer: e.producer, Version: e.version, Commit: e.status == PrepareCommit, Partitions: e.partitions,
	}, true
}

// Complete notes that all markers of a decided transaction are durable. The producer is
// that of the Completion; nothing happens if the transactional id has moved on.
func (s *State) Complete(now time.Time, transactionalID string, p Producer, out *Output) {
	e := s.ids[transactionalID]
	if e == nil || !e.status.ending() || e.producer != p {
		return
	}
	next := e.successor(now, completed(e.status == PrepareCommit))
	next.producer, next.nextID, next.partitions = e.afterwards(), noID, nil
	s.emit(e.id, next, out)
}

// Ending lists the transactional ids whose transaction is decided and not complete, in
// order: what is to be taken up after a restart.
func (s *State) Ending() []string {
	var ids []string
	for id, e := range s.ids {
		if e.status.ending() {
			ids = append(ids, id)
		}
	}
	slices.Sort(ids)
	return ids
}
