package client

import (
	"slices"
	"time"
)

// deliveryTxn is how far a delivery is in a transaction that acknowledges it.
type deliveryTxn int8

const (
	txnNone     deliveryTxn = iota // in none
	txnHeld                        // its acknowledgement was sent, or is about to be
	txnDone                        // it was committed
	txnReleased                    // it was aborted after the broker had it: that has released it
)

// holdForTxn hands a record that a handler has to a transaction: its lock is not renewed any
// more and may run out, and the end of its session does not concern it. False means that it
// is not ours any more, or in a transaction already.
func (s *shareState) holdForTxn(d *delivery) bool {
	if d.state != deliveryRunning || d.inTxn != txnNone {
		return false
	}
	d.inTxn = txnHeld
	s.inTransactions++
	return true
}

// orphan takes in that the session of a record in a transaction is gone, and what was in its
// lane with it.
func (q *shareQueue) orphan(d *delivery) {
	q.block(d)
	d.lane, d.orphaned = nil, true
}

// block lets the key of a record wait for the transaction that the record is in, which has it
// all the same if its request comes late: when the record was acquired anew, the broker, who
// only knows the member, cannot tell that from before.
func (q *shareQueue) block(d *delivery) {
	if d.lane != nil && d.inTxn == txnHeld && d.blocks == nil {
		d.blocks = &d.lane.key
		q.blocked[*d.blocks]++
	}
}

// settled takes in that the transaction of d has ended.
func (q *shareQueue) settled(d *delivery) {
	if d.blocks == nil {
		return
	}
	key := *d.blocks
	d.blocks = nil
	if q.blocked[key]--; q.blocked[key] > 0 {
		return
	}
	delete(q.blocked, key)
	if l := q.lanes[key]; l != nil && l.busy == nil {
		q.advance(l)
	}
}

// settleTxn takes in what became of the transaction of a record. txnNone says that the broker
// has not taken the acknowledgement, so that the record is the worker's as before.
func (s *shareState) settleTxn(d *delivery, outcome deliveryTxn, now time.Time) (e shareEvents) {
	s.inTransactions--
	s.queue.settled(d)
	if outcome == txnNone && d.orphaned {
		outcome = txnReleased
	}
	d.inTxn = outcome
	switch {
	case d.state != deliveryRunning: // it came again meanwhile
	case d.returned:
		s.endTxn(d, &e)
	case outcome == txnNone:
		d.session.renewAgain(d, now)
	}
	return e
}

// renewAgain has a lock renewed that was not while its record was in a transaction, if it
// should have been.
func (s *shareSession) renewAgain(d *delivery, now time.Time) {
	if !s.canRenew || d.renewing {
		return
	}
	for _, l := range s.leases {
		i := slices.Index(l.held, d)
		if i < 0 || !l.renewAt.IsZero() {
			continue
		}
		l.held = slices.Delete(l.held, i, i+1)
		s.leases = append(s.leases, &lease{deadline: l.deadline, renewAt: now, held: []*delivery{d}})
		return
	}
}

// finishInTxn takes in that a handler has returned whose record is, or was, in a transaction.
func (s *shareState) finishInTxn(d *delivery) (e shareEvents) {
	s.queue.running--
	if d.state != deliveryRunning {
		return e
	}
	d.returned = true
	if d.inTxn != txnHeld {
		s.endTxn(d, &e)
	}
	return e
}

// endTxn ends a delivery whose transaction has ended and whose handler has returned.
func (s *shareState) endTxn(d *delivery, e *shareEvents) {
	switch d.inTxn {
	case txnDone:
		d.outcome, d.cancel = ackAccept, nil
		d.over()
		if d.lane != nil {
			s.queue.advance(d.lane)
		}
		e.acked = append(e.acked, d)
	case txnReleased:
		e.lost = s.queue.drop(d, d.session.fetching, ErrAborted, e.lost)
		if d.orphaned && d.lane != nil { // its lock has run out here, and maybe not at the broker
			s.queue.giveBack(d, d.session.fetching)
		}
	case txnNone: // its handler left before it was known
		d.state, d.outcome, d.cancel = deliveryDone, ackRelease, nil
		if d.lane != nil {
			s.queue.advance(d.lane)
		}
		d.session.acks.addDelivery(d, ackRelease)
		s.queue.failed(d, d.session.fetching)
	case txnHeld:
	}
}
