package assignor

import (
	"cmp"
	"slices"
)

// taskKey names the task of a bucket at a member. One bucket may be with two while it changes
// hands.
type taskKey struct {
	member string
	bucket int32
}

// settlement decides who processes what in a generation.
type settlement struct {
	active, ready, rebuild map[taskKey]Area
	// held is what the members process, as they say.
	held Area
}

// newSettlement begins with what the members say that they process. No two should say so of
// the same unit; if they do, the one who knows the later generation has it.
func newSettlement(group *Group, members []Member) *settlement {
	s := &settlement{active: make(map[taskKey]Area), ready: make(map[taskKey]Area), rebuild: make(map[taskKey]Area)}
	members = slices.Clone(members)
	slices.SortStableFunc(members, func(x, y Member) int { return cmp.Compare(y.Claim.Generation, x.Claim.Generation) })
	for i := range members {
		c := &members[i].Claim
		if !group.MeasuresAs(c.Group) {
			// What it processes cannot be told from its units, so it gives up everything, and
			// until it has, nobody is given anything.
			if c.processes() {
				s.held = group.all()
			}
			continue
		}
		for _, t := range c.Tasks {
			key := taskKey{members[i].ID, t.Bucket}
			s.active[key] = s.active[key].Union(t.Active.Minus(s.held))
			s.held = s.held.Union(t.Active)
			s.ready[key] = t.Ready
		}
	}
	return s
}

// settle gives a task what it can have of its bucket now: what nobody processes, at once; the
// rest it builds up, and what of that is ready is taken from whoever has it. It is given in
// the generation after that.
func (s *settlement) settle(key taskKey, bucket Area) {
	s.active[key] = s.active[key].Union(bucket.Minus(s.held)) // which no other bucket has
	contested := bucket.Minus(s.active[key])
	if contested.Empty() {
		return
	}
	s.rebuild[key] = contested
	ready := contested.Intersect(s.ready[key])
	if ready.Empty() {
		return
	}
	for other := range s.active {
		if other != key {
			s.active[other] = s.active[other].Minus(ready)
		}
	}
}

// tasks are the tasks of each member, by bucket.
func (s *settlement) tasks() map[string][]Task {
	of := make(map[string][]Task)
	for key, active := range s.active {
		if rebuild := s.rebuild[key]; !active.Empty() || !rebuild.Empty() {
			of[key.member] = append(of[key.member], Task{Bucket: key.bucket, Active: active, Rebuild: rebuild})
		}
	}
	for _, tasks := range of {
		slices.SortFunc(tasks, func(x, y Task) int { return cmp.Compare(x.Bucket, y.Bucket) })
	}
	return of
}
