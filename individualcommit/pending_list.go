package individualcommit

import (
	"cmp"
	"container/heap"
	"sort"
)

// PendingCommit is what an open transaction commits of a ledger, if it commits.
type PendingCommit struct {
	Producer
	Offset int64 // a cumulative commit; NoOffset: none
	Runs   []Run // in order
}

// HasPending tells whether the end of a transaction may change the ledger.
func (e *Entry) HasPending() bool {
	if e.Ledger.HasPending() {
		return true
	}
	for _, st := range e.staged {
		if e.moves(&st) {
			return true
		}
	}
	return false
}

// moves tells whether a pending record holds a cumulative commit that still counts.
func (e *Entry) moves(st *staged) bool {
	return st.offset != NoOffset && st.cumulatives == e.Ledger.cumulatives
}

// Pending lists what open transactions hold from the offset `from` on, ordered by
// transaction, with at most limit runs and cumulative commits in all, but for commits to
// within the last run; next is where to go on for more, and below 0 if that is all.
// A run that begins below `from` is cut off there. What a cumulative commit has committed
// meanwhile is not listed.
func (e *Entry) Pending(from int64, limit int) (list []PendingCommit, next int64) {
	at := make(map[Producer]int)
	queue := e.pendingFrom(from)
	heap.Init(&queue)
	var end int64 // of what is listed
	for ; len(queue) > 0; limit-- {
		c := &queue[0]
		if limit <= 0 && c.run.Start >= end {
			return sorted(list), c.run.Start
		}
		end = max(end, c.run.End)
		i, known := at[c.p]
		if !known {
			i, at[c.p] = len(list), len(list)
			list = append(list, PendingCommit{Producer: c.p, Offset: NoOffset})
		}
		if c.set == nil {
			list[i].Offset = c.run.Start
		} else {
			list[i].Runs = append(list[i].Runs, c.run)
		}
		if c.advance(c.run.End) {
			heap.Fix(&queue, 0)
		} else {
			heap.Pop(&queue)
		}
	}
	return sorted(list), -1
}

// sorted orders what is pending by transaction.
func sorted(list []PendingCommit) []PendingCommit {
	sort.Slice(list, func(i, j int) bool {
		return cmp.Or(cmp.Compare(list[i].ID, list[j].ID), cmp.Compare(list[i].Epoch, list[j].Epoch)) < 0
	})
	return list
}

// pendingFrom are the cursors over all that is pending, each at its first run.
func (e *Entry) pendingFrom(from int64) (queue pendingQueue) {
	for p, set := range e.Ledger.pending.of {
		if c := (pendingCursor{p: p, set: set}); c.advance(max(from, e.Ledger.stable)) {
			queue = append(queue, c)
		}
	}
	moves := make(map[Producer]int64)
	for _, key := range e.stagedKeys() { // the last one is the one that applies
		if st := e.staged[key]; e.moves(&st) {
			moves[Producer{key.producerID, st.producerEpoch}] = st.offset
		}
	}
	for p, offset := range moves {
		if offset >= from {
			queue = append(queue, pendingCursor{p: p, run: Run{Start: offset, End: offset + 1}})
		}
	}
	return queue
}

// pendingCursor is at a run of a transaction, or at its cumulative commit.
type pendingCursor struct {
	p   Producer
	set *OffsetSet // nil: a cumulative commit, to the start of run
	run Run
}

// advance moves to the next run that ends above from, and tells whether there is one.
func (c *pendingCursor) advance(from int64) (ok bool) {
	if c.set == nil {
		return false
	}
	if c.run, ok = c.set.Next(from); ok {
		c.run.Start = max(c.run.Start, from)
	}
	return ok
}

// pendingQueue has the cursor with the lowest offset first.
type pendingQueue []pendingCursor

func (q pendingQueue) Len() int           { return len(q) }
func (q pendingQueue) Less(i, j int) bool { return q[i].run.Start < q[j].run.Start }
func (q pendingQueue) Swap(i, j int)      { q[i], q[j] = q[j], q[i] }
func (q *pendingQueue) Push(x any)        { *q = append(*q, x.(pendingCursor)) }

func (q *pendingQueue) Pop() any {
	last := (*q)[len(*q)-1]
	*q = (*q)[:len(*q)-1]
	return last
}
