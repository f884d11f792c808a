package individualcommit

import (
	"fmt"
	"math"
)

// CheckInvariants looks through the whole set and tells what is wrong with it. It is for
// tests.
func (s *OffsetSet) CheckInvariants() error {
	if s.root == nil {
		if s.all != (sum{}) {
			return fmt.Errorf("an empty set sums up to %+v", s.all)
		}
		if n := s.spare; n != nil && (len(n.leaves) != 1 || n.leaves[0].edges != 0 || n.leaves[0].weight != 0 || n.leaves[0].before) {
			return fmt.Errorf("the root that is kept for later is %+v", *n)
		}
		return nil
	}
	if total := s.root.total(); total != s.all {
		return fmt.Errorf("the root sums up to %+v, the set to %+v", total, s.all)
	}
	k := checker{depth: -1}
	if err := k.node(s.root, 0, math.MaxInt64, 0); err != nil {
		return err
	}
	if k.member {
		return fmt.Errorf("the last run has no end")
	}
	if k.weight != s.all.weight || k.edges != s.all.edges {
		return fmt.Errorf("%d edges of weight %d, the set says %d and %d",
			k.edges, k.weight, s.all.edges, s.all.weight)
	}
	return nil
}

// checker goes through the leaves in order.
type checker struct {
	depth         int
	member        bool // the membership of what comes next
	edges, weight int64
}

func (k *checker) node(n *node, from, to int64, depth int) error {
	if c := len(n.from); c == 0 || c > nodeMax || c != len(n.leaves)+len(n.kids) || len(n.kids) != len(n.sums) {
		return fmt.Errorf("node of [%d,%d): %d children, %d leaves, %d nodes, %d sums",
			from, to, c, len(n.leaves), len(n.kids), len(n.sums))
	}
	if n.lowest() {
		if k.depth < 0 {
			k.depth = depth
		}
		if k.depth != depth {
			return fmt.Errorf("leaves of [%d,%d) at depth %d, others at %d", from, to, depth, k.depth)
		}
	}
	for i := range n.from {
		lo, hi := from, to
		if i > 0 {
			lo = n.from[i]
		}
		if i+1 < len(n.from) {
			hi = n.from[i+1]
		}
		if lo >= hi || lo < from || hi > to {
			return fmt.Errorf("child %d of [%d,%d) has [%d,%d)", i, from, to, lo, hi)
		}
		if err := k.child(n, i, lo, hi, depth); err != nil {
			return err
		}
	}
	return nil
}

func (k *checker) child(n *node, i int, lo, hi int64, depth int) error {
	if n.lowest() {
		if i > 0 {
			a, b := &n.leaves[i-1], &n.leaves[i]
			if !a.dense && !b.dense && a.edges+b.edges <= joinEdges {
				return fmt.Errorf("the lists on either side of %d have %d and %d edges", lo, a.edges, b.edges)
			}
		}
		return k.leaf(&n.leaves[i], lo, hi)
	}
	if got := n.kids[i].total(); got != n.sums[i] {
		return fmt.Errorf("the node of [%d,%d) sums up to %+v, its parent says %+v", lo, hi, got, n.sums[i])
	}
	if i > 0 && len(n.kids[i-1].from)+len(n.kids[i].from) <= nodeJoin {
		return fmt.Errorf("the nodes on either side of %d are small", lo)
	}
	return k.node(n.kids[i], lo, hi, depth+1)
}

func (k *checker) leaf(l *leaf, lo, hi int64) error {
	where := fmt.Sprintf("leaf of [%d,%d)", lo, hi)
	if l.edges == 0 {
		return fmt.Errorf("%s has no edge", where)
	}
	if l.before != k.member {
		return fmt.Errorf("%s: members below: %v", where, k.member)
	}
	if l.dense && (len(l.words) != leafWords || l.edges <= denseEdges || l.base%blockOffsets != 0 ||
		l.base < lo || l.base+blockOffsets > hi) {
		return fmt.Errorf("%s: dense block %d with %d edges", where, l.base, l.edges)
	}
	if !l.dense && (l.edges > listEdges || int(l.edges) > len(l.words)) {
		return fmt.Errorf("%s: %d edges in %d words", where, l.edges, len(l.words))
	}
	last, n, weight := lo-1, int64(0), int64(0)
	bad := false
	l.walk(-1, func(edge int64) bool {
		bad = bad || edge <= last || (edge >= hi && hi != math.MaxInt64)
		k.member = !k.member
		weight += signed(edge, k.member)
		last = edge
		n++
		return true
	})
	if bad {
		return fmt.Errorf("%s: edges out of order or beyond it", where)
	}
	if n != int64(l.edges) || weight != l.weight || l.after() != k.member {
		return fmt.Errorf("%s: %d edges of weight %d, it says %d and %d", where, n, weight, l.edges, l.weight)
	}
	k.edges += n
	k.weight += weight
	return nil
}

// CheckInvariants looks through the whole ledger and tells what is wrong with it. It is
// for tests.
func (l *Ledger) CheckInvariants() error {
	if err := l.above.CheckInvariants(); err != nil {
		return fmt.Errorf("committed above %d: %w", l.stable, err)
	}
	if r, ok := l.above.Next(0); ok && r.Start <= l.stable {
		return fmt.Errorf("[%d,%d) is committed above the stable offset %d", r.Start, r.End, l.stable)
	}
	if l.stable < l.start {
		return fmt.Errorf("stable offset %d below the log start %d", l.stable, l.start)
	}
	if err := l.pending.all.CheckInvariants(); err != nil {
		return fmt.Errorf("pending: %w", err)
	}
	count := int64(0)
	for p, s := range l.pending.of {
		if err := s.CheckInvariants(); err != nil {
			return fmt.Errorf("pending in %v: %w", p, err)
		}
		count += s.Count()
	}
	if count != l.pending.all.Count() {
		return fmt.Errorf("%d pending offsets, %d in the transactions", l.pending.all.Count(), count)
	}
	return nil
}
