package assignor

import (
	"cmp"
	"slices"
)

// ProtocolName is the protocol of Kafka's groups that all members of a processor group have.
// Their user data are claims, and what the leader assigns has an Assignment for user data.
const ProtocolName = "lacuna-slices"

// TaskState is what a member does for a bucket when it joins.
type TaskState struct {
	Bucket int32
	// Active is what it processes, Rebuild what it builds up while another member does.
	Active, Rebuild Area
	// Ready is what of Rebuild has caught up.
	Ready Area
	// Lag is how many offsets Rebuild is behind the ledger, for people.
	Lag int64
	// Reached is how far the state is in Rebuild, for people.
	Reached []Reached
}

// Reached is how far a state is in some slots of a partition: Next is the next offset that it
// takes in.
type Reached struct {
	Topic string
	Slots
	Next int64
}

// Stored is a state on the disk of a member.
type Stored struct {
	Bucket int32
	// Lag is how many offsets it was behind the inputs when the member began; -1: it did not look.
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
	// OnDisk are the states that it has from before, for a member that comes back under
	// another id.
	OnDisk []Stored
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

// Assign assigns to members of a generation what is theirs, given what is found of the inputs.
func Assign(members []Member, inputs map[string]Input) (map[string]Assignment, error) {
	members = slices.Clone(members)
	slices.SortFunc(members, func(x, y Member) int { return cmp.Compare(x.ID, y.ID) })
	group, plan, err := target(members, inputs)
	if err != nil {
		return nil, err
	}
	s := newSettlement(&group, members)
	holders := make([]string, plan.Buckets().Count())
	for bucket := range plan.Buckets().Count() {
		holders[bucket] = plan.Holder(bucket)
		if holders[bucket] != "" {
			s.settle(taskKey{holders[bucket], bucket}, group.bucket(plan.Buckets(), bucket))
		}
	}
	tasks := s.tasks()
	idle := plan.AppendIdle(nil)
	assigned := make(map[string]Assignment, len(members))
	for _, m := range members {
		assigned[m.ID] = Assignment{Group: group, Holders: holders, Idle: idle, Tasks: tasks[m.ID]}
	}
	return assigned, nil
}
