package client

import (
	"context"
	"time"
)

// sharePartition names a partition as the share APIs do, by its topic's id.
type sharePartition struct {
	topic  topicID
	number int32
}

// ackKind is what a member says of an acquired record; the values are those on the wire
// (KIP-932, KIP-1222).
type ackKind int8

const (
	ackGap     ackKind = iota // there is no record at this offset
	ackAccept                 // done
	ackRelease                // to be delivered again
	ackReject                 // never to be delivered again
	ackRenew                  // still at work: start the acquisition lock anew
)

// deliveryState is how far a delivery is. It only ever grows.
type deliveryState int8

const (
	deliveryQueued  deliveryState = iota // waits for a handler
	deliveryRunning                      // a handler has it
	deliveryDone                         // its outcome is to be acknowledged, or is on its way
	deliveryOver                         // acknowledged, or no longer this member's
)

// delivery is one record that this member has acquired. It is over when the broker has
// answered its acknowledgement, or when the acquisition is lost.
type delivery struct {
	record  ShareRecord
	at      sharePartition
	session *shareSession
	lane    *lane // of its key, nil if it has no order
	state   deliveryState
	outcome ackKind
	stale   bool // no handler was to see it
	// followers are the later records of its key that the broker releases with it.
	followers []*delivery
	// renewing tells that a renewal is asked for and not answered. Until it is, nobody knows
	// when the lock ends.
	renewing bool
	inTxn    deliveryTxn
	// returned tells that its handler has returned before its transaction ended.
	returned bool
	// orphaned tells that its lock has run out, or its session has ended, since it is in a
	// transaction. That matters only if the broker has not taken its acknowledgement.
	orphaned bool
	// blocks is the key that waits for its transaction, if it is not in the lane any more.
	blocks *laneKey
	// cancel ends the context of its handler. It is set while state is running, and is
	// the Worker's: the state here only hands it back.
	cancel context.CancelCauseFunc
}

func (d *delivery) offset() int64 { return d.record.Offset }

// place is where its record is.
func (d *delivery) place() sharePlace { return sharePlace{d.at, d.record.Offset} }

// sharePlace is an offset of a partition.
type sharePlace struct {
	at     sharePartition
	offset int64
}

// over ends the delivery.
func (d *delivery) over() {
	d.state = deliveryOver
	if d.session.held[d.place()] == d {
		delete(d.session.held, d.place())
	}
}

// unfinished tells that its acquisition lock is still needed for a handler.
func (d *delivery) unfinished() bool { return d.state <= deliveryRunning && !d.orphaned }

// lease is a set of records whose acquisition locks end at one time.
type lease struct {
	deadline time.Time
	renewAt  time.Time // zero: not to be renewed, or a renewal is on its way
	held     []*delivery
}

// prune forgets what needs the lock no more, and tells whether anything is left.
func (l *lease) prune() bool {
	kept := l.held[:0]
	for _, d := range l.held {
		if d.unfinished() {
			kept = append(kept, d)
		}
	}
	clear(l.held[len(kept):])
	l.held = kept
	return len(kept) > 0
}

// lost is a delivery that ended without its outcome being recorded, and why.
type lost struct {
	delivery *delivery
	was      deliveryState
	err      error
}
