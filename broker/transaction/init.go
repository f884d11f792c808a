package transaction

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// InitRequest is an InitProducerId with a transactional id.
type InitRequest struct {
	TransactionalID string
	TimeoutMs       int32
	// Expected is the producer that the client was, or None (always before version 3).
	Expected Producer
	// NewID is a producer id that nobody was given yet, if WantsProducerID says that one
	// may be needed; else negative.
	NewID int64
}

// WantsProducerID tells whether InitProducerID may need a new producer id: the
// transactional id is not known, or the epochs of its producer id have run out.
func (s *State) WantsProducerID(transactionalID string, _ Producer) bool {
	e := s.ids[transactionalID]
	return e == nil || exhausted(e.producer.Epoch) && (e.status == Empty || e.status.complete())
}

// InitProducerID gives a transactional id to the producer that asks, with the next epoch,
// and thereby fences the one that had it. While that one has a transaction, InitProducerID
// aborts it and answers CONCURRENT_TRANSACTIONS, as it does until the markers are written.
// It answers so also when a new producer id is needed and NewID has none; then nothing
// changes.
func (s *State) InitProducerID(now time.Time, req *InitRequest, out *Output) (Producer, *kerr.Error) {
	switch {
	case req.TransactionalID == "":
		return None, kerr.InvalidRequest
	case req.TimeoutMs <= 0 || time.Duration(req.TimeoutMs)*time.Millisecond > s.config.MaxTimeout:
		return None, kerr.InvalidTransactionTimeout
	}
	e := s.ids[req.TransactionalID]
	switch {
	case e == nil:
		v := &value{producer: Producer{ID: noID}, nextID: noID, initEpoch: noEpoch}
		return s.rotate(now, v, req, noEpoch, out)
	case e.status.ending():
		return None, kerr.ConcurrentTransactions
	case e.status == Ongoing:
		if req.Expected != None && req.Expected != e.producer {
			return None, kerr.ProducerFenced
		}
		s.abort(now, e, out)
		return None, kerr.ConcurrentTransactions
	}
	return s.nextEpoch(now, &e.value, req, out)
}

// nextEpoch gives out the next epoch, or the current one again if the client asks for that
// because it does not know it was given.
func (s *State) nextEpoch(now time.Time, v *value, req *InitRequest, out *Output) (Producer, *kerr.Error) {
	again := false
	if req.Expected != None && req.Expected != v.producer {
		if !v.follows(req.Expected) {
			return None, kerr.ProducerFenced
		}
		again = v.producer.Epoch != maxEpoch
	}
	if !again && exhausted(v.producer.Epoch) {
		return s.rotate(now, v, req, req.Expected.Epoch, out)
	}
	next := v.successor(now, Empty)
	if again {
		next.previousID = v.previousID // it may be asked for once more
	} else {
		next.producer.Epoch++
	}
	return s.initialised(next, req, req.Expected.Epoch, out)
}

// rotate gives out a new producer id.
func (s *State) rotate(now time.Time, v *value, req *InitRequest, before int16, out *Output) (Producer, *kerr.Error) {
	if req.NewID < 0 {
		return None, kerr.ConcurrentTransactions
	}
	next := v.successor(now, Empty)
	next.producer = Producer{ID: req.NewID}
	if v.producer.ID == noID {
		next.previousID = req.NewID // as Kafka logs it
	}
	return s.initialised(next, req, before, out)
}

func (s *State) initialised(next *value, req *InitRequest, before int16, out *Output) (Producer, *kerr.Error) {
	next.initEpoch = before
	next.timeoutMs, next.startMs = req.TimeoutMs, noTimestamp
	s.emit(req.TransactionalID, next, out)
	return next.producer, nil
}

// abort ends an ongoing transaction whose producer did not. That producer is fenced.
func (s *State) abort(now time.Time, e *entry, out *Output) {
	next := e.successor(now, PrepareAbort)
	next.version = epochBumps
	if next.producer.Epoch < maxEpoch {
		next.producer.Epoch++
	}
	s.emit(e.id, next, out)
	out.Ended = append(out.Ended, e.id)
}
