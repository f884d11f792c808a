package individualcommit

import (
	"cmp"
	"encoding/binary"
	"slices"
)

// outcomeKey tells the outcomes of a ledger apart.
type outcomeKey struct {
	ownerEpoch int32
	producerID int64
}

func (k outcomeKey) of(e *Entry) *Key {
	return &Key{OwnerEpoch: k.ownerEpoch, ID: e.ID, Kind: KindOutcome, ProducerID: k.producerID}
}

// outcome is that a transaction was committed.
type outcome struct {
	order  uint64
	unread error // why the record cannot be read
}

// unreadEpoch stands for the producer epoch in a pending record that cannot be read.
const unreadEpoch = -1

// whyUnread is why a record of a transaction cannot be read.
func (e *Entry) whyUnread() error {
	for _, key := range e.stagedKeys() {
		if err := e.staged[key].unread; err != nil {
			return err
		}
	}
	for _, key := range e.outcomeKeys() {
		if err := e.outcomes[key].unread; err != nil {
			return err
		}
	}
	return nil
}

// decide ends the transaction of a producer id for a ledger that cannot be changed. Aborted,
// it leaves nothing. Committed, it leaves its pending records with the outcome.
func (s *State) decide(w *Records, e *Entry, producerID int64, commit bool) {
	switch {
	case e.decided(producerID):
	case commit:
		key, order := outcomeKey{s.ownerEpoch, producerID}, uint64(0)
		for _, other := range e.outcomes {
			order = max(order, other.order+1)
		}
		start := len(w.buf)
		buf := key.of(e).AppendTo(w.buf)
		keyEnd := len(buf)
		w.append(binary.AppendUvarint(appendValueHeader(buf, outcomeVersion, s.ownerEpoch), order), start, keyEnd)
		e.setOutcome(key, outcome{order: order})
	default:
		for _, key := range e.stagedKeys() {
			if key.producerID == producerID {
				s.buryStaged(w, e, key)
			}
		}
	}
}

// decided tells whether a transaction of a producer id was committed whose end waits for
// the ledger. It can hold nothing more of it until then.
func (e *Entry) decided(producerID int64) bool {
	for key := range e.outcomes {
		if key.producerID == producerID {
			return true
		}
	}
	return false
}

// SettleOutcomes ends the transactions that were committed while the ledger of e was in
// trouble, which it must be no more, and appends the records that say so, if any. They
// belong in one batch.
func (s *State) SettleOutcomes(w *Records, e *Entry, highWatermark, nowMs int64) {
	for _, key := range e.outcomeKeys() {
		for _, p := range e.transactions(key.producerID) {
			s.endTransaction(w, e, p, true, highWatermark, nowMs)
		}
	}
	s.buryOutcomes(w, e)
}

// transactions are those of a producer id of which the ledger holds something, in order.
func (e *Entry) transactions(producerID int64) (list []Producer) {
	for _, key := range e.stagedKeys() {
		p := Producer{key.producerID, e.staged[key].producerEpoch}
		if p.ID == producerID && !slices.Contains(list, p) {
			list = append(list, p)
		}
	}
	return list
}

// outcomeKeys are the keys of the outcomes, in the order in which they were decided.
func (e *Entry) outcomeKeys() []outcomeKey {
	if len(e.outcomes) == 0 {
		return nil
	}
	keys := make([]outcomeKey, 0, len(e.outcomes))
	for key := range e.outcomes {
		keys = append(keys, key)
	}
	slices.SortFunc(keys, func(a, b outcomeKey) int {
		return cmp.Or(cmp.Compare(e.outcomes[a].order, e.outcomes[b].order), cmp.Compare(a.producerID, b.producerID),
			cmp.Compare(a.ownerEpoch, b.ownerEpoch))
	})
	return keys
}

// buryOutcomes appends the tombstones of all outcomes of a ledger.
func (s *State) buryOutcomes(w *Records, e *Entry) {
	for _, key := range e.outcomeKeys() {
		w.tombstone(key.of(e))
		e.dropOutcome(key)
	}
}

// setOutcome is what the record of an outcome does, live or replayed.
func (e *Entry) setOutcome(key outcomeKey, o outcome) {
	e.dropOutcome(key)
	if e.outcomes == nil {
		e.outcomes = make(map[outcomeKey]outcome)
	}
	e.outcomes[key] = o
	if o.unread != nil {
		e.unread++
	}
}

// dropOutcome is what its tombstone does.
func (e *Entry) dropOutcome(key outcomeKey) {
	if e.outcomes[key].unread != nil {
		e.unread--
	}
	delete(e.outcomes, key)
}

func (s *State) applyOutcome(k *Key, value []byte) error {
	e := s.entry(k.ID)
	key := outcomeKey{k.OwnerEpoch, k.ProducerID}
	if value == nil {
		e.dropOutcome(key)
		s.removeIfNothing(e)
		return nil
	}
	order, err := parseOutcome(value)
	e.setOutcome(key, outcome{order, err})
	return err
}
