package assignor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lacunamq/lacuna/keyfilter"
)

// target is where the buckets are to be: the plan that the members know, changed no more than
// those who are gone and those who are new make necessary.
func target(members []Member, inputs map[string]Input) (group Group, plan keyfilter.Assignment, err error) {
	known := plans(members)
	group = remember(known, members, inputs)
	// This is what is left if nobody knows a plan, or only such as no group could have come
	// to. Buckets move more than they need to then, in two steps as always, but a group that
	// could not get a new plan because of an old one would stand still for ever.
	if plan, err = keyfilter.NewAssignment(group.Initial, group.limit()); err != nil {
		return group, plan, fmt.Errorf("found the group: %w", err)
	}
	for _, c := range known {
		holders, idle := replace(c.Holders, c.Idle, members)
		limit := max(group.limit(), int32(len(holders)))
		before, err := keyfilter.RestoreAssignment(group.Initial, limit, holders, idle)
		if err == nil && group.Initial == c.Group.Initial { // buckets are the same then, whatever a unit is
			plan = before
			break
		}
	}
	// After replace there are only members that came, or only such as are gone.
	is, was := idsOf(members), make(map[string]bool)
	for _, id := range plan.AppendMembers(nil) {
		was[id] = true
		if !is[id] {
			plan = plan.Leave(id)
		}
	}
	for _, m := range members {
		if !was[m.ID] {
			plan = plan.Join(m.ID)
		}
	}
	return group, plan, nil
}

func idsOf(members []Member) map[string]bool {
	ids := make(map[string]bool, len(members))
	for _, m := range members {
		ids[m.ID] = true
	}
	return ids
}

// processes tells whether the member has anything active.
func (c *Claim) processes() bool {
	return slices.ContainsFunc(c.Tasks, func(t TaskState) bool { return !t.Active.Empty() })
}

// plans are the claims that know a plan, the one that counts most first: that of the newest
// generation. But generations count from the beginning when a broker has forgotten the group.
// So plans that are lived come before any that was found on a disk: those of members that
// process something, who must go on to agree on what a unit is, and then those that name
// somebody who is here.
func plans(members []Member) (known []*Claim) {
	is := idsOf(members)
	lived := make(map[*Claim]int)
	for i := range members {
		c := &members[i].Claim
		switch {
		case c.Group == nil:
			continue
		case c.processes():
			lived[c] = 2
		case slices.ContainsFunc(c.Holders, func(id string) bool { return is[id] }),
			slices.ContainsFunc(c.Idle, func(id string) bool { return is[id] }):
			lived[c] = 1
		}
		known = append(known, c)
	}
	slices.SortStableFunc(known, func(x, y *Claim) int {
		return cmp.Or(cmp.Compare(lived[y], lived[x]), cmp.Compare(y.Generation, x.Generation))
	})
	return known
}

// remember is what the group remembers, with what it finds of its inputs.
func remember(known []*Claim, members []Member, inputs map[string]Input) (group Group) {
	group.Topics = make(map[string]Topic, len(inputs))
	if len(known) > 0 {
		group.Initial = known[0].Group.Initial
		maps.Copy(group.Topics, known[0].Group.Topics)
	} else {
		group.Initial = 1
		for i := range members {
			group.Initial = max(group.Initial, min(members[i].Claim.Initial, keyfilter.Slots))
		}
	}
	for name, in := range inputs {
		if t := group.Topics[name].sees(in); t.Partitions > 0 {
			group.Topics[name] = t
		}
	}
	return group
}

// replace gives the buckets of members that are gone to those that have none: they have to
// move in any case, and nothing else has to then. Who has states of them on disk, the same
// process under another id, goes first, then who has waited longest.
func replace(holders, idle []string, members []Member) (now, waiting []string) {
	is, holds := idsOf(members), make(map[string]bool)
	for _, id := range holders {
		holds[id] = true
	}
	for _, id := range idle {
		if is[id] && !holds[id] {
			waiting = append(waiting, id)
		}
	}
	queued := len(waiting)
	for _, m := range members {
		if !holds[m.ID] && !slices.Contains(waiting[:queued], m.ID) {
			waiting = append(waiting, m.ID)
		}
	}
	places := comeBack(holders, is, holds, members)
	taken := make(map[string]bool)
	for _, id := range places {
		taken[id] = true
	}
	wait := slices.DeleteFunc(slices.Clone(waiting), func(id string) bool { return taken[id] })
	for _, id := range holders {
		if id != "" && !is[id] && places[id] == "" && len(wait) > 0 {
			places[id], taken[wait[0]] = wait[0], true
			wait = wait[1:]
		}
	}
	now = slices.Clone(holders)
	for bucket, id := range holders {
		if successor := places[id]; successor != "" {
			now[bucket] = successor
		}
	}
	return now, slices.DeleteFunc(waiting[:queued], func(id string) bool { return taken[id] })
}

// comeBack finds for members that are gone who has their states on disk. A disk may have old
// states of others' buckets too. So who has the most in common with one that is gone is first,
// and among those who has the least besides.
func comeBack(holders []string, is, holds map[string]bool, members []Member) map[string]string {
	type match struct {
		gone, id     string
		common, disk int
		lag          int64
	}
	var matches []match
	for _, m := range members {
		if holds[m.ID] {
			continue
		}
		common, lag := make(map[string]int), make(map[string]int64)
		for _, s := range m.Claim.OnDisk {
			if s.Bucket >= 0 && int(s.Bucket) < len(holders) && holders[s.Bucket] != "" && !is[holders[s.Bucket]] {
				gone := holders[s.Bucket]
				common[gone]++
				lag[gone] += s.behind()
			}
		}
		for _, gone := range slices.Sorted(maps.Keys(common)) {
			matches = append(matches, match{gone, m.ID, common[gone], len(m.Claim.OnDisk), lag[gone]})
		}
	}
	slices.SortStableFunc(matches, func(x, y match) int {
		return cmp.Or(cmp.Compare(y.common, x.common), cmp.Compare(x.lag, y.lag), cmp.Compare(x.disk, y.disk))
	})
	places, used := make(map[string]string), make(map[string]bool)
	for _, m := range matches {
		if places[m.gone] == "" && !used[m.id] {
			places[m.gone], used[m.id] = m.id, true
		}
	}
	return places
}

// behind is the lag to compare by: one that is not known is more than any other.
func (s *Stored) behind() int64 {
	const most = 1 << 46 // 65,536 of them fit an int64
	if s.Lag < 0 {
		return most
	}
	return min(s.Lag, most)
}
