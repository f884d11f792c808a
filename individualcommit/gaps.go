package individualcommit

import "iter"

// NextGap is the first gap that ends above from, without what lies below from. There is
// none at or above the max commit offset.
func (l *Ledger) NextGap(from int64) (gap Run, ok bool) {
	from = max(from, l.stable)
	if l.above.Contains(from) {
		from = l.above.edgeAfter(from)
	}
	next, ok := l.above.Next(from)
	if !ok {
		return Run{}, false
	}
	return Run{Start: from, End: next.Start}, true
}

// Gaps yields the gaps that end above from, in order, the first without what lies below
// from. The ledger must not be changed meanwhile.
func (l *Ledger) Gaps(from int64) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		at := max(from, l.stable)
		for r := range l.above.Runs(at) {
			if at < r.Start && !yield(Run{Start: at, End: r.Start}) {
				return
			}
			at = r.End
		}
	}
}

// AppendGaps appends the gaps from `from` on to dst, at most limit of them; next is where
// to go on for more, and below 0 if there are none.
func (l *Ledger) AppendGaps(dst []Run, from int64, limit int) (gaps []Run, next int64) {
	for gap := range l.Gaps(from) {
		if limit--; limit < 0 {
			return dst, gap.Start
		}
		dst = append(dst, gap)
	}
	return dst, -1
}

// GapCount is the number of gaps.
func (l *Ledger) GapCount() int64 { return l.above.CountRuns() }

// OpenCount is the number of offsets in the gaps.
func (l *Ledger) OpenCount() int64 {
	if l.above.Empty() {
		return 0
	}
	return l.above.End() - l.stable - l.above.Count()
}

// FirstOpen is the first offset from `from` on that is not committed. Unlike a gap it may
// lie at or above the max commit offset, and below one that an operator set past the end of
// the log.
func (l *Ledger) FirstOpen(from int64) int64 {
	if l.IsCommitted(from) {
		return l.committedUpTo(from)
	}
	return from
}

// AppendOpen appends the parts of r that are not committed to dst.
func (l *Ledger) AppendOpen(dst []Run, r Run) []Run {
	for r.Start = l.FirstOpen(r.Start); r.Start < r.End; r.Start = l.FirstOpen(r.Start) {
		open := Run{Start: r.Start, End: r.End}
		if next, ok := l.above.Next(r.Start); ok {
			open.End = min(open.End, next.Start)
		}
		dst = append(dst, open)
		r.Start = open.End
	}
	return dst
}

// AppendCommitted appends the parts of r that are committed to dst.
func (l *Ledger) AppendCommitted(dst []Run, r Run) []Run {
	for r.Start < r.End {
		if !l.IsCommitted(r.Start) {
			next, ok := l.above.Next(r.Start)
			if !ok {
				return dst
			}
			r.Start = next.Start
			continue
		}
		end := min(r.End, l.committedUpTo(r.Start))
		dst = append(dst, Run{Start: r.Start, End: end})
		r.Start = end
	}
	return dst
}

// committedUpTo is the end of the run of committed offsets that holds offset.
func (l *Ledger) committedUpTo(offset int64) int64 {
	if offset < l.stable {
		return l.stable
	}
	return l.above.edgeAfter(offset)
}
