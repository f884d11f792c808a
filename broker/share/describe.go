package share

// The states of a share group, spelled as Kafka does.
const (
	StateEmpty  = "Empty"
	StateStable = "Stable"
)

// ProtocolType is that of share groups in ListGroups.
const ProtocolType = "share"

// Description is a share group as ShareGroupDescribe shows it.
type Description struct {
	ID                          string
	State                       string
	GroupEpoch, AssignmentEpoch int32
	Assignor                    string
	Members                     []MemberDescription // by id
}

// MemberDescription is a member; its slices are read only.
type MemberDescription struct {
	ID                   string
	RackID               *string
	Epoch                int32
	ClientID, ClientHost string
	Topics               []string
	Assignment           []TopicPartitions // that the member was told of
}

// State is StateStable, or StateEmpty for a group without members.
func (g *Group) State() string {
	if g.Empty() {
		return StateEmpty
	}
	return StateStable
}

// Describe describes the group.
func (g *Group) Describe() Description {
	d := Description{
		ID: g.id, State: g.State(), GroupEpoch: g.epoch, AssignmentEpoch: g.assignment.epoch, Assignor: "simple",
		Members: make([]MemberDescription, 0, len(g.members)),
	}
	if g.mode == KeyRange {
		d.Assignor = g.mode.String()
	}
	for _, m := range g.members {
		d.Members = append(d.Members, MemberDescription{
			ID: m.id, RackID: m.rackID, Epoch: m.current.epoch, ClientID: m.clientID, ClientHost: m.clientHost,
			Topics: m.topics, Assignment: m.current.partitions,
		})
	}
	return d
}

// Found makes the group known without a member, for an operator who sets its offsets.
func (g *Group) Found(env *Env) {
	env.Emit(groupRecord(g.id, &groupValue{epoch: g.epoch, hash: g.hash, keyRangeValue: g.keyRangeValue}))
	if g.view == nil {
		g.view, _ = g.asLogged(env, nil)
	}
}

// Delete logs that there is no such group any more. It must be empty.
func (g *Group) Delete(env *Env) {
	env.Emit(assignmentRecord(g.id, nil))
	env.Emit(groupRecord(g.id, nil))
}
