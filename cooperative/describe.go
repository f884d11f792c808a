package cooperative

import (
	"cmp"
	"iter"
	"math/bits"
	"slices"
	"strings"
	"unsafe"
)

// Standing is where one record stands, for people.
type Standing struct {
	State      State
	Member     string // that acquired it, or staged it; "" if it left or there is none
	DeadlineMs int64  // Acquired, Delayed: when that ends by itself
	SinceMs    int64  // Acquired: since when, or since the last renewal
	Deliveries int    // that have ended
	Keyed      bool   // it has a key, known here by KeyHash
	KeyHash    uint64
	Blocker    string // Available: the member that has earlier records of the key, for which it waits
	Moved      bool   // Available: it waits for records of its bucket that another member still has
	Cause      Cause  // Archiving: of its dead letter
}

// Explain tells where a record stands. One that was not fed, or is read again when its
// turn comes, or is done, is Unknown; the ledger tells whether it is done.
func (d *Dispatcher) Explain(offset int64) Standing {
	number, bit := wordOf(offset)
	s := Standing{Deliveries: d.ended.of(offset)}
	wi := d.pages.find(number)
	if wi != none && d.pages.taken(wi)&bit != 0 {
		hi, _ := d.partOf(wi, bit)
		h := d.holds.at(hi)
		s.State, s.Member, s.SinceMs, s.Cause = h.state, d.idOf(h.member), h.since, h.cause
		if h.heapAt >= 0 {
			s.DeadlineMs = h.deadline
		}
	}
	if d.isTracked(offset) {
		k := d.keys.at(d.pages.link(refOf(wi, offset)).key)
		s.Keyed, s.KeyHash = true, k.hash
		if s.State == Unknown {
			s.State, s.Blocker, s.Moved = Available, d.idOf(k.holder), d.lanes[d.laneOf(k.hash)].foreign > 0
		}
	}
	for i := range d.lanes {
		if s.State != Unknown {
			break
		}
		l := &d.lanes[i]
		if l.pool.Contains(offset) {
			s.State, s.Moved = Available, l.foreign > 0
		} else if at, ok := l.fresh.find(offset); ok {
			s.State, s.Moved = Available, l.foreign > 0
			s.Keyed, s.KeyHash = true, l.fresh.at(at).hash
			if ki, known := d.keyBy.find(s.KeyHash); known {
				s.Blocker = d.idOf(d.keys.at(ki).holder)
			}
		}
	}
	return s
}

// MemberStanding is what a member has and wants.
type MemberStanding struct {
	Member   string
	Acquired int
	SinceMs  int64 // when it acquired, or renewed, what it has longest; if it has something
	Pending  int   // in its open transactions
	Wants    int   // how many records its waiting fetch asks for; 0: none waits
}

// Members tells of the members that have something or wait, in order of their names. It
// takes time for each of their acquisitions.
func (d *Dispatcher) Members() []MemberStanding {
	var all []MemberStanding
	for id, i := range d.members.by {
		m := d.members.at(i)
		s := MemberStanding{Member: id, Wants: m.want}
		for hi := m.holds; hi != none; hi = d.holds.at(hi).next {
			h := d.holds.at(hi)
			if h.state == Pending {
				s.Pending += int(h.records)
				continue
			}
			if s.Acquired == 0 || h.since < s.SinceMs {
				s.SinceMs = h.since
			}
			s.Acquired += int(h.records)
		}
		if s.Acquired+s.Pending+s.Wants > 0 {
			all = append(all, s)
		}
	}
	slices.SortFunc(all, func(a, b MemberStanding) int { return strings.Compare(a.Member, b.Member) })
	return all
}

// Held is records that a member has acquired together.
type Held struct {
	Run
	Member     string
	SinceMs    int64
	DeadlineMs int64
	Deliveries int // that have ended
}

// Holdings yields the records from an offset on that members have acquired, in order of
// the offsets. It takes time for each that it yields, and to sort the words of 64 offsets
// that there are.
func (d *Dispatcher) Holdings(from int64) iter.Seq[Held] {
	var words []uint32
	for wi := range uint32(len(d.pages.all.items)) << pageShift {
		if d.pages.taken(wi) != 0 && d.pages.numberOf(wi) >= from>>wordShift {
			words = append(words, wi)
		}
	}
	slices.SortFunc(words, func(a, b uint32) int { return cmp.Compare(d.pages.numberOf(a), d.pages.numberOf(b)) })
	return func(yield func(Held) bool) {
		var run Held
		for _, wi := range words {
			for left := d.pages.taken(wi); left != 0; left &= left - 1 {
				offset := d.pages.offsetOf(refOf(wi, int64(bits.TrailingZeros64(left))))
				s := d.Explain(offset)
				if s.State != Acquired || offset < from {
					continue
				}
				next := Held{Run{Start: offset, End: offset + 1}, s.Member, s.SinceMs, s.DeadlineMs, s.Deliveries}
				if joined := run; run.End == offset && run.Start < run.End {
					joined.Run = next.Run
					if joined == next {
						run.End++
						continue
					}
				}
				if run.Start < run.End && !yield(run) {
					return
				}
				run = next
			}
		}
		if run.Start < run.End {
			yield(run)
		}
	}
}

// MemoryBytes is about how much memory the dispatcher takes.
func (d *Dispatcher) MemoryBytes() int64 {
	n := bytesOf(&d.pages.all) + bytesOf(&d.ended.all) + bytesOf(&d.holds.all) + bytesOf(&d.holds.groups) +
		bytesOf(&d.keys) + bytesOf(&d.extras) + bytesOf(&d.members.arena)
	n += 8*int64(cap(d.pages.by.places)+cap(d.ended.by.places)+cap(d.keyBy.places)) + 4*int64(cap(d.holds.due)+cap(d.keyAsks)+cap(d.marks)+cap(d.waitList)+cap(d.pages.loose))
	n += 8*int64(cap(d.offsets)+cap(d.hand.offsets)) + 4*int64(cap(d.laneAt)) + int64(unsafe.Sizeof(stream{}))*int64(cap(d.streams)) + int64(unsafe.Sizeof(head{}))*int64(cap(d.heads))
	for i := range d.lanes {
		l := &d.lanes[i]
		n += int64(unsafe.Sizeof(*l)) + l.pool.MemoryBytes() + int64(unsafe.Sizeof(freshRecord{}))*int64(cap(l.fresh.items))
	}
	return n + d.pages.links.memoryBytes() + d.logged.MemoryBytes()
}

func bytesOf[T any](a *arena[T]) int64 {
	var v T
	return int64(unsafe.Sizeof(v))*int64(cap(a.items)) + 4*int64(cap(a.free))
}
