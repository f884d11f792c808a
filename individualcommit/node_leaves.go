package individualcommit

import "slices"

// fillLeaves is fill for a node of the lowest level.
func (n *node) fillLeaves(c cut, pool *wordPool, d *sum) {
	first, last := 0, len(n.leaves)-1
	if c.hasLo {
		first = n.place(n.child(c.lo), c.lo, c.member)
	}
	if c.hasHi {
		last = n.place(n.childFrom(first, c.hi), c.hi, c.member)
	}
	if c.hasLo && c.hasHi && first == last {
		d.add(n.leaves[first].fill(c, pool))
		n.tidyLeaf(first, pool, d)
		return
	}
	keep, end := first, last // the leaves before keep and from end on stay
	if c.hasLo {
		d.add(n.leaves[first].fill(cut{lo: c.lo, hi: c.hi, member: c.member, hasLo: true}, pool))
		keep++
	}
	if c.hasHi {
		d.add(n.leaves[last].fill(cut{lo: c.lo, hi: c.hi, member: c.member, hasHi: true}, pool))
	} else {
		end = len(n.leaves)
	}
	n.dropLeaves(keep, end, pool, d)
	if c.hasHi {
		n.tidyLeaf(keep, pool, d)
	}
	if c.hasLo {
		n.tidyLeaf(first, pool, d)
	}
}

// place is the index of the leaf that takes the end x of a cut, which lies in the stretch
// of leaf i. A dense leaf can hold no edge beside its block, so if x needs one there, the
// offsets on that side of the block are given to a new list.
func (n *node) place(i int, x int64, member bool) int {
	l := &n.leaves[i]
	switch {
	case !l.dense || l.contains(x) == member:
		return i
	case x < l.base:
		from := n.from[i]
		n.from[i] = l.base
		n.insertLeaf(i, from, leaf{before: l.before})
		return i
	case x >= l.base+blockOffsets:
		n.insertLeaf(i+1, l.base+blockOffsets, leaf{before: l.after()})
		return i + 1
	default:
		return i
	}
}

func (n *node) insertLeaf(i int, from int64, l leaf) {
	n.from = slices.Insert(n.from, i, from)
	n.leaves = slices.Insert(n.leaves, i, l)
}

func (n *node) dropLeaves(i, j int, pool *wordPool, d *sum) {
	for k := i; k < j; k++ {
		l := &n.leaves[k]
		d.sub(sum{int64(l.edges), l.weight, 8 * int64(len(l.words))})
		pool.put(l.words)
	}
	n.from = slices.Delete(n.from, i, j)
	n.leaves = slices.Delete(n.leaves, i, j)
}

// tidyLeaf puts leaf i right after a change: gone when it has no edge, of the kind that
// suits it, split when it has too many edges, joined with a neighbour when both have few.
func (n *node) tidyLeaf(i int, pool *wordPool, d *sum) {
	l := &n.leaves[i]
	switch {
	case l.edges == 0 && len(n.leaves) > 1:
		n.dropLeaves(i, i+1, pool, d)
		if i > 0 {
			n.joinLeaves(i-1, pool, d)
		}
		return
	case l.dense && l.edges <= denseEdges:
		l.toList()
	case !l.dense && l.edges > listEdges && l.oneBlock():
		l.toDense(pool)
	case !l.dense && l.edges > listEdges:
		from, upper := l.split(pool)
		d.bytes += 8 * int64(len(upper.words))
		n.insertLeaf(i+1, from, upper)
		n.tidyLeaf(i+1, pool, d)
		n.tidyLeaf(i, pool, d)
		return
	}
	n.joinLeaves(i, pool, d)
	if i > 0 {
		n.joinLeaves(i-1, pool, d)
	}
}

// joinLeaves makes one list of leaf i and the next, if there is one and both are lists
// with few edges.
func (n *node) joinLeaves(i int, pool *wordPool, d *sum) {
	if i+1 >= len(n.leaves) {
		return
	}
	a, b := &n.leaves[i], &n.leaves[i+1]
	if a.dense || b.dense || a.edges+b.edges > joinEdges {
		return
	}
	d.bytes -= 8 * int64(len(a.words)+len(b.words))
	a.join(b, pool)
	d.bytes += 8 * int64(len(a.words))
	n.from = slices.Delete(n.from, i+1, i+2)
	n.leaves = slices.Delete(n.leaves, i+1, i+2)
}
