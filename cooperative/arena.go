package cooperative

import "math/bits"

const (
	none   = ^uint32(0) // the index of nothing
	nobody = none - 1   // the index of a member that is not known
)

// arena keeps values of one kind side by side and names them by index, 4 bytes instead of
// a pointer's 8. What was removed is used again, so a steady state allocates nothing. An
// address of a value is good until the next add.
type arena[T any] struct {
	items []T
	free  []uint32
}

func (a *arena[T]) add(v T) uint32 {
	if n := len(a.free); n > 0 {
		i := a.free[n-1]
		a.free = a.free[:n-1]
		a.items[i] = v
		return i
	}
	a.items = append(withRoom(a.items, 1), v)
	return uint32(len(a.items) - 1)
}

// withRoom is items with room for n more. It grows in small steps, to have little to spare.
func withRoom[T any](items []T, n int) []T {
	if have := len(items); have+n > cap(items) {
		grown := make([]T, have, have+max(n, 32, have/16))
		copy(grown, items)
		return grown
	}
	return items
}

func (a *arena[T]) at(i uint32) *T { return &a.items[i] }

func (a *arena[T]) remove(i uint32) {
	var zero T
	a.items[i] = zero
	a.free = append(a.free, i)
	if len(a.free) == len(a.items) {
		a.items, a.free = a.items[:0], a.free[:0]
	}
}

// used is how many values there are.
func (a *arena[T]) used() int { return len(a.items) - len(a.free) }

// index finds a value of an arena by a number of 64 bits that it holds: a hash table with
// linear probing, 8 bytes a place, which has no tombstones and never rehashes in a steady
// state. A place is half of the number's hash and the value's index, so that others need
// not be looked at.
type index struct {
	places []uint64
	used   int
	shift  uint8               // 32 less the bits of a place's number
	number func(uint32) uint64 // that the value holds
}

const freePlace = ^uint64(0)

func newIndex(number func(uint32) uint64) index { return index{number: number} }

// tagOf is half of a number's hash; its top bits say where the search starts.
func tagOf(number uint64) uint64 { return number * 0x9e3779b97f4a7c15 >> 32 }

func (x *index) find(number uint64) (value uint32, ok bool) {
	if x.used == 0 {
		return none, false
	}
	tag := tagOf(number)
	for i := int(tag >> x.shift); ; i = (i + 1) & (len(x.places) - 1) {
		switch p := x.places[i]; {
		case p == freePlace:
			return none, false
		case p>>32 == tag && x.number(uint32(p)) == number:
			return uint32(p), true
		}
	}
}

// put adds a value whose number is not in the index.
func (x *index) put(value uint32) {
	if 4*(x.used+1) > 3*len(x.places) {
		x.grow()
	}
	x.used++
	x.place(tagOf(x.number(value))<<32 | uint64(value))
}

func (x *index) place(p uint64) {
	i := int(p >> 32 >> x.shift)
	for x.places[i] != freePlace {
		i = (i + 1) & (len(x.places) - 1)
	}
	x.places[i] = p
}

func (x *index) grow() {
	old := x.places
	x.places = make([]uint64, max(16, 2*len(old)))
	x.shift = uint8(32 - bits.TrailingZeros(uint(len(x.places))))
	for i := range x.places {
		x.places[i] = freePlace
	}
	for _, p := range old {
		if p != freePlace {
			x.place(p)
		}
	}
}

// remove takes out a value, which has the number; what was pushed aside by it moves back.
func (x *index) remove(number uint64, value uint32) {
	mask := len(x.places) - 1
	i := int(tagOf(number) >> x.shift)
	for uint32(x.places[i]) != value {
		i = (i + 1) & mask
	}
	x.used--
	for hole := i; ; {
		i = (i + 1) & mask
		p := x.places[i]
		if p == freePlace {
			x.places[hole] = freePlace
			return
		}
		if home := int(p >> 32 >> x.shift); (i-home)&mask >= (i-hole)&mask {
			x.places[hole] = p
			hole = i
		}
	}
}
