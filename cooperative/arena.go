package cooperative

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
	a.items = append(a.items, v)
	return uint32(len(a.items) - 1)
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
// linear probing, 4 bytes a place, which has no tombstones and never rehashes in a steady
// state.
type index struct {
	places []uint32 // none: free
	used   int
	shift  uint8               // 64 less the bits of a place's number
	number func(uint32) uint64 // that the value holds
}

func newIndex(number func(uint32) uint64) index { return index{number: number} }

// home is the place where the search for number starts.
func (x *index) home(number uint64) int {
	return int(number * 0x9e3779b97f4a7c15 >> x.shift)
}

func (x *index) find(number uint64) (value uint32, ok bool) {
	if x.used == 0 {
		return none, false
	}
	for i := x.home(number); ; i = (i + 1) & (len(x.places) - 1) {
		value = x.places[i]
		if value == none {
			return none, false
		}
		if x.number(value) == number {
			return value, true
		}
	}
}

// put adds a value whose number is not in the index.
func (x *index) put(value uint32) {
	if 4*(x.used+1) > 3*len(x.places) {
		x.grow()
	}
	x.used++
	x.place(value)
}

func (x *index) place(value uint32) {
	i := x.home(x.number(value))
	for x.places[i] != none {
		i = (i + 1) & (len(x.places) - 1)
	}
	x.places[i] = value
}

func (x *index) grow() {
	old := x.places
	x.places = make([]uint32, max(16, 2*len(old)))
	x.shift = 64
	for n := len(x.places); n > 1; n /= 2 {
		x.shift--
	}
	for i := range x.places {
		x.places[i] = none
	}
	for _, value := range old {
		if value != none {
			x.place(value)
		}
	}
}

// remove takes out the value with the number; what was pushed aside by it moves back.
func (x *index) remove(number uint64) {
	mask := len(x.places) - 1
	i := x.home(number)
	for x.number(x.places[i]) != number {
		i = (i + 1) & mask
	}
	x.used--
	for hole := i; ; {
		i = (i + 1) & mask
		value := x.places[i]
		if value == none {
			x.places[hole] = none
			return
		}
		if home := x.home(x.number(value)); (i-home)&mask >= (i-hole)&mask {
			x.places[hole] = value
			hole = i
		}
	}
}
