package individualcommit

import "slices"

// The number of children of a node. A node is split when a change has left it with more
// than nodeMax, and joined with a neighbour when both together have at most nodeJoin.
const (
	nodeMax  = 64
	nodeJoin = 48
)

// node is a node of the B-tree of an OffsetSet. It divides its stretch of offsets among
// its children: child i has those from from[i] up to from[i+1], the first child all that
// come before as well. A leaf without edges is dropped and its offsets go to a neighbour,
// so only the tree of an empty set has one.
type node struct {
	from   []int64
	leaves []leaf  // the children of a node of the lowest level
	kids   []*node // the children of any other
	sums   []sum   // what each of kids holds
}

// sum is what a part of the tree holds.
type sum struct {
	edges  int64
	weight int64 // see leaf.weight
	bytes  int64 // of memory
}

func (s *sum) add(d sum) {
	s.edges += d.edges
	s.weight += d.weight
	s.bytes += d.bytes
}

func (s *sum) sub(d sum) {
	s.edges -= d.edges
	s.weight -= d.weight
	s.bytes -= d.bytes
}

// The sizes of the structs, for the memory count; a test holds them.
const (
	nodeBytes = 96
	leafBytes = 48
	sumBytes  = 24
)

// bytes is the memory of the node without its children.
func (n *node) bytes() int64 {
	return nodeBytes + 8*int64(cap(n.from)) + leafBytes*int64(cap(n.leaves)) +
		8*int64(cap(n.kids)) + sumBytes*int64(cap(n.sums))
}

// total is what the node and everything below it hold.
func (n *node) total() sum {
	t := sum{bytes: n.bytes()}
	for i := range n.leaves {
		l := &n.leaves[i]
		t.add(sum{int64(l.edges), l.weight, 8 * int64(len(l.words))})
	}
	for _, s := range n.sums {
		t.add(s)
	}
	return t
}

