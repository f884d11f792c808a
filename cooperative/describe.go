package cooperative

import (
	"iter"
	"slices"
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
}

// Explain tells where a record stands. One that was not fed, or is read again when its
// turn comes, or is done, is Unknown; the ledger tells whether it is done.
func (d *Dispatcher) Explain(offset int64) Standing {
	number, bit := pageOf(offset)
	s := Standing{Deliveries: int(d.pages.count(offset))}
	pi := d.pages.find(number)
	if pi != none && d.pages.at(pi).taken&bit != 0 {
		h := d.holds.at(d.holds.group(d.groupOf(pi, bit)).hold)
		s.State, s.Member, s.SinceMs = h.state, d.idOf(h.member), h.since
		if h.heapAt >= 0 {
			s.DeadlineMs = h.deadline
		}
	}
	if pi != none && d.pages.at(pi).tracked&bit != 0 {
		k := d.keys.at(d.pages.link(d.pages.refOf(pi, offset)).key)
		s.Keyed, s.KeyHash = true, k.hash
		if s.State == Unknown {
			s.State, s.Blocker = Available, d.idOf(k.holder)
		}
	}
	for i := range d.lanes {
		if l := &d.lanes[i]; s.State == Unknown && (l.pool.Contains(offset) || l.fresh.has(offset)) {
			s.State = Available
		}
	}
	return s
}

// Held is records that a member has acquired together.
type Held struct {
	Run
	Member     string
	SinceMs    int64
	DeadlineMs int64
	Deliveries int // that have ended
}

// Holdings yields the records that members have acquired, in order of the offsets. It
// takes time for each of them.
func (d *Dispatcher) Holdings() iter.Seq[Held] {
	numbers := make([]int64, 0, d.pages.all.used())
	for i := range d.pages.all.items {
		if p := &d.pages.all.items[i]; p.taken != 0 {
			numbers = append(numbers, p.number)
		}
	}
	slices.Sort(numbers)
	return func(yield func(Held) bool) {
		var run Held
		for _, number := range numbers {
			for offset := number << pageShift; offset < (number+1)<<pageShift; offset++ {
				s := d.Explain(offset)
				if s.State != Acquired {
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
	n := bytesOf(&d.pages.all) + bytesOf(&d.pages.counts) + bytesOf(&d.holds.all) + bytesOf(&d.holds.groups) +
		bytesOf(&d.keys) + bytesOf(&d.members.arena)
	n += 8*int64(cap(d.pages.by.places)+cap(d.keyBy.places)) + 4*int64(cap(d.holds.due)+cap(d.keyAsks)+cap(d.marks)+cap(d.waitList))
	n += 8 * int64(cap(d.offsets)+cap(d.hand.offsets))
	for i := range d.pages.links.classes {
		c := &d.pages.links.classes[i]
		n += int64(unsafe.Sizeof(link{}))*int64(cap(c.items)) + 4*int64(cap(c.free))
	}
	for i := range d.lanes {
		l := &d.lanes[i]
		n += int64(unsafe.Sizeof(*l)) + l.pool.MemoryBytes() + int64(unsafe.Sizeof(freshRecord{}))*int64(cap(l.fresh.items))
	}
	return n + d.logged.MemoryBytes()
}

func bytesOf[T any](a *arena[T]) int64 {
	var v T
	return int64(unsafe.Sizeof(v))*int64(cap(a.items)) + 4*int64(cap(a.free))
}
