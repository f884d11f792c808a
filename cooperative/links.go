package cooperative

import "math/bits"

// ref names an offset by its word's index and its bit there: 4 bytes instead of 8. It is
// good while the page is.
type ref = uint32

// link makes an offset part of the list of its key, which is in order of the offsets. It
// leads one way only, to take 8 bytes: see key.
type link struct {
	key  uint32 // and whether the record has left
	next ref
}

// leftBit marks the link of a record that left the list of its key: see order.go.
const leftBit = 1 << 31

func refOf(wi uint32, offset int64) ref { return wi<<wordShift | uint32(offset&(wordBits-1)) }

// splitRef gives the word and the bit that a ref names.
func splitRef(r ref) (wi uint32, bit uint64) { return r >> wordShift, 1 << (r & (wordBits - 1)) }

func (p *pages) offsetOf(r ref) int64 {
	return p.numberOf(r>>wordShift)<<wordShift | int64(r&(wordBits-1))
}

// link is the link of an offset that has one.
func (p *pages) link(r ref) *link {
	wi, bit := splitRef(r)
	g, w := p.at(wi), wi&(pageWords-1)
	return p.links.at(g.links[w], rank(g.linked[w], bit))
}

// rank is how many bits of a mask are below a bit, 0 being above all.
func rank(mask, bit uint64) int { return bits.OnesCount64(mask & (bit - 1)) }

// addLink makes room for the link of an offset that has none.
func (p *pages) addLink(r ref, l link) {
	wi, bit := splitRef(r)
	g, w := p.at(wi), wi&(pageWords-1)
	mask := g.linked[w]
	n, at := bits.OnesCount64(mask), rank(mask, bit)
	g.linked[w] = mask | bit
	from := g.links[w]
	if from == noBlock || n == p.links.room(from) { // mostly a word fills
		g.links[w] = p.links.take(min(n+2+n/2, wordBits))
	}
	to := p.links.of(g.links[w])
	if from == g.links[w] {
		copy(to[at+1:n+1], to[at:n])
	} else if from != noBlock {
		all := p.links.of(from)
		copy(to, all[:at])
		copy(to[at+1:], all[at:n])
		p.links.give(from)
	}
	to[at] = l
}

// removeLinks gives up the links of the offsets in a word's mask, all of which have one.
func (p *pages) removeLinks(wi uint32, mask uint64) {
	if mask == 0 {
		return
	}
	g, w := p.at(wi), wi&(pageWords-1)
	was, b := g.linked[w], g.links[w]
	g.linked[w] = was &^ mask
	n := bits.OnesCount64(was &^ mask)
	if n == 0 {
		p.links.give(b)
		g.links[w] = noBlock
		return
	}
	to := b
	if n+1+n/16 < p.links.room(b) && roomFor(n) < p.links.room(b) { // else one that came and went would move all
		to = p.links.take(n)
	}
	closeUp(p.links.of(to), p.links.of(b), was, mask)
	if to != b {
		p.links.give(b)
		g.links[w] = to
	}
}

// closeUp copies the links of a word but for those of a mask.
func closeUp(dst, src []link, linked, gone uint64) {
	n := rank(linked, gone&-gone)
	if &dst[0] != &src[0] {
		copy(dst, src[:n])
	}
	for gone != 0 {
		i := rank(linked, gone&-gone)
		gone &= gone - 1
		n += copy(dst[n:], src[i+1:rank(linked, gone&-gone)]) // to the next that goes, or the end
	}
}
