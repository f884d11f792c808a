package cooperative

import (
	"cmp"
	"slices"
)

// Cause is why a record gets a dead letter.
type Cause uint8

const (
	Rejected  Cause = iota // by a member
	Exhausted              // its deliveries reached the limit
)

// DeadLetter is a record whose dead letter is to be written. It stays Archiving until
// DeadLettered says that it was.
type DeadLetter struct {
	Offset int64
	Count  int16 // the deliveries it had
	Cause  Cause
}

// Changes is what has to be logged, or else done, before a change may be answered. It is
// reused: operations append to it, Reset empties it.
type Changes struct {
	Commit      []Run   // offsets that became committed, rising and not touching, for the ledger
	Counts      []int64 // blocks whose counts changed, rising: see AppendCounts
	DeadLetters []DeadLetter
}

// Reset empties the changes.
func (c *Changes) Reset() {
	c.Commit, c.Counts, c.DeadLetters = c.Commit[:0], c.Counts[:0], c.DeadLetters[:0]
}

// Empty tells whether there is nothing to do.
func (c *Changes) Empty() bool {
	return len(c.Commit) == 0 && len(c.Counts) == 0 && len(c.DeadLetters) == 0
}

func (c *Changes) commit(r Run) {
	if n := len(c.Commit); n > 0 && c.Commit[n-1].End == r.Start {
		c.Commit[n-1].End = r.End
		return
	}
	c.Commit = append(c.Commit, r)
}

func (c *Changes) count(offset int64) {
	block := offset / BlockOffsets
	if n := len(c.Counts); n == 0 || c.Counts[n-1] != block {
		c.Counts = append(c.Counts, block)
	}
}

// Tidy brings in order what was appended. Operations do so with what they append.
func (c *Changes) Tidy() {
	if !slices.IsSorted(c.Counts) {
		slices.Sort(c.Counts)
		c.Counts = slices.Compact(c.Counts)
	}
	rises := func(a, b Run) int { return cmp.Compare(a.Start, b.Start) }
	if slices.IsSortedFunc(c.Commit, rises) {
		return
	}
	slices.SortFunc(c.Commit, rises)
	n := 0
	for _, r := range c.Commit[1:] {
		if c.Commit[n].End == r.Start {
			c.Commit[n].End = r.End
			continue
		}
		n++
		c.Commit[n] = r
	}
	c.Commit = c.Commit[:n+1]
}
