package client

import (
	"cmp"
	"fmt"
	"slices"
)

// normalize sorts runs in place and joins those that touch or overlap, as the wire wants
// them. It fails with ErrBadRuns if one of them is empty, inverted or negative.
func normalize(runs []Run) ([]Run, error) {
	for _, r := range runs {
		if r.Start < 0 || r.End <= r.Start {
			return nil, fmt.Errorf("%w: [%d, %d)", ErrBadRuns, r.Start, r.End)
		}
	}
	return join(runs), nil
}

// join sorts valid runs in place and joins those that touch or overlap.
func join(runs []Run) []Run {
	if len(runs) == 0 {
		return runs
	}
	byStart := func(a, b Run) int { return cmp.Compare(a.Start, b.Start) }
	if !slices.IsSortedFunc(runs, byStart) {
		slices.SortFunc(runs, byStart)
	}
	out := runs[:1]
	for _, r := range runs[1:] {
		if last := &out[len(out)-1]; r.Start <= last.End {
			last.End = max(last.End, r.End)
			continue
		}
		out = append(out, r)
	}
	return out
}
