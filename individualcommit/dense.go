package individualcommit

import "math/bits"

// fillDense changes the bits word by word, and counts edges and members as it goes.
func (l *leaf) fillDense(c cut) sum {
	from, to := int64(0), int64(blockOffsets)
	if c.hasLo {
		from = min(max(c.lo-l.base, 0), blockOffsets)
	}
	if c.hasHi {
		to = min(max(c.hi-l.base, 0), blockOffsets)
	}
	before, after := l.before, l.after()
	if !c.hasLo || c.lo < l.base {
		l.before = c.member
	}
	var d sum
	first, last := from/64, min(to/64, leafWords-1)
	oldCarry, carry := bit(before), bit(l.before)
	if first > 0 {
		carry = l.words[first-1] >> 63
		oldCarry = carry
	}
	for k := first; k <= last; k++ {
		old := l.words[k]
		mask := bitsBelow(to-64*k) &^ bitsBelow(from-64*k)
		word := old &^ mask
		if c.member {
			word = old | mask
		}
		l.words[k] = word
		d.edges += int64(bits.OnesCount64(word^(word<<1|carry)) - bits.OnesCount64(old^(old<<1|oldCarry)))
		d.weight += int64(bits.OnesCount64(word) - bits.OnesCount64(old))
		oldCarry, carry = old>>63, word>>63
	}
	l.edges += int32(d.edges)
	d.weight += (int64(bit(l.before))-int64(bit(before)))*l.base -
		(int64(bit(l.after()))-int64(bit(after)))*(l.base+blockOffsets)
	l.weight += d.weight
	return d
}

func bit(b bool) uint64 {
	if b {
		return 1
	}
	return 0
}

// bitsBelow is a word with the lowest n bits set; n may be out of range on either side.
func bitsBelow(n int64) uint64 {
	switch {
	case n <= 0:
		return 0
	case n >= 64:
		return ^uint64(0)
	default:
		return 1<<n - 1
	}
}

// flips has a bit for each edge of word k of a dense leaf.
func (l *leaf) flips(k int64) uint64 {
	carry := bit(l.before)
	if k > 0 {
		carry = l.words[k-1] >> 63
	}
	return l.words[k] ^ (l.words[k]<<1 | carry)
}

// toDense makes a list whose edges lie in one block dense.
func (l *leaf) toDense(pool *wordPool) {
	edges := l.words[:l.edges]
	words := pool.take(leafWords)
	clear(words)
	l.base = block(int64(edges[0]))
	at, member := int64(0), l.before
	for _, e := range edges {
		to := int64(e) - l.base
		setBits(words, at, to, member)
		at, member = to, !member
	}
	setBits(words, at, blockOffsets, member)
	pool.put(l.words)
	l.words, l.dense = words, true
}

// setBits sets the bits [from, to) if member is set.
func setBits(words []uint64, from, to int64, member bool) {
	if !member {
		return
	}
	for k := from / 64; k < leafWords && 64*k < to; k++ {
		words[k] |= bitsBelow(to-64*k) &^ bitsBelow(from-64*k)
	}
}

// toList makes a dense leaf with at most denseEdges edges a list.
func (l *leaf) toList() {
	var edges [denseEdges]uint64
	n := 0
	l.walk(l.base-1, func(edge int64) bool {
		edges[n] = uint64(edge)
		n++
		return true
	})
	copy(l.words, edges[:n])
	l.dense, l.base = false, 0
}
