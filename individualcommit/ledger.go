package individualcommit

// Ledger is what one group has committed of one topic partition. The zero value is the
// ledger of a group that has committed nothing of a log that starts at 0.
//
// A change goes in two steps: Decide turns what a client asks for into a Delta, and Apply
// carries the Delta out, now or when the internal log is replayed. What follows from the
// data's log alone is not logged at once: where it starts (AdvanceStart) and which offsets
// hold no record (Close) is told again after a replay; the next record only mentions how
// far that had moved the stable offset.
type Ledger struct {
	start       int64     // of the log, as far as the ledger was told
	stable      int64     // all below are committed, it is not
	ahead       int64     // a cumulative commit past the high watermark; 0: none
	cumulatives uint64    // how many cumulative commits there were
	closed      bool      // Close has moved the stable offset since takeFloor
	above       OffsetSet // the committed offsets above stable
	pending     pendingSet
}

// Stable is the stable offset: every offset below it is committed, and it is not.
func (l *Ledger) Stable() int64 { return l.stable }

// Committed is the offset that a stock client sees as committed: the stable offset, or
// the last cumulative commit while that is past the high watermark it found.
func (l *Ledger) Committed() int64 { return max(l.stable, l.ahead) }

// MaxCommit is one past the highest committed offset, and not below Committed.
func (l *Ledger) MaxCommit() int64 { return max(l.stable, l.ahead, l.above.End()) }

// IsCommitted tells whether offset is committed.
func (l *Ledger) IsCommitted(offset int64) bool {
	return offset < l.stable || l.above.Contains(offset)
}

// Cumulatives counts the cumulative commits, rewinds included, that the ledger has seen.
// A transaction compares it to learn whether one came meanwhile.
func (l *Ledger) Cumulatives() uint64 { return l.cumulatives }

// Start is the log start offset that the ledger was told last.
func (l *Ledger) Start() int64 { return l.start }

// MemoryBytes is how much memory the ledger takes beside the Ledger itself.
func (l *Ledger) MemoryBytes() int64 { return l.above.MemoryBytes() + l.pending.memoryBytes() }

// AdvanceStart tells the ledger where the log starts: what retention or DeleteRecords
// took away is committed. It tells whether anything was.
func (l *Ledger) AdvanceStart(logStart int64) bool {
	l.start = max(l.start, logStart)
	return l.Close(l.start)
}

// Close commits the offsets from the stable one to end, since none of them holds a record
// that the group is to read: control markers, what compaction left out, and for a
// read_committed share group what a transaction aborted. It tells whether there were any.
func (l *Ledger) Close(end int64) bool {
	if end <= l.stable {
		return false
	}
	l.commitTo(end)
	l.closed = true
	return true
}

// takeFloor is the stable offset if Close has moved it since the last call, else 0: what
// the next record has to tell.
func (l *Ledger) takeFloor() int64 {
	if !l.closed {
		return 0
	}
	l.closed = false
	return l.stable
}

// commitTo commits all below end, which is above the stable offset.
func (l *Ledger) commitTo(end int64) {
	l.stable = end
	l.absorb()
}

// absorb moves the stable offset past what is committed above it.
func (l *Ledger) absorb() {
	if l.above.Empty() {
		return
	}
	if l.above.Contains(l.stable) {
		l.stable = l.above.edgeAfter(l.stable)
	}
	l.above.Remove(Run{Start: 0, End: l.stable})
}

func (l *Ledger) commit(r Run) {
	switch {
	case r.End <= l.stable:
	case r.Start <= l.stable:
		l.commitTo(r.End)
	default:
		l.above.Add(r)
	}
}

func (l *Ledger) reopen(r Run) {
	if r.Start = max(r.Start, l.start); r.Start >= r.End {
		return
	}
	if r.Start < l.stable {
		l.above.Add(Run{Start: r.End, End: l.stable})
		l.stable = r.Start
	}
	l.above.Remove(r)
}

// rewind forgets what is committed at and above to.
func (l *Ledger) rewind(to int64) {
	l.stable = to
	l.above.Clear()
}

// clamp forgets what is committed at and above the log's end.
func (l *Ledger) clamp(end int64) {
	l.stable = min(l.stable, end)
	l.ahead = min(l.ahead, end)
	l.above.Remove(Run{Start: end, End: l.above.End()})
	l.pending.clamp(end)
}
