package cooperative

import (
	"math/bits"
	"slices"
)

// A page is what is known of 256 offsets beyond "available", of which nothing is kept but
// membership in a pool. Each offset is a bit of its masks. They are worked with by the word,
// the 64 offsets that a machine word has room for.
const (
	wordShift = 6
	wordBits  = 1 << wordShift
	pageShift = 2 // of a word's number
	pageWords = 1 << pageShift
	// maxPages is how many a ref can name: more than what may be acquired or waiting, by what
	// those settings may be at most, if no two records are in one.
	maxPages = 1 << (32 - wordShift - pageShift)
)

type page struct {
	number int64             // the words number*4 to number*4+3
	taken  [pageWords]uint64 // in a hold: acquired, delayed, pending or archiving
	linked [pageWords]uint64 // in the list of a key, with a link in links
	links  [pageWords]block  // in pages.links
	hold   uint32            // of those taken that are in no group
	first  uint32            // group, none if there is none
}

// pages are the pages there are. A word of one is named by the page's index, and which of its
// words it is in the lowest bits.
type pages struct {
	all   arena[page]
	by    index
	links linkStore
	last  uint32   // found last
	loose []uint32 // pages that may say nothing any more
}

func newPages() *pages {
	p := &pages{last: none, links: newLinkStore()}
	p.by = newIndex(func(i uint32) uint64 { return uint64(p.all.items[i].number) })
	return p
}

// wordOf is the number of the word that an offset is in, and its bit there.
func wordOf(offset int64) (number int64, bit uint64) {
	return offset >> wordShift, 1 << (offset & (wordBits - 1))
}

// find is the word with a number, none if there is no page with it.
func (p *pages) find(number int64) uint32 {
	of := number >> pageShift
	if p.last == none || p.all.items[p.last].number != of {
		i, ok := p.by.find(uint64(of))
		if !ok {
			return none
		}
		p.last = i
	}
	return p.last<<pageShift | uint32(number&(pageWords-1))
}

// get is the word with a number, of a page that is made if there is none.
func (p *pages) get(number int64) uint32 {
	if wi := p.find(number); wi != none {
		return wi
	}
	g := page{number: number >> pageShift, first: none}
	for w := range g.links {
		g.links[w] = noBlock
	}
	p.last = p.all.add(g)
	if p.last >= maxPages-1 { // the last refs would be those that mean nobody and none
		panic("cooperative: more records than can be named")
	}
	p.by.put(p.last)
	return p.last<<pageShift | uint32(number&(pageWords-1))
}

// at is the page of a word.
func (p *pages) at(wi uint32) *page { return &p.all.items[wi>>pageShift] }

func (p *pages) taken(wi uint32) uint64 { return p.at(wi).taken[wi&(pageWords-1)] }

func (p *pages) linked(wi uint32) uint64 { return p.at(wi).linked[wi&(pageWords-1)] }

// numberOf is the number of a word.
func (p *pages) numberOf(wi uint32) int64 {
	return p.at(wi).number<<pageShift | int64(wi&(pageWords-1))
}

func (g *page) empty() bool {
	union := uint64(0)
	for w := range pageWords {
		union |= g.taken[w] | g.linked[w]
	}
	return union == 0
}

// tidy lets the page of a word be removed if it says nothing any more: at the end of the
// operation, so that it stays where it is till then.
func (p *pages) tidy(wi uint32) {
	if n := len(p.loose); p.at(wi).empty() && (n == 0 || p.loose[n-1] != wi>>pageShift) {
		p.loose = append(p.loose, wi>>pageShift)
	}
}

// dropLoose removes the pages that say nothing any more.
func (p *pages) dropLoose() {
	if len(p.loose) == 0 {
		return
	}
	slices.Sort(p.loose) // it may name one several times
	for _, i := range slices.Compact(p.loose) {
		if g := p.all.at(i); g.empty() {
			p.by.remove(uint64(g.number), i)
			p.all.remove(i)
			p.last = none
		}
	}
	p.loose = p.loose[:0]
}

// maskOf is the mask of the offsets [start, end) in the word with a number, which they
// touch.
func maskOf(number, start, end int64) uint64 {
	base := number << wordShift
	lo := max(start-base, 0)
	mask := ^uint64(0) << lo
	if hi := end - base; hi < wordBits {
		mask &= 1<<hi - 1
	}
	return mask
}

// eachBit calls f with the offsets of a mask, in order.
func eachBit(number int64, mask uint64, f func(offset int64)) {
	for ; mask != 0; mask &= mask - 1 {
		f(number<<wordShift + int64(bits.TrailingZeros64(mask)))
	}
}
