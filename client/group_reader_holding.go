package client

import (
	"context"
	"errors"
	"slices"
)

// holding is what a member holds in one generation with the same slots, and the one
// goroutine that reads it.
type holding struct {
	g      *GroupReader
	as     *membership
	ranges []AssignedSlots

	// polling ends when nothing more is to be delivered.
	polling context.Context
	stop    context.CancelFunc
	// handling ends when handlers have to return.
	handling   context.Context
	endHandler context.CancelCauseFunc
	// committing ends when it is too late for commits. handling ends with it.
	committing context.Context
	endCommits context.CancelCauseFunc

	done chan struct{} // closed when nothing of it runs any more
}

// newHoldings groups ranges by their slots, since a Reader has the same for all partitions.
func newHoldings(g *GroupReader, as *membership, ranges []AssignedSlots) (holdings []*holding) {
	for _, r := range ranges {
		at := slices.IndexFunc(holdings, func(h *holding) bool { return h.ranges[0].Slots == r.Slots })
		if at < 0 {
			at = len(holdings)
			h := &holding{g: g, as: as, done: make(chan struct{})}
			h.polling, h.stop = context.WithCancel(context.Background())
			h.committing, h.endCommits = context.WithCancelCause(context.Background())
			h.handling, h.endHandler = context.WithCancelCause(h.committing)
			holdings = append(holdings, h)
		}
		holdings[at].ranges = append(holdings[at].ranges, r)
	}
	return holdings
}

// isOf tells whether all that the holding reads is among ranges.
func (h *holding) isOf(ranges []AssignedSlots) bool {
	return !slices.ContainsFunc(h.ranges, func(r AssignedSlots) bool { return !slices.Contains(ranges, r) })
}

// endHandlers ends the contexts of handlers that take too long.
func endHandlers(holdings []*holding, why error) {
	for _, h := range holdings {
		h.endHandler(why)
	}
}

// endAll lets handlers and commits end at once.
func endAll(holdings []*holding, why error) {
	for _, h := range holdings {
		h.stop()
		h.endCommits(why)
	}
}

// run reads until the holding is stopped, and returns when what was committed is answered.
func (h *holding) run() {
	defer close(h.done)
	defer h.endCommits(ErrRevoked)
	r := h.open()
	if r == nil {
		return
	}
	h.deliver(r)
	if err := r.Close(h.committing); err != nil {
		h.g.failed(&GroupError{Group: h.g.cfg.group, Doing: "commit the last records", Err: err})
	}
	for _, err := range r.unreported() {
		h.g.failed(err)
	}
}

// open opens the Reader. What may pass is tried again; nil means that it was stopped.
func (h *holding) open() *Reader {
	for tries := 1; ; tries++ {
		r, err := openReader(h.polling, h.g.cfg.reading(h.as, h.ranges))
		if err == nil {
			return r
		}
		if h.polling.Err() != nil {
			return nil
		}
		h.g.failed(err)
		if !sleep(h.polling, h.g.cfg.backoff(tries)) {
			return nil
		}
	}
}

// deliver calls the handler with what is read.
func (h *holding) deliver(r *Reader) {
	for h.polling.Err() == nil {
		records, err := r.Poll(h.polling)
		if h.polling.Err() != nil {
			return
		}
		if err != nil {
			h.g.failed(err)
			if errors.Is(err, ErrClosed) { // by a handler
				return
			}
			continue
		}
		for few := range slices.Chunk(records, h.g.cfg.member.maxRecords) {
			if h.polling.Err() != nil {
				return // they were not committed, so they come to whoever is next
			}
			h.g.handler(h.handling, r, few)
		}
	}
}

// unreported are the errors that no Poll has returned before the Reader was closed.
func (r *Reader) unreported() []error {
	r.mu.Lock()
	defer r.mu.Unlock()
	errs := r.mu.errs
	r.mu.errs = nil
	return errs
}
