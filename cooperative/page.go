package cooperative

import "math/bits"

// A page is what is known of 64 offsets beyond "available", of which nothing is kept but
// membership in a pool. Each offset is a bit of its masks.
const (
	pageShift = 6
	pageBits  = 1 << pageShift
)

type page struct {
	number  int64  // the offsets number*64 to number*64+63
	taken   uint64 // in a group: acquired, delayed, pending or archiving
	tracked uint64 // in the list of a key, with a link in links
	first   uint32 // of the page's groups
	links   block  // in pages.links
}

// pages are the pages there are.
type pages struct {
	all   arena[page]
	by    index
	links linkStore
	last  uint32 // found last
}

func newPages() *pages {
	p := &pages{last: none}
	p.by = newIndex(func(i uint32) uint64 { return uint64(p.all.items[i].number) })
	return p
}

func pageOf(offset int64) (number int64, bit uint64) {
	return offset >> pageShift, 1 << (offset & (pageBits - 1))
}

// find is the page with a number, none if there is none.
func (p *pages) find(number int64) uint32 {
	if p.last != none && p.all.items[p.last].number == number {
		return p.last
	}
	i, ok := p.by.find(uint64(number))
	if ok {
		p.last = i
	}
	return i
}

// get is the page with a number, made if there is none.
func (p *pages) get(number int64) uint32 {
	i := p.find(number)
	if i == none {
		i = p.all.add(page{number: number, first: none, links: noBlock})
		p.by.put(i)
		p.last = i
	}
	return i
}

func (p *pages) at(i uint32) *page { return &p.all.items[i] }

// tidy removes a page that says nothing any more.
func (p *pages) tidy(i uint32) {
	g := p.at(i)
	if g.taken|g.tracked != 0 {
		return
	}
	p.by.remove(uint64(g.number))
	p.all.remove(i)
	p.last = none
}

// maskOf is the mask of the offsets [start, end) in the page with a number, which they
// touch.
func maskOf(number, start, end int64) uint64 {
	base := number << pageShift
	lo := max(start-base, 0)
	mask := ^uint64(0) << lo
	if hi := end - base; hi < pageBits {
		mask &= 1<<hi - 1
	}
	return mask
}

// eachBit calls f with the offsets of a mask, in order.
func eachBit(number int64, mask uint64, f func(offset int64)) {
	for ; mask != 0; mask &= mask - 1 {
		f(number<<pageShift + int64(bits.TrailingZeros64(mask)))
	}
}