// child is the index of the child whose stretch x lies in.
func (n *node) child(x int64) int {
	lo, hi := 1, len(n.from)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if n.from[mid] <= x {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo - 1
}

// childFrom is child for an x that does not lie below child i.
func (n *node) childFrom(i int, x int64) int {
	if i+1 == len(n.from) || x < n.from[i+1] {
		return i
	}
	return n.child(x)
}

func (n *node) lowest() bool { return n.leaves != nil }

// leafOf is the leaf whose stretch x lies in.
func (n *node) leafOf(x int64) *leaf {
	for !n.lowest() {
		n = n.kids[n.child(x)]
	}
	return &n.leaves[n.child(x)]
}

// next is the first edge above x.
func (n *node) next(x int64) (edge int64, ok bool) {
	for i := n.child(x); i < len(n.from) && !ok; i++ {
		if n.lowest() {
			edge, ok = n.leaves[i].next(x)
		} else {
			edge, ok = n.kids[i].next(x)
		}
	}
	return edge, ok
}

// walk yields the edges above x in order, until yield says no.
func (n *node) walk(x int64, yield func(edge int64) bool) bool {
	for i := n.child(x); i < len(n.from); i++ {
		if n.lowest() {
			if !n.leaves[i].walk(x, yield) {
				return false
			}
		} else if !n.kids[i].walk(x, yield) {
			return false
		}
	}
	return true
}

// fill carries out the part of c that lies in the node's stretch, and gives what it
// changed. Children that lie wholly inside c are dropped without a look at what they
// hold, so the cost is that of the two paths to the ends of c.
func (n *node) fill(c cut, pool *wordPool) sum {
	d := sum{bytes: -n.bytes()}
	if n.lowest() {
		n.fillLeaves(c, pool, &d)
	} else {
		n.fillKids(c, pool, &d)
	}
	d.bytes += n.bytes()
	return d
}

func (n *node) fillKids(c cut, pool *wordPool, d *sum) {
	first, last := 0, len(n.kids)-1
	if c.hasLo {
		first = n.child(c.lo)
	}
	if c.hasHi {
		last = n.childFrom(first, c.hi)
	}
	if c.hasLo && c.hasHi && first == last {
		n.fillKid(first, c, pool, d)
		n.tidyKid(first, pool, d)
		return
	}
	keep, end := first, last // the children before keep and from end on stay
	if c.hasLo {
		n.fillKid(first, cut{lo: c.lo, hi: c.hi, member: c.member, hasLo: true}, pool, d)
		keep++
	}
	if c.hasHi {
		n.fillKid(last, cut{lo: c.lo, hi: c.hi, member: c.member, hasHi: true}, pool, d)
	} else {
		end++
	}
	n.dropKids(keep, end, d)
	if c.hasHi {
		n.tidyKid(keep, pool, d)
	}
	if c.hasLo {
		n.tidyKid(first, pool, d)
	}
}

func (n *node) fillKid(i int, c cut, pool *wordPool, d *sum) {
	kd := n.kids[i].fill(c, pool)
	n.sums[i].add(kd)
	d.add(kd)
}

func (n *node) dropKids(i, j int, d *sum) {
	for _, s := range n.sums[i:j] {
		d.sub(s)
	}
	n.from = slices.Delete(n.from, i, j)
	n.kids = slices.Delete(n.kids, i, j)
	n.sums = slices.Delete(n.sums, i, j)
}

// tidyKid puts child i right after a change: gone when it is empty, split when it has
// too many children, joined with a neighbour when both have few.
func (n *node) tidyKid(i int, pool *wordPool, d *sum) {
	if n.sums[i].edges == 0 && len(n.kids) > 1 {
		n.dropKids(i, i+1, d)
		return
	}
	if len(n.kids[i].from) > nodeMax {
		n.splitKid(i, d)
		return
	}
	if i+1 < len(n.kids) {
		n.joinKids(i, pool, d)
	}
	if i > 0 {
		n.joinKids(i-1, pool, d)
	}
}

func (n *node) splitKid(i int, d *sum) {
	from, upper := n.kids[i].split()
	n.from = slices.Insert(n.from, i+1, from)
	n.kids = slices.Insert(n.kids, i+1, upper)
	n.sums = slices.Insert(n.sums, i+1, upper.total())
	n.recount(i, d)
	d.add(n.sums[i+1])
}

// recount makes up the sum of child i anew.
func (n *node) recount(i int, d *sum) {
	d.sub(n.sums[i])
	n.sums[i] = n.kids[i].total()
	d.add(n.sums[i])
}

// joinKids makes one child of i and the next if they are small, or one of them is empty.
func (n *node) joinKids(i int, pool *wordPool, d *sum) {
	a, b := n.kids[i], n.kids[i+1]
	switch {
	case n.sums[i].edges == 0:
		n.dropKids(i, i+1, d)
		return
	case n.sums[i+1].edges == 0:
		n.dropKids(i+1, i+2, d)
		return
	case len(a.from)+len(b.from) > nodeJoin:
		return
	}
	seam := len(a.from) - 1
	b.from[0] = n.from[i+1]
	a.from = append(a.from, b.from...)
	a.leaves = append(a.leaves, b.leaves...)
	a.kids = append(a.kids, b.kids...)
	a.sums = append(a.sums, b.sums...)
	var counted sum // by recount
	if a.lowest() {
		a.joinLeaves(seam, pool, &counted)
	} else {
		a.joinKids(seam, pool, &counted)
	}
	n.dropKids(i+1, i+2, d)
	n.recount(i, d)
}

// split moves the upper half of the children to a new node, whose stretch begins at from.
func (n *node) split() (from int64, upper *node) {
	half := len(n.from) / 2
	upper = &node{
		from:   slices.Clone(n.from[half:]),
		leaves: slices.Clone(n.leaves[min(half, len(n.leaves)):]),
		kids:   slices.Clone(n.kids[min(half, len(n.kids)):]),
		sums:   slices.Clone(n.sums[min(half, len(n.sums)):]),
	}
	n.from = slices.Delete(n.from, half, len(n.from))
	if n.lowest() {
		n.leaves = slices.Delete(n.leaves, half, len(n.leaves))
	} else {
		n.kids = slices.Delete(n.kids, half, len(n.kids))
		n.sums = slices.Delete(n.sums, half, len(n.sums))
	}
	return upper.from[0], upper
}
