package client

import (
	"math"
	"slices"

	"github.com/lacunamq/lacuna/individualcommit"
)

// progress is how far a Reader is in one partition: what it has delivered, what is
// committed as far as it knows, and what to fetch next. It is a plain value, without
// clock, lock or network; its owner fetches what it asks for and tells it what came.
//
// Offsets are delivered in rising order up to position; below position only those in
// again are delivered, once more. Fetching runs ahead of delivering: cursor is where it
// is. Moving the cursor back begins a new generation, and what was fetched in an older
// one is thrown away.
type progress struct {
	// all: what is committed is delivered too, but not once more.
	all bool

	stable     int64 // everything below is committed
	maxCommit  int64 // one past the highest offset that was committed as far as is known
	position   int64 // everything below was delivered at least once, or had no need to
	cursor     int64 // everything below was fetched in this generation, or had no need to
	generation int

	closed  individualcommit.OffsetSet // committed, or asked to be, from stable on
	pending individualcommit.OffsetSet // of closed: those whose commit is not answered yet
	again   individualcommit.OffsetSet // below position, to be delivered once more

	refreshing bool
	answered   []Run // commits answered since the refresh began; still in pending
}

// ledgerView is a group's ledger of a partition as a refresh found it.
type ledgerView struct {
	stable int64                      // everything below is committed
	closed individualcommit.OffsetSet // what is committed from stable on
}

// add takes in the part of the ledger from an offset to another with the gaps between.
func (v *ledgerView) add(from, to int64, gaps []Run) {
	v.closed.Add(Run{Start: from, End: to})
	for _, gap := range gaps {
		v.closed.Remove(gap)
	}
}

// maxCommit is one past the highest committed offset.
func (v *ledgerView) maxCommit() int64 { return max(v.stable, v.closed.End()) }

// startAt begins at an offset, without a ledger.
func (p *progress) startAt(offset int64) {
	*p = progress{all: p.all, stable: 0, position: offset, cursor: offset}
}

// startFrom begins with a ledger: its gaps first, then what lies behind its max commit
// offset. The view is the progress's from then on.
func (p *progress) startFrom(v *ledgerView) {
	*p = progress{all: p.all, stable: v.stable, maxCommit: v.maxCommit(), position: v.maxCommit(), cursor: v.stable, closed: v.closed}
	for _, gap := range appendOthers(nil, &p.closed, Run{Start: p.stable, End: p.position}) {
		p.again.Add(gap)
	}
}

// startWithin begins at an offset, and skips from there on what the ledger says is
// committed.
func (p *progress) startWithin(v *ledgerView, offset int64) {
	p.startFrom(v)
	p.again.Clear()
	p.position, p.cursor = offset, offset
}

// next moves the cursor to the offset to fetch from and returns it.
func (p *progress) next() int64 {
	if p.cursor < p.position {
		run, ok := p.again.Next(p.cursor)
		if !ok {
			run.Start = p.position
		}
		p.cursor = run.Start
	}
	return p.cursor
}

// fetched moves the cursor past what an answer covers. It returns false, and changes
// nothing, if the cursor was moved since the fetch was sent.
func (p *progress) fetched(generation int, next int64) bool {
	if generation != p.generation {
		return false
	}
	p.cursor = max(p.cursor, next)
	return true
}

// wants tells whether the record at offset is to be delivered.
func (p *progress) wants(offset int64) bool {
	if p.all && offset >= p.position {
		return true
	}
	if offset < p.stable || p.closed.Contains(offset) {
		return false
	}
	return offset >= p.position || p.again.Contains(offset)
}

// committed tells whether the offset is known to be committed: by the ledger as it was read
// last, or by the answer to a commit since. What was asked for again counts when that is
// answered.
func (p *progress) committed(offset int64) bool {
	if offset < p.stable {
		return true
	}
	if !p.closed.Contains(offset) {
		return false
	}
	return !p.pending.Contains(offset) || slices.ContainsFunc(p.answered, func(r Run) bool { return r.Start <= offset && offset < r.End })
}

// delivered notes that what lies below next, of this generation, was delivered as far as
// it was wanted.
func (p *progress) delivered(next int64) {
	p.again.Remove(Run{Start: 0, End: next})
	p.position = max(p.position, next)
}

// closing notes that a commit of runs was asked for.
func (p *progress) closing(runs []Run) {
	for _, r := range runs {
		p.closed.Add(r)
		p.pending.Add(r)
	}
}

