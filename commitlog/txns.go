package commitlog

import (
	"fmt"
	"math"

	"github.com/lacunamq/lacuna/protocol"
)

// txn is a transaction that keeps the last stable offset back: it is open, or its
// marker is not visible yet.
type txn struct {
	producerID int64
	first      int64
	last       int64 // offset of its marker, noTxn while it is open
}

// txnList is the transactions of a log by first offset. Those whose marker is visible
// leave it once no older one is left, or when they outnumber the others.
type txnList struct {
	txns []txn
	open int // how many have no marker
}

func (l *txnList) begin(producerID, first int64) {
	l.txns = append(l.txns, txn{producerID: producerID, first: first, last: noTxn})
	l.open++
}

func (l *txnList) end(producerID, marker int64) {
	for i := range l.txns {
		if t := &l.txns[i]; t.producerID == producerID && t.last == noTxn {
			t.last = marker
			l.open--
			return
		}
	}
}

// stable is the last stable offset for a high watermark: the start of the oldest
// transaction that is not over for readers. It forgets those that are.
func (l *txnList) stable(high int64) int64 {
	n := 0
	for n < len(l.txns) && l.txns[n].over(high) {
		n++
	}
	l.txns = l.txns[n:]
	if len(l.txns) == 0 {
		l.txns = nil
		return high
	}
	if len(l.txns) > 64 && len(l.txns) > 2*l.open {
		l.forgetOver(high)
	}
	return min(high, l.txns[0].first)
}

func (t *txn) over(high int64) bool { return t.last != noTxn && t.last < high }

func (l *txnList) forgetOver(high int64) {
	kept := l.txns[:0]
	for _, t := range l.txns {
		if !t.over(high) {
			kept = append(kept, t)
		}
	}
	l.txns = kept
}

// firstOpen is the start of the oldest open transaction of another producer; ok is
// false if there is none.
func (l *txnList) firstOpen(except int64) (first int64, ok bool) {
	for _, t := range l.txns {
		if t.last == noTxn && t.producerID != except {
			return t.first, true
		}
	}
	return math.MaxInt64, false
}

// marker is the content of a transaction's end marker.
type marker struct {
	abort            bool
	coordinatorEpoch int32
}

// checkMarker decides whether a marker may be appended. version is the transaction
// version that the coordinator runs: from 2 on it raises the producer's epoch for each
// marker, so that an equal epoch is a late marker of another transaction, or, without an
// open transaction, the same one again.
func (ps *producers) checkMarker(h *protocol.BatchHeader, m marker, version int16) error {
	p := ps.byID[h.ProducerID]
	if p == nil {
		return nil
	}
	again := h.ProducerEpoch == p.epoch && p.txnFirst == noTxn
	if h.ProducerEpoch < p.epoch || version >= 2 && h.ProducerEpoch == p.epoch && !again {
		return fmt.Errorf("%w: producer %d has epoch %d, its marker %d", ErrInvalidProducerEpoch, p.id, p.epoch, h.ProducerEpoch)
	}
	if m.coordinatorEpoch < p.coordinatorEpoch {
		return fmt.Errorf("%w: producer %d had a marker of coordinator epoch %d, this one is of %d", ErrCoordinatorFenced,
			p.id, p.coordinatorEpoch, m.coordinatorEpoch)
	}
	return nil
}

// applyMarker notes a marker that is in the log. ended is the transaction that it ends,
// if it aborts one with records.
func (ps *producers) applyMarker(h *protocol.BatchHeader, m marker, nowMs int64) (ended abortedTxn, aborted bool) {
	p := ps.get(h.ProducerID)
	first := p.txnFirst
	p.enter(h.ProducerEpoch)
	p.coordinatorEpoch = m.coordinatorEpoch
	p.txnFirst = noTxn
	p.lastSeenMs = nowMs
	p.timestampMs = h.MaxTimestamp
	if first == noTxn {
		return abortedTxn{}, false
	}
	ps.txns.end(p.id, h.BaseOffset)
	stable, ok := ps.txns.firstOpen(p.id)
	if !ok {
		stable = h.BaseOffset + 1
	}
	return abortedTxn{producerID: p.id, first: first, last: h.BaseOffset, stable: stable}, m.abort
}
