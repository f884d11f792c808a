package cooperative

import "unsafe"

// linkStore keeps the links of each word side by side without holes, so that one of its
// offsets in ten costs not ten times as much as all. A block has room for those of one word.
// Blocks of one size are in slabs, and a slab whose blocks are all given back is there for
// those of any size.
type linkStore struct {
	slabs []slab
	avail [wordBits + 1]uint32 // by the room of its blocks, the first slab that has a free one
	empty uint32               // the first slab without blocks
}

// block is where the links of a word begin: a slab, and a place there.
type block uint32

const noBlock = block(none)

const (
	slabShift = 8
	slabLinks = 1 << slabShift
)

type slab struct {
	links      *[slabLinks]link
	room       uint16 // of each block
	used       uint16 // blocks
	made       uint16 // blocks that were in use once; those behind them are free as well
	free       block  // the first of these that is free; the next is where its first link leads
	next, prev uint32 // in the list of avail or of empty
}

func newLinkStore() linkStore {
	s := linkStore{empty: none}
	for room := range s.avail {
		s.avail[room] = none
	}
	return s
}

// roomFor is the room of the smallest blocks for n links. As many blocks fill a slab as can.
func roomFor(n int) int { return slabLinks / (slabLinks / n) }

func (s *linkStore) slabOf(b block) *slab { return &s.slabs[b>>slabShift] }

func (s *linkStore) room(b block) int { return int(s.slabOf(b).room) }

func (s *linkStore) of(b block) []link {
	l := s.slabOf(b)
	return l.links[b&(slabLinks-1):][:l.room]
}

// at is the link with a number in a block.
func (s *linkStore) at(b block, i int) *link { return &s.slabOf(b).links[int(b&(slabLinks-1))+i] }

// take is a block for n links.
func (s *linkStore) take(n int) block {
	room := roomFor(n)
	i := s.avail[room]
	if i == none {
		i = s.open(room)
	}
	l := &s.slabs[i]
	b := l.free
	if b == noBlock {
		b = block(i<<slabShift) + block(l.made*l.room)
		l.made++
	} else {
		l.free = block(s.at(b, 0).next)
	}
	if l.used++; l.full() {
		s.leave(&s.avail[room], i)
	}
	return b
}

// give takes a block back.
func (s *linkStore) give(b block) {
	i, l := uint32(b>>slabShift), s.slabOf(b)
	if l.full() {
		s.join(&s.avail[l.room], i)
	}
	s.at(b, 0).next, l.free = ref(l.free), b
	if l.used--; l.used == 0 {
		s.leave(&s.avail[l.room], i)
		s.join(&s.empty, i)
	}
}

func (l *slab) full() bool { return l.used == slabLinks/l.room }

// open makes a slab of blocks.
func (s *linkStore) open(room int) uint32 {
	i := s.empty
	if i == none {
		i = uint32(len(s.slabs))
		s.slabs = append(withRoom(s.slabs, 1), slab{links: new([slabLinks]link)})
	} else {
		s.leave(&s.empty, i)
	}
	s.slabs[i] = slab{links: s.slabs[i].links, room: uint16(room), free: noBlock}
	s.join(&s.avail[room], i)
	return i
}

// join puts a slab at the head of a list.
func (s *linkStore) join(head *uint32, i uint32) {
	s.slabs[i].next, s.slabs[i].prev = *head, none
	if *head != none {
		s.slabs[*head].prev = i
	}
	*head = i
}

// leave takes a slab out of a list.
func (s *linkStore) leave(head *uint32, i uint32) {
	l := &s.slabs[i]
	if l.prev == none {
		*head = l.next
	} else {
		s.slabs[l.prev].next = l.next
	}
	if l.next != none {
		s.slabs[l.next].prev = l.prev
	}
}

func (s *linkStore) memoryBytes() int64 {
	return int64(unsafe.Sizeof(link{}))*slabLinks*int64(len(s.slabs)) + int64(unsafe.Sizeof(slab{}))*int64(cap(s.slabs))
}