// settled notes that a commit of runs was answered; not committed means that it was given
// up, so that the offsets are open again.
func (p *progress) settled(runs []Run, committed bool) {
	for _, r := range runs {
		switch {
		case !committed:
			p.closed.Remove(r)
			p.pending.Remove(r)
		case p.refreshing:
			// The ledger that is being read may be older than the answer. Another commit
			// of the same offset may have been answered before, or a first try failed.
			p.closed.Add(r)
			p.pending.Add(r)
			p.answered = append(p.answered, r)
		default:
			p.closed.Add(r)
			p.pending.Remove(r)
		}
		if committed {
			p.maxCommit = max(p.maxCommit, r.End)
		}
	}
}

// raiseStable takes in the stable offset of a commit's answer. It returns false if it is
// below one known before: somebody reopened or rewound, and the ledger must be read again.
func (p *progress) raiseStable(stable int64) bool {
	if stable < p.stable {
		return false
	}
	// A refresh compares what it reads with what was known when it began.
	if !p.refreshing {
		p.stable = stable
		p.closed.Remove(Run{Start: 0, End: stable})
		p.again.Remove(Run{Start: 0, End: stable})
	}
	return true
}

// beginRefresh is called before the ledger is read, so that a commit that is answered
// meanwhile, and may be missing in what is read, is not taken for one that was undone.
func (p *progress) beginRefresh() { p.refreshing = true }

// endRefresh takes in the ledger that was read since beginRefresh, nil if it could not be
// read. Offsets that were known to be committed and now are not were reopened: they are
// delivered once more, and so, if openToo, is everything open below the position.
func (p *progress) endRefresh(v *ledgerView, openToo bool) {
	if v != nil {
		again := p.reopened(v)
		if openToo {
			again = appendOthers(nil, &v.closed, Run{Start: v.stable, End: p.position})
		}
		again = p.unasked(again)
		p.adopt(v)
		p.redeliver(again)
	}
	for _, r := range p.answered {
		p.pending.Remove(r)
	}
	p.refreshing, p.answered = false, nil
}

// reopened are the offsets that were known to be committed and by v are not.
func (p *progress) reopened(v *ledgerView) (runs []Run) {
	if v.stable < p.stable {
		runs = appendOthers(runs, &v.closed, Run{Start: v.stable, End: p.stable})
	}
	for known := range p.closed.Runs(max(v.stable, p.stable)) {
		runs = appendOthers(runs, &v.closed, known)
	}
	return runs
}

// unasked is what of runs nobody asked to commit.
func (p *progress) unasked(runs []Run) (left []Run) {
	for _, r := range runs {
		left = appendOthers(left, &p.pending, r)
	}
	return left
}

// appendOthers appends what of r is not in s.
func appendOthers(dst []Run, s *individualcommit.OffsetSet, r Run) []Run {
	for r.Start < r.End {
		member, ok := s.Next(r.Start)
		if !ok || member.Start >= r.End {
			return append(dst, r)
		}
		if member.Start > r.Start {
			dst = append(dst, Run{Start: r.Start, End: member.Start})
		}
		r.Start = member.End
	}
	return dst
}

// adopt replaces what is known of the ledger, but for commits that are on their way.
func (p *progress) adopt(v *ledgerView) {
	p.stable, p.closed, p.maxCommit = v.stable, v.closed, v.maxCommit()
	for _, r := range p.answered {
		p.maxCommit = max(p.maxCommit, r.End)
	}
	for r := range p.pending.Runs(v.stable) {
		p.closed.Add(r)
	}
}

// redeliver adds runs, as far as they were delivered and are open, to what is delivered
// once more, and moves the cursor back to them.
func (p *progress) redeliver(runs []Run) {
	first := int64(math.MaxInt64)
	for _, r := range runs {
		r.Start, r.End = max(r.Start, p.stable), min(r.End, p.position)
		if r.Start >= r.End {
			continue
		}
		p.again.Add(r)
		first = min(first, r.Start)
	}
	if first < p.cursor {
		p.rewind()
	}
}

// rewind moves the cursor back to the first offset that is still to be delivered, and so
// drops what was fetched and not delivered.
func (p *progress) rewind() {
	p.generation++
	p.cursor = p.position
	if first, ok := p.again.Next(0); ok {
		p.cursor = min(p.cursor, first.Start)
	}
}

// advanceStart follows a log whose start has moved past offsets that were still wanted.
func (p *progress) advanceStart(start int64) {
	p.again.Remove(Run{Start: 0, End: start})
	p.position = max(p.position, start)
	p.rewind()
}

// truncate follows a log that has lost what it held from end on. What comes there next
// are other records, so nothing is known of them.
func (p *progress) truncate(end int64) {
	lost := Run{Start: end, End: math.MaxInt64}
	p.closed.Remove(lost)
	p.pending.Remove(lost)
	p.again.Remove(lost)
	p.stable, p.maxCommit = min(p.stable, end), min(p.maxCommit, end)
	p.position = min(p.position, end)
	p.rewind()
}
