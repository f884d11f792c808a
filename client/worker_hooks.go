package client

import (
	"errors"
	"time"
)

// WorkerHooks are called when something happens inside a Worker, for metrics and logs. Any
// of them may be nil. They are called by the goroutines of the Worker, several at a time,
// and hold it up while they run; they must not call Close.
type WorkerHooks struct {
	// Fetched: a broker, by node id, has answered a fetch with so many records.
	Fetched func(broker int32, records int, took time.Duration)
	// Handled: a handler has returned err. The outcome is not recorded yet.
	Handled func(r *ShareRecord, outcome Outcome, err error, took time.Duration)
	// Acknowledged: the broker has recorded the outcome.
	Acknowledged func(r *ShareRecord, outcome Outcome)
	// Renewed: the acquisition lock of a record that is handled, or waits for that, starts
	// anew.
	Renewed func(r *ShareRecord)
	// Lost: the outcome, if there was one yet, is not recorded, and the record is delivered
	// again if it is not done otherwise. A record that no handler had begun is not reported.
	Lost func(r *ShareRecord, outcome Outcome, err error)
	// Failed: something went wrong that no caller waits for. The Worker goes on.
	Failed func(err error)
}

// and calls other after h.
func (h WorkerHooks) and(other WorkerHooks) WorkerHooks {
	if first, next := h.Fetched, other.Fetched; first == nil {
		h.Fetched = next
	} else if next != nil {
		h.Fetched = func(b int32, n int, d time.Duration) { first(b, n, d); next(b, n, d) }
	}
	if first, next := h.Handled, other.Handled; first == nil {
		h.Handled = next
	} else if next != nil {
		h.Handled = func(r *ShareRecord, o Outcome, err error, d time.Duration) { first(r, o, err, d); next(r, o, err, d) }
	}
	if first, next := h.Acknowledged, other.Acknowledged; first == nil {
		h.Acknowledged = next
	} else if next != nil {
		h.Acknowledged = func(r *ShareRecord, o Outcome) { first(r, o); next(r, o) }
	}
	if first, next := h.Renewed, other.Renewed; first == nil {
		h.Renewed = next
	} else if next != nil {
		h.Renewed = func(r *ShareRecord) { first(r); next(r) }
	}
	if first, next := h.Lost, other.Lost; first == nil {
		h.Lost = next
	} else if next != nil {
		h.Lost = func(r *ShareRecord, o Outcome, err error) { first(r, o, err); next(r, o, err) }
	}
	if first, next := h.Failed, other.Failed; first == nil {
		h.Failed = next
	} else if next != nil {
		h.Failed = func(err error) { first(err); next(err) }
	}
	return h
}

// tell ends the contexts of handlers whose records were lost, and calls the hooks.
func (w *Worker) tell(e shareEvents) {
	h := &w.cfg.hooks
	for _, l := range e.lost {
		d := l.delivery
		if l.was == deliveryRunning && d.cancel != nil {
			why := l.err
			if !errors.Is(why, ErrLockLost) && !errors.Is(why, ErrWorkerClosed) {
				why = &lockError{why}
			}
			d.cancel(why)
		}
		if h.Lost != nil && l.was != deliveryQueued && !d.stale {
			h.Lost(&d.record, d.result(l.was), l.err)
		}
	}
	if h.Acknowledged != nil {
		for _, d := range e.acked {
			h.Acknowledged(&d.record, Outcome(d.outcome))
		}
	}
	if h.Renewed != nil {
		for _, d := range e.renewed {
			h.Renewed(&d.record)
		}
	}
}

// failed reports an error that nobody waits for.
func (w *Worker) failed(err error) {
	w.mu.Lock()
	w.mu.trouble = err
	w.mu.Unlock()
	if w.cfg.hooks.Failed != nil {
		w.cfg.hooks.Failed(err)
	}
}

// lockError is ErrLockLost with the reason.
type lockError struct{ err error }

// Error implements error.
func (e *lockError) Error() string { return ErrLockLost.Error() + ": " + e.err.Error() }

// Unwrap returns the sentinel and the error below.
func (e *lockError) Unwrap() []error { return []error{ErrLockLost, e.err} }
