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
	// MaxPending asks for what is pending in open transactions too, from From on, and for
	// at most that many runs of each partition; 0: do not.
	MaxPending int32
}

// AppendTo appends the field.
func (g *GapsRequest) AppendTo(dst []byte) []byte {
	at := len(dst)
	dst = append(dst, 0)
	if g.From != 0 {
		dst[at]++
		dst = appendTag64(dst, 0, g.From)
	}
	for i, n := range []int32{g.MaxRuns, g.MaxPending} {
		if n != 0 {
			dst[at]++
			dst = append(dst, byte(1+i), 4)
			dst = binary.BigEndian.AppendUint32(dst, uint32(n))
		}
	}
	return dst
}

// ParseGapsRequest reads the field. A max_runs or max_pending that is there is at least 1.
func ParseGapsRequest(b []byte) (g GapsRequest, err error) {
	f := fields{b: b}
	for t := f.tags(); t.next(&f); {
		switch t.number {
		case 0:
			g.From = t.int64(&f, "from")
		case 1:
			g.MaxRuns = t.limit(&f, "max_runs")
		case 2:
			g.MaxPending = t.limit(&f, "max_pending")
		}
	}
	if err := f.end(); err != nil {
		return GapsRequest{}, fmt.Errorf("gaps request: %w", err)
	}
	return g, nil
}

func (t *tags) limit(f *fields, what string) int32 {
	b := t.fixed(f, 4, what)
	if b == nil {
		return 0
	}
	n := int32(binary.BigEndian.Uint32(b))
	if n < 1 {
		f.fail("%s %d", what, n)
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
	CompleteTo int64    // the gaps from here on are missing; GapsComplete: none are
	Pending    *Pending // nil: not asked for
}

// AppendTo appends the field. The gaps rise, are not empty and do not touch.
func (g *IndividualGaps) AppendTo(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(dst, uint64(g.MaxCommit))
	dst = appendRuns(dst, g.Gaps)
	at := len(dst)
	dst = append(dst, 0)
	if g.CompleteTo != GapsComplete {
		dst[at]++
		dst = appendTag64(dst, 0, g.CompleteTo)
	}
	if g.Pending != nil {
		dst[at]++
		value := g.Pending.appendTo(nil)
		dst = append(dst, 1)
		dst = binary.AppendUvarint(dst, uint64(len(value)))
		dst = append(dst, value...)
	}
	return dst
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
	g.CompleteTo, g.Pending = GapsComplete, nil
	for t := f.tags(); t.next(&f); {
		switch t.number {
		case 0:
			g.CompleteTo = t.int64(&f, "complete_to")
		case 1:
			g.Pending = parsePending(&f, t.value)
		}
	}
	if err := f.end(); err != nil {
		return fmt.Errorf("individual gaps: %w", err)
	}
	return nil
}
