package client

import (
	"context"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"
)

var (
	// ErrAborted says that a transaction was aborted: nothing of it has happened. Its
	// records are open again, unless [ErrConflict] says otherwise.
	ErrAborted = errors.New("the transaction is aborted")

	// ErrConflict says that a record of an aborted transaction was not the caller's any more:
	// it is committed, or pending in another transaction, or its acquisition has ended, or
	// the transaction has two deliveries of it. To try the same again is of no use.
	ErrConflict = errors.New("a record of the transaction is done, or with somebody else")

	// ErrOutcomeUnknown says that a transaction was committed or aborted, and nobody could
	// say which in time. The Transactor goes on asking; what is acknowledged in the
	// transaction is not delivered again by its Reader or Worker before that is known.
	ErrOutcomeUnknown = errors.New("the outcome of the transaction is not known")

	// ErrTransactorClosed is returned by a Transactor after Close.
	ErrTransactorClosed = errors.New("the transactor is closed")

	// errOldTransactions marks an answer in a version without the second line of
	// transactions, which is the only one that a Transactor speaks.
	errOldTransactions = errors.New("it answers in a version before KIP-890: was kgo.MaxVersions set?")

	// errPanicked aborts the transaction of a unit of work that panics.
	errPanicked = errors.New("the unit of work has panicked")

	// errTxnOver is returned by a Txn after its unit of work has returned.
	errTxnOver = errors.New("the unit of work of this transaction has returned")
)

// TransactionError is an error of a transaction. It unwraps to [ErrAborted] or
// [ErrOutcomeUnknown], and to the reason.
type TransactionError struct {
	TransactionalID string // empty if nothing was sent
	Doing           string // what was tried, such as "produce"
	Outcome         error  // ErrAborted or ErrOutcomeUnknown
	Err             error
}

// Error implements error.
func (e *TransactionError) Error() string {
	in := ""
	if e.TransactionalID != "" {
		in = " in transaction of " + e.TransactionalID
	}
	return fmt.Sprintf("%s%s: %v: %v", e.Doing, in, e.Outcome, e.Err)
}

// Unwrap returns the outcome and the reason.
func (e *TransactionError) Unwrap() []error { return []error{e.Outcome, e.Err} }

// producerGone tells that the broker knows another producer under the transactional id: it
// was fenced, its transaction ran into its time-out, or the id expired. It needs a new epoch.
func producerGone(err error) bool {
	return errors.Is(err, kerr.ProducerFenced) || errors.Is(err, kerr.InvalidProducerEpoch) ||
		errors.Is(err, kerr.InvalidProducerIDMapping) || errors.Is(err, kerr.TransactionalIDNotFound) ||
		errors.Is(err, kerr.InvalidTxnState)
}

// passing tells that a request of a transaction may be sent once more as it was. answered
// says that err is what the broker said, and not that it said nothing.
func passing(err error, answered bool) bool {
	switch {
	case err == nil || errors.Is(err, context.Canceled) || errors.Is(err, context.DeadlineExceeded):
		return false
	case errors.Is(err, kerr.ConcurrentTransactions):
		return true
	case answered:
		return retriable(err)
	}
	return !permanent(err) && !errors.Is(err, errOldTransactions)
}
