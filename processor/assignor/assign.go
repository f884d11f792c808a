package assignor

import (
	"cmp"
	"fmt"
	"maps"
	"slices"

	"github.com/lacunamq/lacuna/keyfilter"
)

// TaskState is what a member does for a bucket when it joins.
type TaskState struct {
	Bucket int32
	// Active is what it processes, Rebuild what it builds up while another member does.
	Active, Rebuild Area
	// Ready is what of Rebuild has caught up.
	Ready Area
	// Lag is how many offsets Rebuild is behind the ledger, for people.
	Lag int64
}

// Claim is what a member says of itself when it joins.
type Claim struct {
	// Name is for people.
	Name string
	// Initial is the number of buckets that it would found the group with.
	Initial int32
	// Group is what it knows of the group, nil: nothing. Holders (by bucket) and Idle are
	// the plan of Generation.
	Group      *Group
	Generation int32
	Holders    []string
	Idle       []string
	Tasks      []TaskState
	// OnDisk are the buckets that it has a state of from before, for a member that comes back
	// under another id.
	OnDisk []int32
}

// Member is a member of a generation.
type Member struct {
	ID    string
	Claim Claim
}

// Task is what a member is to do for a bucket.
type Task struct {
	Bucket          int32
	Active, Rebuild Area
}

// Assignment is what a member is assigned, with the plan that all have.
type Assignment struct {
	Group   Group
	Holders []string // by bucket
	Idle    []string
	Tasks   []Task
}

// Assign assigns to members of a generation what is theirs. Topics are the inputs with the
// number of partitions that they have now.
func Assign(members []Member, topics map[string]int32) (map[string]Assignment, error) {
	members = slices.Clone(members)
	slices.SortFunc(members, func(x, y Member) int { return cmp.Compare(x.ID, y.ID) })
	group, plan, err := target(members, topics)
	if err != nil {
		return nil, err
	}
	s := newSettlement(members)
	holders := make([]string, plan.Buckets().Count())
	for bucket := range plan.Buckets().Count() {
		holders[bucket] = plan.Holder(bucket)
		if holders[bucket] != "" {
			s.settle(taskKey{holders[bucket], bucket}, group.bucket(plan.Buckets(), bucket))
		}
	}
	assigned := make(map[string]Assignment, len(members))
	for _, m := range members {
		assigned[m.ID] = Assignment{Group: group, Holders: holders, Idle: plan.AppendIdle(nil), Tasks: s.tasksOf(m.ID)}
	}
	return assigned, nil
}

// target is where the buckets are to be: the plan that the members know, without those that
// are gone, with those that are new.
func target(members []Member, topics map[string]int32) (group Group, plan keyfilter.Assignment, err error) {
	known := latest(members)
	group = found(known, members, topics)
	if plan, err = goOn(known, &group, members); err != nil {
		return group, plan, err
	}
	here := make(map[string]bool, len(members))
	for _, m := range members {
		here[m.ID] = true
	}
	// Those who come take the places of those who go, so that fewer buckets move.
	for _, m := range members {
		plan = plan.Join(m.ID)
	}
	for _, id := range plan.AppendMembers(nil) {
		if !here[id] {
			plan = plan.Leave(id)
		}
	}
	return group, plan, nil
}

// goOn is the plan that is known, or a new one. A plan that no joining and leaving could have
// led to, as of a group whose topics were made anew, must not keep the group from ever
// getting on: it begins anew too, and what members process stays theirs until it is handed over.
func goOn(known *Claim, group *Group, members []Member) (keyfilter.Assignment, error) {
	if known != nil {
		holders := comeBack(known, members)
		limit := max(group.limit(), int32(len(holders)))
		if plan, err := keyfilter.RestoreAssignment(group.Initial, limit, holders, known.Idle); err == nil {
			return plan, nil
		}
	}
	plan, err := keyfilter.NewAssignment(group.Initial, group.limit())
	if err != nil {
		return plan, fmt.Errorf("found the group: %w", err)
	}
	return plan, nil
}

// latest is the claim that knows the newest plan, nil if none knows any. Generations count
// from the beginning when a broker has forgotten the group, so one that names somebody who is
// here comes before any that was found on a disk.
func latest(members []Member) (newest *Claim) {
	living := func(c *Claim) bool {
		return slices.ContainsFunc(members, func(m Member) bool {
			return slices.Contains(c.Holders, m.ID) || slices.Contains(c.Idle, m.ID)
		})
	}
	for i := range members {
		c := &members[i].Claim
		switch {
		case c.Group == nil:
		case newest == nil, living(c) && !living(newest):
			newest = c
		case living(c) == living(newest) && c.Generation > newest.Generation:
			newest = c
		}
	}
	return newest
}

// found is what the group remembers, with the topics that it has not seen before.
func found(known *Claim, members []Member, topics map[string]int32) (group Group) {
	group.Partitions = make(map[string]int32, len(topics))
	if known != nil {
		group.Initial = known.Group.Initial
		maps.Copy(group.Partitions, known.Group.Partitions)
	} else {
		group.Initial = 1
		for i := range members {
			group.Initial = max(group.Initial, members[i].Claim.Initial)
		}
	}
	for topic, partitions := range topics {
		if group.Partitions[topic] == 0 && partitions > 0 {
			group.Partitions[topic] = partitions
		}
	}
	return group
}

// comeBack gives the places of members that are gone to those that have their states on disk:
// the same processes under other ids.
func comeBack(known *Claim, members []Member) []string {
	holders := slices.Clone(known.Holders)
	gone := func(id string) bool {
		return !slices.ContainsFunc(members, func(m Member) bool { return m.ID == id })
	}
	for i := range members {
		m := &members[i]
		if slices.Contains(holders, m.ID) || slices.Contains(known.Idle, m.ID) {
			continue
		}
		at := slices.IndexFunc(m.Claim.OnDisk, func(bucket int32) bool {
			return bucket >= 0 && int(bucket) < len(holders) && gone(holders[bucket])
		})
		if at < 0 {
			continue
		}
		before := holders[m.Claim.OnDisk[at]]
		for bucket, id := range holders {
			if id == before {
				holders[bucket] = m.ID
			}
		}
	}
	return holders
}
