package individualcommit

import (
	"errors"
	"fmt"
)

// ErrOutOfRange marks a commit at or past the high watermark; Kafka's error code for it
// is OFFSET_OUT_OF_RANGE.
var ErrOutOfRange = errors.New("offset out of range")

// NoOffset is the Request.Offset of a request without a cumulative commit.
const NoOffset = -1

// Request is what a client asks of a ledger. The cumulative commit applies first. No
// offset may be in both lists.
type Request struct {
	Offset int64 // commit all below, as Kafka's OffsetCommit does; NoOffset: no change
	Commit []Run // to become committed
	Reopen []Run // to become uncommitted
}

// MoveKind is what a Move does.
type MoveKind uint8

const (
	MoveNone   MoveKind = 0 // nothing
	MoveCommit MoveKind = 1 // commits all below both From, the high watermark, and To, the offset asked for
	MoveRewind MoveKind = 2 // from the stable offset From back to To, and forgets what is above
	MoveClamp  MoveKind = 3 // forgets what is at and above To, the end of the log after an unclean stop; From is one past the highest of them
)

// Move is a change of the stable offset that is not made of runs. Both its numbers are
// logged, so that the log tells what happened.
type Move struct {
	Kind     MoveKind
	From, To int64
}

// Delta is a change of a ledger that is decided on. The move applies first. The runs are
// those of the request, of which some may change nothing.
type Delta struct {
	Move   Move
	Commit []Run
	Reopen []Run
}

// Empty tells whether the delta changes nothing.
func (d *Delta) Empty() bool {
	return d.Move.Kind == MoveNone && len(d.Commit) == 0 && len(d.Reopen) == 0
}

// Decide judges a request by the high watermark of the data's log: all of it is right, or
// nothing is done. A request that would change nothing gives an empty delta; one with a
// cumulative commit never does, since that replaces metadata even where it leaves the
// offset. The errors are ErrInvalidRuns, ErrOutOfRange and ErrPending.
func (l *Ledger) Decide(q Request, highWatermark int64) (Delta, error) {
	if err := l.check(q, highWatermark); err != nil {
		return Delta{}, err
	}
	return l.plan(q, l.moveTo(q.Offset, highWatermark)), nil
}

// plan is the delta of a move and of what q changes after it.
func (l *Ledger) plan(q Request, m Move) Delta {
	d := Delta{Move: m}
	stable, above := l.stable, &l.above
	switch m.Kind {
	case MoveCommit:
		stable = max(stable, min(m.From, m.To))
	case MoveRewind:
		stable, above = m.To, &OffsetSet{}
	}
	if commitsAny(q.Commit, stable, above) {
		d.Commit = q.Commit
	}
	if reopensAny(q.Reopen, l.start, stable, above) {
		d.Reopen = q.Reopen
	}
	return d
}

func (l *Ledger) check(q Request, highWatermark int64) error {
	if q.Offset < NoOffset {
		return fmt.Errorf("%w: committed offset %d", ErrInvalidRuns, q.Offset)
	}
	if err := checkRuns(q.Commit, "commit"); err != nil {
		return err
	}
	if err := checkRuns(q.Reopen, "reopen"); err != nil {
		return err
	}
	if n := len(q.Commit); n > 0 && q.Commit[n-1].End > highWatermark {
		return fmt.Errorf("%w: commit of offset %d, the high watermark is %d",
			ErrOutOfRange, q.Commit[n-1].End-1, highWatermark)
	}
	if err := l.pending.refuse(q.Commit, "commit"); err != nil {
		return err
	}
	return l.pending.refuse(q.Reopen, "reopen")
}

// moveTo is the move that a cumulative commit makes.
func (l *Ledger) moveTo(offset, highWatermark int64) Move {
	switch {
	case offset == NoOffset:
		return Move{}
	case offset < l.stable:
		return Move{Kind: MoveRewind, From: l.stable, To: max(offset, l.start)}
	default:
		return Move{Kind: MoveCommit, From: highWatermark, To: offset}
	}
}

// commitsAny tells whether an offset of runs is uncommitted.
func commitsAny(runs []Run, stable int64, above *OffsetSet) bool {
	for _, r := range runs {
		r.Start = max(r.Start, stable)
		if !above.Includes(r) {
			return true
		}
	}
	return false
}

// reopensAny tells whether an offset of runs, at or above the log start, is committed.
func reopensAny(runs []Run, start, stable int64, above *OffsetSet) bool {
	for _, r := range runs {
		r.Start = max(r.Start, start)
		if r.Start < r.End && (r.Start < stable || above.Overlaps(r)) {
			return true
		}
	}
	return false
}

// Growth is how many runs d may add to what the ledger keeps, 0 if it can only make it
// smaller: the runs that touch nothing of their own kind on either side.
func (l *Ledger) Growth(d Delta) int {
	n := 0
	for _, r := range d.Commit {
		if r.Start > l.stable && !l.above.Contains(r.Start-1) && !l.above.Overlaps(Run{Start: r.Start, End: r.End + 1}) {
			n++
		}
	}
	for _, r := range d.Reopen {
		if l.IsCommitted(r.Start-1) && l.IsCommitted(r.End) {
			n++
		}
	}
	return n
}

// DecideClamp judges what an unclean stop, after which the log ends at logEnd, has made
// of the ledger: nothing may be committed or pending from there on.
func (l *Ledger) DecideClamp(logEnd int64) Delta {
	logEnd = max(logEnd, l.start)
	top := max(l.MaxCommit(), l.pending.all.End())
	if top <= logEnd {
		return Delta{}
	}
	return Delta{Move: Move{Kind: MoveClamp, From: top, To: logEnd}}
}

// Apply carries out a delta.
func (l *Ledger) Apply(d Delta) {
	l.move(d.Move)
	if len(d.Commit) == 0 && len(d.Reopen) == 0 {
		return
	}
	l.ahead = 0
	for _, r := range d.Commit {
		l.commit(r)
	}
	for _, r := range d.Reopen {
		l.reopen(r)
	}
}

func (l *Ledger) move(m Move) {
	switch m.Kind {
	case MoveCommit:
		l.cumulatives++
		if end := min(m.From, m.To); end > l.stable {
			l.commitTo(end)
		}
		l.ahead = 0
		if m.To > m.From {
			l.ahead = m.To
		}
	case MoveRewind:
		l.cumulatives++
		l.rewind(m.To)
		l.ahead = 0
	case MoveClamp:
		l.clamp(m.To)
	case MoveNone:
	}
}
