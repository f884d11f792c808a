package individualcommit

import (
	"math/bits"
	"sort"
)

// The measures of an OffsetSet's leaves. They keep two promises: a leaf costs at most
// blockOffsets bits for blockOffsets offsets or more, and two neighbours together hold
// more than joinEdges edges, so a run never costs more than some 50 bytes either.
const (
	blockOffsets = 4096
	leafWords    = blockOffsets / 64
	listEdges    = leafWords - 2 // most edges of a list: a change adds at most two before it is split
	denseEdges   = 40            // a dense leaf with no more edges than this becomes a list
	joinEdges    = 48            // neighbouring lists with no more edges than this become one
)

// leaf holds the edges of one stretch of offsets. An edge is an offset whose membership
// differs from that of the offset below it.
//
// A list leaf keeps its edges in rising order. A dense leaf keeps one bit for each offset
// of one aligned block; all its edges lie in that block, and the offsets of its stretch
// on either side of the block are uniform.
type leaf struct {
	words  []uint64 // a list: the edges, of which there are `edges`; dense: the bits
	base   int64    // dense: the first offset of the block
	weight int64    // sum of the edges, an edge into the set counted negative; may wrap
	edges  int32
	dense  bool
	before bool // the membership of the offset below the stretch
}

// cut is a change of a set: the offsets [lo, hi) become members or cease to be. hasLo
// and hasHi tell which of its ends lie in the stretch that is looked at.
type cut struct {
	lo, hi       int64
	member       bool
	hasLo, hasHi bool
}

// after is the membership of the offsets behind the leaf's last edge.
func (l *leaf) after() bool { return l.before != (l.edges&1 == 1) }

// contains tells whether x, an offset of the stretch, is a member.
func (l *leaf) contains(x int64) bool {
	if !l.dense {
		return l.before != (l.above(x)&1 == 1)
	}
	switch i := x - l.base; {
	case i < 0:
		return l.before
	case i >= blockOffsets:
		return l.after()
	default:
		return l.words[i/64]>>(i%64)&1 == 1
	}
}

