package individualcommit

import (
	"iter"
	"math"
)

// OffsetSet is a set of offsets, 0 to math.MaxInt64-1. It is made for sets that consist
// of runs: a run costs at most about 50 bytes however long it is, and no set costs more
// than about 1.3 bits for each offset that it spans. Every operation takes time
// logarithmic in the number of runs, but those that list runs. The zero value is empty.
//
// A B-tree holds the edges of the runs (see node); where many lie close together a leaf
// is a bitmap.
type OffsetSet struct {
	root  *node // nil: empty
	all   sum
	pool  wordPool
	spare *node // a small root that the set had before it became empty
}

// spareBytes is how much memory a root may take that is kept for when the set has members
// again: one that is empty every other moment allocates nothing then.
const spareBytes = 1024

// Add makes the offsets of r members. An empty run adds none.
func (s *OffsetSet) Add(r Run) { s.fill(r, true) }

// Remove takes the offsets of r out of the set.
func (s *OffsetSet) Remove(r Run) { s.fill(r, false) }

// Clear takes all offsets out of the set.
func (s *OffsetSet) Clear() { *s = OffsetSet{pool: s.pool} }

func (s *OffsetSet) fill(r Run, member bool) {
	if r.Start >= r.End || (s.root == nil && !member) {
		return
	}
	if s.root == nil {
		s.plant()
	}
	s.all.add(s.root.fill(cut{r.Start, r.End, member, true, true}, &s.pool))
	s.tidyRoot()
}

// plant gives an empty set a root, with one leaf without edges.
func (s *OffsetSet) plant() {
	if s.root, s.spare = s.spare, nil; s.root == nil {
		s.root = &node{from: make([]int64, 1, 2), leaves: make([]leaf, 1, 2)}
	}
	s.all = s.root.total()
}

// uproot takes the root of a set away that has become empty.
func (s *OffsetSet) uproot() {
	root := s.root
	small := root.lowest() && s.all.bytes <= spareBytes
	s.Clear()
	if small {
		root.from[0] = 0
		s.spare = root
	}
}

func (s *OffsetSet) tidyRoot() {
	if s.all.edges == 0 {
		s.uproot()
		return
	}
	if len(s.root.from) > nodeMax {
		lower := s.root
		from, upper := lower.split()
		s.root = &node{
			from: []int64{0, from},
			kids: []*node{lower, upper},
			sums: []sum{lower.total(), upper.total()},
		}
		s.all = s.root.total()
	}
	for len(s.root.kids) == 1 {
		s.all.bytes -= s.root.bytes()
		s.root = s.root.kids[0]
	}
}

// Empty tells whether the set has no member.
func (s *OffsetSet) Empty() bool { return s.root == nil }

// Contains tells whether offset is a member.
func (s *OffsetSet) Contains(offset int64) bool {
	return s.root != nil && s.root.leafOf(offset).contains(offset)
}

// Includes tells whether all offsets of r are members.
func (s *OffsetSet) Includes(r Run) bool {
	return r.Start >= r.End || (s.Contains(r.Start) && s.edgeAfter(r.Start) >= r.End)
}

// Overlaps tells whether an offset of r is a member.
func (s *OffsetSet) Overlaps(r Run) bool {
	return r.Start < r.End && (s.Contains(r.Start) || s.edgeAfter(r.Start) < r.End)
}

// edgeAfter is the first edge above x, or math.MaxInt64 if there is none.
func (s *OffsetSet) edgeAfter(x int64) int64 {
	if s.root != nil {
		if edge, ok := s.root.next(x); ok {
			return edge
		}
	}
	return math.MaxInt64
}

// Next is the first run of members that ends above from, without what lies below from.
func (s *OffsetSet) Next(from int64) (r Run, ok bool) {
	if s.root == nil {
		return Run{}, false
	}
	near := s.root.leafOf(from) // most runs begin and end there
	if !near.contains(from) {
		if from = s.edgeAfterIn(near, from); from == math.MaxInt64 {
			return Run{}, false
		}
	}
	return Run{Start: from, End: s.edgeAfterIn(near, from)}, true
}

// edgeAfterIn is edgeAfter for an x that is not below a leaf, in which to look first.
func (s *OffsetSet) edgeAfterIn(l *leaf, x int64) int64 {
	if edge, ok := l.next(x); ok {
		return edge
	}
	return s.edgeAfter(x)
}

// Runs yields the runs of members that end above from, in order, the first without what
// lies below from. The set must not be changed meanwhile.
func (s *OffsetSet) Runs(from int64) iter.Seq[Run] {
	return func(yield func(Run) bool) {
		if s.root == nil {
			return
		}
		start, inside := from, s.Contains(from)
		s.root.walk(from, func(edge int64) bool {
			if inside && !yield(Run{Start: start, End: edge}) {
				return false
			}
			start, inside = edge, !inside
			return true
		})
	}
}

// Count is the number of members.
func (s *OffsetSet) Count() int64 { return s.all.weight }

// CountRuns is the number of runs of members.
func (s *OffsetSet) CountRuns() int64 { return s.all.edges / 2 }

// End is one past the highest member, or 0 if the set is empty.
func (s *OffsetSet) End() int64 {
	n := s.root
	if n == nil {
		return 0
	}
	for !n.lowest() {
		n = n.kids[len(n.kids)-1]
	}
	return n.leaves[len(n.leaves)-1].last()
}

// MemoryBytes is how much memory the set takes beside the OffsetSet itself.
func (s *OffsetSet) MemoryBytes() int64 {
	n := s.all.bytes + s.pool.bytes()
	if s.spare != nil {
		n += s.spare.total().bytes
	}
	return n
}
