package cooperative

import "math/bits"

// ref names an offset by its page's index and its bit there: 4 bytes instead of 8. It is
// good while the page is.
type ref = uint32

// link makes an offset part of the list of its key, which is in order of the offsets.
type link struct {
	key        uint32
	next, prev ref
}

// block names room for the links of a page: which class, in 3 bits, and which block of
// that. The classes have room for 8, 16, 24 and so on to 64.
type block uint32

const (
	noBlock   = block(none)
	classBits = 3
	classStep = pageBits >> classBits
)

func (b block) class() uint8 { return uint8(b & (1<<classBits - 1)) }

func (b block) room() int { return classStep * (int(b.class()) + 1) }

func (b block) at() int { return int(b >> classBits) }

// linkStore keeps the links of a page side by side without holes, so that one of a page's
// offsets in ten costs not ten times as much as all.
type linkStore struct {
	classes [1 << classBits]struct {
		items []link
		free  []uint32
	}
}

func (s *linkStore) take(class uint8) block {
	c := &s.classes[class]
	if n := len(c.free); n > 0 {
		at := c.free[n-1]
		c.free = c.free[:n-1]
		return block(at<<classBits) | block(class)
	}
	b := block(class)
	b |= block(len(c.items) / b.room() << classBits)
	c.items = withRoom(c.items, b.room())[:len(c.items)+b.room()]
	return b
}

func (s *linkStore) give(b block) {
	c := &s.classes[b.class()]
	if c.free = append(c.free, uint32(b.at())); len(c.free)*b.room() == len(c.items) {
		c.items, c.free = c.items[:0], c.free[:0]
	}
}

func (s *linkStore) of(b block) []link {
	at := b.at() * b.room()
	return s.classes[b.class()].items[at : at+b.room()]
}

func (s *linkStore) move(b block, class uint8, n int) block {
	to := s.take(class)
	copy(s.of(to), s.of(b)[:n])
	s.give(b)
	return to
}

func (p *pages) refOf(i uint32, offset int64) ref {
	return i<<pageShift | uint32(offset&(pageBits-1))
}

func (p *pages) offsetOf(r ref) int64 {
	return p.at(r>>pageShift).number<<pageShift | int64(r&(pageBits-1))
}

// link is the link of an offset that is tracked.
func (p *pages) link(r ref) *link {
	g := p.at(r >> pageShift)
	rank := bits.OnesCount64(g.tracked & (1<<(r&(pageBits-1)) - 1))
	return &p.links.of(g.links)[rank]
}

// addLink makes room for the link of an offset.
func (p *pages) addLink(r ref, l link) {
	g := p.at(r >> pageShift)
	n := bits.OnesCount64(g.tracked)
	switch {
	case n == 0:
		g.links = p.links.take(0)
	case n == g.links.room():
		g.links = p.links.move(g.links, min(2*g.links.class()+1, 1<<classBits-1), n) // twice as much: mostly a page fills
	}
	bit := r & (pageBits - 1)
	rank := bits.OnesCount64(g.tracked & (1<<bit - 1))
	all := p.links.of(g.links)
	copy(all[rank+1:n+1], all[rank:n])
	all[rank] = l
	g.tracked |= 1 << bit
}

// removeLinks gives up the links of the offsets in mask, all of which are tracked.
func (p *pages) removeLinks(i uint32, mask uint64) {
	g := p.at(i)
	was := g.tracked
	g.tracked &^= mask
	switch n := bits.OnesCount64(g.tracked); {
	case was == 0:
	case n == 0:
		p.links.give(g.links)
		g.links = noBlock
	default:
		closeUp(p.links.of(g.links), was, mask)
		if spare := 2; n+spare+classStep <= g.links.room() { // so that one that comes and goes moves none
			g.links = p.links.move(g.links, uint8((n+spare-1)/classStep), n)
		}
	}
}

// closeUp takes those of a mask out of the links of the tracked offsets.
func closeUp(all []link, tracked, gone uint64) {
	rank := func(below uint64) int { return bits.OnesCount64(tracked & below) }
	n := rank(gone&-gone - 1) // so many are in their place
	for gone != 0 {
		i := rank(gone&-gone - 1)
		gone &= gone - 1
		n += copy(all[n:], all[i+1:rank(gone&-gone-1)]) // to the next that goes, or the end
	}
}
