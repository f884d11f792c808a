package individualcommit

// wordPool keeps a few words of leaves that went away, so that a window that moves along
// a log allocates nothing.
type wordPool struct {
	free [][]uint64
}

const (
	poolLeaves  = 4
	smallestLen = 8
)

// take gives at least n words, with what they held before.
func (p *wordPool) take(n int) []uint64 {
	if last := len(p.free) - 1; last >= 0 {
		words := p.free[last]
		p.free = p.free[:last]
		return words
	}
	size := smallestLen
	for size < n {
		size *= 2
	}
	return make([]uint64, size)
}

// put takes the words of a leaf that no longer needs them.
func (p *wordPool) put(words []uint64) {
	if len(words) == leafWords && len(p.free) < poolLeaves {
		p.free = append(p.free, words)
	}
}

// bytes is the memory that the pool holds.
func (p *wordPool) bytes() int64 {
	return 8*leafWords*int64(len(p.free)) + 24*int64(cap(p.free))
}
