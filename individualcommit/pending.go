package individualcommit

import (
	"errors"
	"fmt"
	"iter"
	"math"
)

// ErrPending marks offsets that a transaction holds, or that a transaction asks for and
// can no longer have; Kafka's error code for it is INVALID_RECORD_STATE.
var ErrPending = errors.New("offset is not open")

// Producer names a transaction: that of a producer id and epoch.
type Producer struct {
	ID    int64
	Epoch int16
}

// pendingSet holds the offsets that open transactions have asked to commit. They stay
// uncommitted until their transaction ends.
type pendingSet struct {
	all   OffsetSet
	of    map[Producer]*OffsetSet
	bytes int64 // of memory, of what is in the map
}

const pendingBytes = 160 // of a map entry and its set, about

func (p *pendingSet) memoryBytes() int64 { return p.all.MemoryBytes() + p.bytes }

// clamp forgets the offsets at and above end.
func (p *pendingSet) clamp(end int64) {
	if p.all.Empty() {
		return
	}
	tail := Run{Start: end, End: math.MaxInt64}
	p.all.Remove(tail)
	for _, s := range p.of {
		p.bytes -= s.MemoryBytes()
		s.Remove(tail)
		p.bytes += s.MemoryBytes()
	}
}

// refuse fails if a transaction holds an offset of runs.
func (p *pendingSet) refuse(runs []Run, what string) error {
	if p.all.Empty() {
		return nil
	}
	for _, r := range runs {
		if held, ok := p.all.Next(r.Start); ok && held.Start < r.End {
			return fmt.Errorf("%w: %s of offset %d, which a transaction holds", ErrPending, what, held.Start)
		}
	}
	return nil
}

// heldElsewhere finds an offset of runs that another transaction than that of own holds.
func (p *pendingSet) heldElsewhere(own Producer, runs []Run) (at int64, held bool) {
	for other, s := range p.of {
		if other == own {
			continue
		}
		for _, r := range runs {
			if first, ok := s.Next(r.Start); ok && first.Start < r.End {
				return first.Start, true
			}
		}
	}
	return 0, false
}

// CheckStage judges whether a transaction may have the offsets of runs: each is open, or
// its own already. The errors are ErrInvalidRuns, ErrOutOfRange and ErrPending.
func (l *Ledger) CheckStage(p Producer, runs []Run, highWatermark int64) error {
	if err := checkRuns(runs, "commit"); err != nil {
		return err
	}
	if n := len(runs); n > 0 && runs[n-1].End > highWatermark {
		return fmt.Errorf("%w: commit of offset %d, the high watermark is %d",
			ErrOutOfRange, runs[n-1].End-1, highWatermark)
	}
	own := l.pending.of[p]
	for _, r := range runs {
		if err := l.checkStageRun(own, r); err != nil {
			return err
		}
	}
	return nil
}

// checkStageRun goes through r by what the transaction holds of it already.
func (l *Ledger) checkStageRun(own *OffsetSet, r Run) error {
	for at := r.Start; at < r.End; {
		part := Run{Start: at, End: r.End}
		if own != nil {
			held, ok := own.Next(at)
			if ok && held.Start == at {
				at = held.End
				continue
			}
			if ok {
				part.End = min(part.End, held.Start)
			}
		}
		if part.Start < l.stable || l.above.Overlaps(part) {
			return fmt.Errorf("%w: an offset of [%d,%d) is committed already", ErrPending, part.Start, part.End)
		}
		if l.pending.all.Overlaps(part) {
			return fmt.Errorf("%w: an offset of [%d,%d) is held by another transaction", ErrPending, part.Start, part.End)
		}
		at = part.End
	}
	return nil
}

// Stage makes the offsets of runs pending in the transaction of p, which CheckStage has
// let pass. They stay uncommitted until EndStage.
func (l *Ledger) Stage(p Producer, runs []Run) {
	own := l.pending.of[p]
	if own == nil {
		own = new(OffsetSet)
		if l.pending.of == nil {
			l.pending.of = make(map[Producer]*OffsetSet)
		}
		l.pending.of[p] = own
		l.pending.bytes += pendingBytes
	}
	l.pending.bytes -= own.MemoryBytes()
	for _, r := range runs {
		own.Add(r)
		l.pending.all.Add(r)
	}
	l.pending.bytes += own.MemoryBytes()
}

// EndStage forgets what is pending in the transaction of p, when it has ended. What it
// committed is a Delta of its own, applied before.
func (l *Ledger) EndStage(p Producer) {
	own := l.pending.of[p]
	if own == nil {
		return
	}
	for r := range own.Runs(0) {
		l.pending.all.Remove(r)
	}
	l.pending.bytes -= pendingBytes + own.MemoryBytes()
	delete(l.pending.of, p)
}

// Staged yields the offsets that are pending in the transaction of p, in order.
func (l *Ledger) Staged(p Producer) iter.Seq[Run] {
	own := l.pending.of[p]
	if own == nil {
		return func(func(Run) bool) {}
	}
	return own.Runs(0)
}

// Pending yields the offsets that are pending in any transaction and lie at or above
// from, in order.
func (l *Ledger) Pending(from int64) iter.Seq[Run] { return l.pending.all.Runs(from) }

// HasPending tells whether a transaction holds an offset of the ledger.
func (l *Ledger) HasPending() bool { return !l.pending.all.Empty() }

// PendingIn names the transaction that holds offset.
func (l *Ledger) PendingIn(offset int64) (p Producer, ok bool) {
	for p, s := range l.pending.of {
		if s.Contains(offset) {
			return p, true
		}
	}
	return Producer{}, false
}
