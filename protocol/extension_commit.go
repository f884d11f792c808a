package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
)

// NoOrigin is the origin of IndividualOffsets that name none: the log start.
const NoOrigin = -1

// IndividualOffsets is what one partition of a commit request wants changed in its
// ledger (OffsetCommit 8+, TxnOffsetCommit 3+).
type IndividualOffsets struct {
	Commit []Run // become committed
	Reopen []Run // become uncommitted
	Origin int64 // where the ledger starts if there is none yet; NoOrigin: the log start
}

// AppendTo appends the field. The runs rise, are not empty and do not touch.
func (o *IndividualOffsets) AppendTo(dst []byte) []byte {
	dst = appendRuns(dst, o.Commit)
	dst = appendRuns(dst, o.Reopen)
	if o.Origin == NoOrigin {
		return append(dst, noTags)
	}
	return appendTag64(append(dst, 1), 0, o.Origin)
}

// ParseIndividualOffsets reads a field that has a whole request's budget.
func ParseIndividualOffsets(b []byte) (o IndividualOffsets, err error) {
	budget := NewBudget()
	err = o.Parse(b, &budget)
	return o, err
}

// Parse reads the field into o, whose slices it reuses, and takes its runs from the
// budget. It refuses a field that asks for nothing, and offsets in both lists.
func (o *IndividualOffsets) Parse(b []byte, budget *Budget) error {
	f := fields{b: b}
	o.Commit = f.runs(o.Commit, &budget.Runs, "commit")
	o.Reopen = f.runs(o.Reopen, &budget.Runs, "reopen")
	o.Origin = NoOrigin
	for t := f.tags(); t.next(&f); {
		if t.number == 0 {
			o.Origin = t.int64(&f, "origin")
		}
	}
	if o.Origin < NoOrigin {
		f.fail("origin %d", o.Origin)
	}
	if err := f.end(); err != nil {
		return fmt.Errorf("individual offsets: %w", err)
	}
	if len(o.Commit) == 0 && len(o.Reopen) == 0 && o.Origin == NoOrigin {
		return fmt.Errorf("individual offsets: %w: nothing to commit or reopen, and no origin", ErrInvalidExtension)
	}
	return disjoint(o.Commit, o.Reopen)
}

// IndividualState is the answer to IndividualOffsets: the ledger after the commit, or
// in a transaction as it is without what is pending.
type IndividualState struct {
	Stable    int64 // every offset below is committed
	MaxCommit int64 // one past the highest committed offset
}

// AppendTo appends the field.
func (s *IndividualState) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.Stable))
	dst = binary.BigEndian.AppendUint64(dst, uint64(s.MaxCommit))
	return append(dst, noTags)
}

// ParseIndividualState reads the field.
func ParseIndividualState(b []byte) (s IndividualState, err error) {
	f := fields{b: b}
	s.Stable = f.int64("stable offset")
	s.MaxCommit = f.int64("max commit offset")
	f.skipTags()
	if err := f.end(); err != nil {
		return IndividualState{}, fmt.Errorf("individual state: %w", err)
	}
	return s, nil
}

// GapsRequest asks OffsetFetch (8+) for the gaps of each partition of a group.
type GapsRequest struct {
	From    int64 // list gaps from here on
	MaxRuns int32 // list at most that many for each partition; 0: as many as the broker likes
}

// AppendTo appends the field.
func (g *GapsRequest) AppendTo(dst []byte) []byte {
	n := byte(0)
	if g.From != 0 {
		n++
	}
	if g.MaxRuns != 0 {
		n++
	}
	dst = append(dst, n)
	if g.From != 0 {
		dst = appendTag64(dst, 0, g.From)
	}
	if g.MaxRuns != 0 {
		dst = append(dst, 1, 4)
		dst = binary.BigEndian.AppendUint32(dst, uint32(g.MaxRuns))
	}
	return dst
}

// ParseGapsRequest reads the field. A max_runs that is there is at least 1.
func ParseGapsRequest(b []byte) (g GapsRequest, err error) {
	f := fields{b: b}
	for t := f.tags(); t.next(&f); {
		switch t.number {
		case 0:
			g.From = t.int64(&f, "from")
		case 1:
			g.MaxRuns = t.maxRuns(&f)
		}
	}
	if err := f.end(); err != nil {
		return GapsRequest{}, fmt.Errorf("gaps request: %w", err)
	}
	return g, nil
}

func (t *tags) maxRuns(f *fields) int32 {
	b := t.fixed(f, 4, "max_runs")
	if b == nil {
		return 0
	}
	n := int32(binary.BigEndian.Uint32(b))
	if n < 1 {
		f.fail("max_runs %d", n)
	}
	return n
}

// GapsComplete is the CompleteTo of IndividualGaps that list all there are.
const GapsComplete = -1

// IndividualGaps is the answer to GapsRequest: the uncommitted runs between the stable
// offset, which is the partition's committed offset, and the max commit offset.
type IndividualGaps struct {
	MaxCommit  int64 // -1: nothing committed
	Gaps       []Run
	CompleteTo int64 // the gaps from here on are missing; GapsComplete: none are
}

// AppendTo appends the field. The gaps rise, are not empty and do not touch.
func (g *IndividualGaps) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(g.MaxCommit))
	dst = appendRuns(dst, g.Gaps)
	if g.CompleteTo == GapsComplete {
		return append(dst, noTags)
	}
	return appendTag64(append(dst, 1), 0, g.CompleteTo)
}

// ParseIndividualGaps reads the field.
func ParseIndividualGaps(b []byte) (g IndividualGaps, err error) {
	err = g.Parse(b)
	return g, err
}

// Parse reads the field into g, whose slice it reuses. An answer has no limit of runs
// but its length.
func (g *IndividualGaps) Parse(b []byte) error {
	f := fields{b: b}
	left := math.MaxInt
	g.MaxCommit = f.int64("max commit offset")
	g.Gaps = f.runs(g.Gaps, &left, "gaps")
	g.CompleteTo = GapsComplete
	for t := f.tags(); t.next(&f); {
		if t.number == 0 {
			g.CompleteTo = t.int64(&f, "complete_to")
		}
	}
	if err := f.end(); err != nil {
		return fmt.Errorf("individual gaps: %w", err)
	}
	return nil
}
