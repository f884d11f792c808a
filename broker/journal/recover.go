package journal

import (
	"context"
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/statestore"
)

// State is what is derived from a journal. Its owner keeps others away during a call.
type State interface {
	// Reset forgets everything, also what Checkpoint would write.
	Reset()
	// Load takes what the view holds under key. Keys come in order. An error says that the
	// view cannot be used; it is dropped and the log replayed instead.
	Load(key, value []byte) error
	// Apply takes a record of the log. What it changes is for the next Checkpoint to write.
	// An error ends the recovery.
	Apply(offset int64, r Record) error
	// Checkpoint writes what has changed since the last one.
	Checkpoint(w Writer) error
}

// Tolerant is a State that can go on without some of its records.
type Tolerant interface {
	// Lost is told of records that cannot be read. nil goes on behind them, if it is known
	// where that is; an error ends the recovery.
	Lost(e *CorruptError) error
}

// Writer takes the changes of a checkpoint. The slices are copied.
type Writer interface {
	Set(key, value []byte)
	Delete(key []byte)
	DeletePrefix(prefix []byte) // of all keys that begin with it
}

// Recovery is what Recover did.
type Recovery struct {
	Applied  int64           // the state has applied all records below
	From     int64           // where the replay began
	Loaded   int             // keys that came from the view
	Replayed int             // records that came from the log
	Dropped  string          // why the view was dropped; empty if it was not
	Lost     []*CorruptError // what the state went on without
}

// Recover brings state to what the journal holds durably: it opens the view, reads the
// offset up to which source was applied, and replays from there. A view that is ahead of
// the log or behind its start, of another source, or unreadable to the state is dropped.
// The source is a name that a log made anew does not have, such as one with a topic id.
//
// After an error the state is of no use, but Recover may be called again.
func Recover(ctx context.Context, view *statestore.View, source string, log Log, state State) (Recovery, error) {
	r := recovery{view: view, source: source, journal: Open(log, source), state: state}
	err := r.fromView(ctx)
	if err == nil {
		err = r.fromLog(ctx)
	}
	if err != nil {
		return r.Recovery, fmt.Errorf("recover the state of %s: %w", source, err)
	}
	return r.Recovery, nil
}

type recovery struct {
	Recovery
	view    *statestore.View
	source  string
	journal *Journal
	state   State
}

// fromView loads the view if it fits the log, and sets From.
func (r *recovery) fromView(ctx context.Context) error {
	r.state.Reset()
	bounds := r.journal.log.Bounds()
	applied, ok, err := r.view.Applied(r.source)
	if err != nil {
		return err
	}
	r.From, r.Applied = bounds.Start, bounds.Start
	switch {
	case !ok:
		empty, err := r.view.Empty()
		if err != nil || empty {
			return err
		}
		return r.drop(ctx, "it was made from another log")
	case applied > bounds.HighWatermark:
		return r.drop(ctx, fmt.Sprintf("it is at offset %d, ahead of the log's end %d", applied, bounds.HighWatermark))
	case applied < bounds.Start:
		return r.drop(ctx, fmt.Sprintf("it is at offset %d, behind the log's start %d", applied, bounds.Start))
	}
	var refused error
	err = r.view.Scan(nil, func(key, value []byte) error {
		r.Loaded++
		refused = r.state.Load(key, value)
		return refused
	})
	if refused != nil {
		r.state.Reset()
		return r.drop(ctx, fmt.Sprintf("it cannot be understood: %v", refused))
	}
	if err != nil {
		return err
	}
	r.From, r.Applied = applied, applied
	return nil
}

// drop empties the view, durably: before anything is appended behind a log's end that
// the view was ahead of.
func (r *recovery) drop(ctx context.Context, why string) error {
	r.Dropped, r.Loaded = why, 0
	return r.view.Drop(ctx)
}

// fromLog replays what the view has not seen.
func (r *recovery) fromLog(ctx context.Context) error {
	var end func(offset int64, t Transaction, commit bool) error
	if transactional, ok := r.state.(Transactional); ok {
		end = transactional.End
	}
	for {
		next, err := r.journal.ReplayTransactions(ctx, r.Applied, func(offset int64, record Record) error {
			r.Replayed++
			return r.state.Apply(offset, record)
		}, end)
		r.Applied = next
		var lost *CorruptError
		tolerant, ok := r.state.(Tolerant)
		if !ok || !errors.As(err, &lost) {
			return err
		}
		if refused := tolerant.Lost(lost); refused != nil {
			return refused
		}
		if lost.Next <= r.Applied {
			return err
		}
		r.Lost, r.Applied = append(r.Lost, lost), lost.Next
	}
}

// CleanUpTo gives the cleaner of a log the offset that it must not pass for the sake of
// a view: what the view has applied and would still have after a crash.
func CleanUpTo(view *statestore.View, source string) func() int64 {
	return func() int64 {
		offset, _ := view.Durable(source)
		return offset
	}
}
