package keyfilter

import (
	"fmt"
	"slices"
)

// Assignment says which member of a group holds which bucket. It is a value: Join and
// Leave return another and leave the one they were called on as it was.
//
// While there are fewer members than initial buckets, those are spread so that any two
// members differ by at most one, and as few as possible move. From then on each member
// holds one: a join adds a bucket, so one slice moves; a leave returns the last bucket
// to its parent and gives its holder the bucket that became free, so at most two move.
// Members that come when no bucket can be added are idle until one is free.
type Assignment struct {
	initial, limit int
	holders        []string // of each bucket; all "" while there is no member
	idle           []string // in the order they came
}

// NewAssignment has no member yet. The initial number of buckets is remembered for the
// group's life; limit is the most there may be, MaxBuckets of the narrowest line.
func NewAssignment(initial, limit int32) (Assignment, error) {
	if initial < 1 || limit < initial {
		return Assignment{}, fmt.Errorf("an assignment of %d buckets at first and %d at most", initial, limit)
	}
	return Assignment{initial: int(initial), limit: int(limit), holders: make([]string, initial)}, nil
}

// RestoreAssignment is the assignment with the holder of each bucket and the idle
// members given, both copied. Holders that no sequence of joins and leaves could have
// left are an error.
func RestoreAssignment(initial, limit int32, holders, idle []string) (Assignment, error) {
	a, err := NewAssignment(initial, limit)
	if err != nil {
		return a, err
	}
	a.holders, a.idle = slices.Clone(holders), slices.Clone(idle)
	if err := a.check(); err != nil {
		return Assignment{}, fmt.Errorf("restore an assignment: %w", err)
	}
	return a, nil
}

// Buckets are the buckets there are now.
func (a Assignment) Buckets() Buckets {
	return Buckets{initial: int64(a.initial), count: int64(len(a.holders))}
}

// Holder is the member that holds bucket, "" while there is no member.
func (a Assignment) Holder(bucket int32) string { return a.holders[bucket] }

// AppendHeld appends the buckets that member holds, in order.
func (a Assignment) AppendHeld(dst []int32, member string) []int32 {
	for bucket, holder := range a.holders {
		if holder == member {
			dst = append(dst, int32(bucket))
		}
	}
	return dst
}

// AppendMembers appends the members that hold a bucket, each once, in the order of
// their lowest buckets, and then those that are idle.
func (a Assignment) AppendMembers(dst []string) []string {
	for _, l := range a.loads() {
		dst = append(dst, l.member)
	}
	return append(dst, a.idle...)
}

// AppendIdle appends the members that hold nothing, in the order they came.
func (a Assignment) AppendIdle(dst []string) []string { return append(dst, a.idle...) }

// Join is the assignment with member, which must not be ""; one that is in it already
// changes nothing.
func (a Assignment) Join(member string) Assignment {
	loads := a.loads()
	switch {
	case member == "" || slices.Contains(a.holders, member) || slices.Contains(a.idle, member):
		return a
	case len(loads) < a.initial:
		return a.spreadOver(member, loads)
	case len(a.holders) == a.limit:
		a.idle = append(slices.Clone(a.idle), member)
		return a
	default:
		a.holders = append(slices.Clone(a.holders), member)
		return a
	}
}

// Leave is the assignment without member; one that is not in it changes nothing.
func (a Assignment) Leave(member string) Assignment {
	if i := slices.Index(a.idle, member); i >= 0 {
		a.idle = slices.Delete(slices.Clone(a.idle), i, i+1)
		return a
	}
	bucket := slices.Index(a.holders, member)
	if member == "" || bucket < 0 {
		return a
	}
	a.holders = slices.Clone(a.holders)
	last := len(a.holders) - 1
	switch {
	case len(a.idle) > 0: // so each holder has one
		a.holders[bucket] = a.idle[0]
		a.idle = slices.Clone(a.idle[1:])
	case len(a.holders) > a.initial:
		a.holders[bucket] = a.holders[last]
		a.holders = a.holders[:last]
	default:
		a.spreadFrom(member)
	}
	return a
}

// load is a member and how many buckets it holds.
type load struct {
	member string
	held   int
}

// loads are the members that hold a bucket, in the order of their lowest ones.
func (a Assignment) loads() []load {
	var loads []load
	at := make(map[string]int, len(a.holders))
	for _, holder := range a.holders {
		i, ok := at[holder]
		switch {
		case holder == "":
		case ok:
			loads[i].held++
		default:
			at[holder] = len(loads)
			loads = append(loads, load{holder, 1})
		}
	}
	return loads
}

// spreadOver gives the new member its share, the rounded down one, of the buckets that
// the members of loads hold.
func (a Assignment) spreadOver(member string, loads []load) Assignment {
	a.holders = slices.Clone(a.holders)
	if len(loads) == 0 {
		for i := range a.holders {
			a.holders[i] = member
		}
		return a
	}
	share, rest := a.initial/(len(loads)+1), a.initial%(len(loads)+1)
	slices.SortStableFunc(loads, func(x, y load) int { return y.held - x.held })
	for i, l := range loads {
		keep := share
		if i < rest {
			keep++
		}
		for bucket := len(a.holders) - 1; l.held > keep; bucket-- {
			if a.holders[bucket] == l.member {
				a.holders[bucket] = member
				l.held--
			}
		}
	}
	return a
}

// spreadFrom gives each bucket of member to whoever holds the fewest by then. The
// holders are the assignment's own copy.
func (a *Assignment) spreadFrom(member string) {
	loads := a.loads()
	loads = slices.DeleteFunc(loads, func(l load) bool { return l.member == member })
	for bucket, holder := range a.holders {
		if holder != member {
			continue
		}
		if len(loads) == 0 {
			a.holders[bucket] = ""
			continue
		}
		least := 0
		for i := range loads {
			if loads[i].held < loads[least].held {
				least = i
			}
		}
		a.holders[bucket] = loads[least].member
		loads[least].held++
	}
}

// check says what is wrong with the holders and the idle members.
func (a Assignment) check() error {
	n := len(a.holders)
	if n < a.initial || n > a.limit {
		return fmt.Errorf("%d buckets, %d at first and %d at most", n, a.initial, a.limit)
	}
	loads := a.loads()
	sum, least, most := 0, n, 0
	for _, l := range loads {
		sum, least, most = sum+l.held, min(least, l.held), max(most, l.held)
	}
	switch {
	case len(loads) == 0 && n == a.initial && len(a.idle) == 0:
		return nil
	case sum != n:
		return fmt.Errorf("%d of %d buckets have no holder", n-sum, n)
	case most > least+1 || n > a.initial && most > 1:
		return fmt.Errorf("%d buckets are spread unevenly: one member holds %d, one %d", n, least, most)
	case len(a.idle) > 0 && (n < a.limit || most > 1):
		return fmt.Errorf("%d members are idle though there is a bucket for one", len(a.idle))
	}
	seen := make(map[string]bool, len(a.idle))
	for _, member := range a.idle {
		if member == "" || seen[member] || slices.Contains(a.holders, member) {
			return fmt.Errorf("member %q is idle, and again or a holder", member)
		}
		seen[member] = true
	}
	return nil
}
