package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
)

// ShareRecord is a record that a [Worker] has acquired.
type ShareRecord struct {
	*kgo.Record
	// DeliveryCount is how often the record was delivered, this time included: 1 at first.
	// At the group's share.delivery.count.limit it is delivered for the last time.
	DeliveryCount int

	// worker is who has it, while a handler is at work, and delivery is what it is there.
	worker   *Worker
	delivery *delivery
}

// Handler handles one record. Nil accepts it: it is done. An error made by [Reject] rejects
// it: it is never delivered again. Any other error releases it: it is delivered again, to
// any worker of the group, after the group's backoff (share.retry.backoff.ms), until its
// delivery count is at the limit.
//
// While a handler is at work, the Worker renews the acquisition lock of its record. If the
// lock is lost all the same, ctx ends with the cause [ErrLockLost]: then what the handler
// returns does not count, and the record is delivered again, maybe to somebody else at this
// moment. ctx also ends when [Worker.Close] loses patience. A handler must return soon after
// ctx ended.
//
// Handlers run at the same time, up to [Concurrency] of them. Where the group keeps the
// order of keys, records with the same key of one partition are handled one after the other
// in offset order. Nothing is recovered: a panic ends the program, and its records go to
// other workers.
type Handler func(ctx context.Context, r *ShareRecord) error

// Outcome is what became of a record.
type Outcome int8

// The outcomes of a record.
const (
	Unfinished Outcome = iota // its handler had not returned
	Accepted
	Released
	Rejected
)

// String is the outcome in a word.
func (o Outcome) String() string {
	switch o {
	case Unfinished:
		return "unfinished"
	case Accepted:
		return "accepted"
	case Released:
		return "released"
	case Rejected:
		return "rejected"
	}
	return fmt.Sprintf("Outcome(%d)", int8(o))
}

// rejection marks an error as one that no further delivery would mend.
type rejection struct{ err error }

// Error implements error.
func (r *rejection) Error() string { return r.err.Error() }

// Unwrap returns the error below.
func (r *rejection) Unwrap() error { return r.err }

// Reject marks err, which may be nil, so that a [Handler] that returns it, wrapped or not,
// rejects its record: delivered again, it would fail again.
func Reject(err error) error {
	if err == nil {
		err = errors.New("rejected")
	}
	return &rejection{err}
}

// outcomeOf is what an error of a handler says of its record.
func outcomeOf(err error) Outcome {
	var rejected *rejection
	switch {
	case err == nil:
		return Accepted
	case errors.As(err, &rejected):
		return Rejected
	}
	return Released
}

// kind is the outcome on the wire.
func (o Outcome) kind() ackKind { return ackKind(o) }

// outcome is what the worker had made of the delivery.
func (d *delivery) result(was deliveryState) Outcome {
	if was < deliveryDone {
		return Unfinished
	}
	return Outcome(d.outcome)
}