// at is the index of the first edge of a list at or above x.
func (l *leaf) at(x int64) int {
	lo, hi := 0, int(l.edges)
	for lo < hi {
		mid := int(uint(lo+hi) / 2)
		if int64(l.words[mid]) < x {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	return lo
}

// above is the index of the first edge of a list above x.
func (l *leaf) above(x int64) int {
	i := l.at(x)
	if i < int(l.edges) && int64(l.words[i]) == x {
		i++
	}
	return i
}

// fill carries out the part of c that lies in the stretch, and gives what it changed.
// An end of c that needs an edge lies where the leaf can hold one; see node.place.
func (l *leaf) fill(c cut, pool *wordPool) sum {
	if l.dense {
		return l.fillDense(c)
	}
	return l.fillList(c, pool)
}

func (l *leaf) fillList(c cut, pool *wordPool) sum {
	i, j, n := 0, int(l.edges), int(l.edges)
	if c.hasLo {
		i = l.at(c.lo)
	}
	if c.hasHi {
		j = i
		if i < n && int64(l.words[i]) <= c.hi {
			j = l.above(c.hi)
		}
	}
	addLo := c.hasLo && (l.before != (i&1 == 1)) != c.member
	addHi := c.hasHi && (l.before != (j&1 == 1)) != c.member
	weight := -l.weigh(i, j)
	end := i
	if addLo {
		end++
	}
	if addHi {
		end++
	}
	var d sum
	if end != j {
		d.bytes = l.reserve(end+n-j, pool)
		copy(l.words[end:], l.words[j:n])
	}
	if addLo {
		l.words[i] = uint64(c.lo)
		weight += signed(c.lo, c.member)
	}
	if addHi {
		l.words[end-1] = uint64(c.hi)
		weight += signed(c.hi, !c.member)
	}
	if !c.hasLo {
		l.before = c.member
	}
	d.edges, d.weight = int64(end-j), weight
	l.edges += int32(d.edges)
	l.weight += weight
	return d
}

// signed is what an edge adds to the weight: an edge into the set counts negative.
func signed(edge int64, into bool) int64 {
	if into {
		return -edge
	}
	return edge
}

// weigh is the weight of the edges i to j of a list.
func (l *leaf) weigh(i, j int) int64 {
	var w int64
	into := l.before == (i&1 == 1)
	for ; i < j; i++ {
		w += signed(int64(l.words[i]), into)
		into = !into
	}
	return w
}

// next is the first edge above x.
func (l *leaf) next(x int64) (edge int64, ok bool) {
	if !l.dense {
		if i := l.above(x); i < int(l.edges) {
			return int64(l.words[i]), true
		}
		return 0, false
	}
	i := max(x+1-l.base, 0)
	if i >= blockOffsets {
		return 0, false
	}
	k := i / 64
	flips := l.flips(k) &^ bitsBelow(i%64)
	for flips == 0 {
		if k++; k == leafWords {
			return 0, false
		}
		flips = l.flips(k)
	}
	return l.base + 64*k + int64(bits.TrailingZeros64(flips)), true
}

// walk yields the edges above x in order, until yield says no.
func (l *leaf) walk(x int64, yield func(edge int64) bool) bool {
	if !l.dense {
		for _, e := range l.words[l.above(x):l.edges] {
			if !yield(int64(e)) {
				return false
			}
		}
		return true
	}
	i := max(x+1-l.base, 0)
	skip := bitsBelow(i % 64)
	for k := i / 64; k < leafWords; k++ {
		for flips := l.flips(k) &^ skip; flips != 0; flips &= flips - 1 {
			if !yield(l.base + 64*k + int64(bits.TrailingZeros64(flips))) {
				return false
			}
		}
		skip = 0
	}
	return true
}

// last is the highest edge of a leaf that has one.
func (l *leaf) last() int64 {
	if !l.dense {
		return int64(l.words[l.edges-1])
	}
	k := int64(leafWords - 1)
	for l.flips(k) == 0 {
		k--
	}
	return l.base + 64*k + 63 - int64(bits.LeadingZeros64(l.flips(k)))
}

// block is the first offset of the aligned block that x lies in.
func block(x int64) int64 { return x &^ (blockOffsets - 1) }

// oneBlock tells whether all edges of a list lie in one block.
func (l *leaf) oneBlock() bool {
	return block(int64(l.words[0])) == block(int64(l.words[l.edges-1]))
}

// split moves the upper part of a list whose edges lie in several blocks to a new leaf,
// whose stretch begins at the given offset: a block's start with edges on both sides,
// as near to the middle as there is.
func (l *leaf) split(pool *wordPool) (from int64, upper leaf) {
	edges := l.words[:l.edges]
	from = block(int64(edges[len(edges)/2]))
	if int64(edges[0]) >= from {
		from += blockOffsets
	}
	i := sort.Search(len(edges), func(i int) bool { return int64(edges[i]) >= from })
	upper.before = l.before != (i&1 == 1)
	upper.reserve(len(edges)-i, pool)
	copy(upper.words, edges[i:])
	upper.edges = int32(len(edges) - i)
	upper.weight = upper.weigh(0, int(upper.edges))
	l.edges = int32(i)
	l.weight -= upper.weight
	return from, upper
}

// join appends the edges of the list that follows l.
func (l *leaf) join(next *leaf, pool *wordPool) {
	l.reserve(int(l.edges+next.edges), pool)
	copy(l.words[l.edges:], next.words[:next.edges])
	l.edges += next.edges
	l.weight += next.weight
	pool.put(next.words)
}

// reserve makes room for n edges and gives by how many bytes the leaf grew.
func (l *leaf) reserve(n int, pool *wordPool) int64 {
	if n <= len(l.words) {
		return 0
	}
	words := pool.take(n)
	copy(words, l.words[:l.edges])
	grown := 8 * int64(len(words)-len(l.words))
	pool.put(l.words)
	l.words = words
	return grown
}
