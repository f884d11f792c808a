package processor

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/processor/assignor"
)

// balancer divides the keys of the inputs between members (package assignor). It is a
// cooperative one, and keeps what is assigned to itself: kgo is told that it is nothing, so
// it neither fetches nor commits.
type balancer struct {
	owner interface {
		// claim is what the member says when it joins.
		claim() assignor.Claim
		// assigned is called with what the member is assigned, before the generation begins.
		assigned(assignor.Assignment)
		// find looks up, for the leader, inputs that kgo says have so many partitions.
		find(members []assignor.Member, partitions map[string]int32) map[string]assignor.Input
	}
}

// ProtocolName implements [kgo.GroupBalancer].
func (b *balancer) ProtocolName() string { return assignor.ProtocolName }

// IsCooperative implements [kgo.GroupBalancer].
func (b *balancer) IsCooperative() bool { return true }

// JoinGroupMetadata says what the member has, in the user data of Kafka's consumer protocol.
func (b *balancer) JoinGroupMetadata(topics []string, _ map[string][]int32, generation int32) []byte {
	claim := b.owner.claim()
	meta := kmsg.NewConsumerMemberMetadata()
	meta.Version, meta.Topics, meta.Generation = 3, topics, generation
	meta.UserData = assignor.AppendClaim(nil, &claim)
	return meta.AppendTo(nil)
}

// ParseSyncAssignment hands on what the leader has assigned, and hides it from kgo.
func (b *balancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	var c kmsg.ConsumerMemberAssignment
	if err := c.ReadFrom(assignment); err != nil {
		return nil, fmt.Errorf("read an assignment: %w", err)
	}
	a, err := assignor.DecodeAssignment(c.UserData)
	if err != nil {
		return nil, fmt.Errorf("read an assignment: %w", err)
	}
	b.owner.assigned(a)
	return map[string][]int32{}, nil
}

// MemberBalancer implements [kgo.GroupBalancer] for the leader.
func (b *balancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	g := &generation{balancer: b}
	topics := make(map[string]struct{})
	for i := range members {
		m := &members[i]
		var meta kmsg.ConsumerMemberMetadata
		if err := meta.ReadFrom(m.ProtocolMetadata); err != nil {
			return nil, nil, fmt.Errorf("read what member %s says: %w", m.MemberID, err)
		}
		claim, err := assignor.DecodeClaim(meta.UserData)
		if err != nil {
			return nil, nil, fmt.Errorf("read what member %s says: %w", m.MemberID, err)
		}
		g.members = append(g.members, assignor.Member{ID: m.MemberID, Claim: claim})
		for _, topic := range meta.Topics {
			topics[topic] = struct{}{}
		}
	}
	return g, topics, nil
}

// generation is the members of one generation, which the leader balances.
type generation struct {
	balancer *balancer
	members  []assignor.Member
}

// Balance implements [kgo.GroupMemberBalancer]; kgo calls BalanceOrError instead.
func (g *generation) Balance(topics map[string]int32) kgo.IntoSyncAssignment {
	plan, err := g.BalanceOrError(topics)
	if err != nil {
		return nil
	}
	return plan
}

// BalanceOrError implements [kgo.GroupMemberBalancerOrError].
func (g *generation) BalanceOrError(topics map[string]int32) (kgo.IntoSyncAssignment, error) {
	plan, err := assignor.Assign(g.members, g.balancer.owner.find(g.members, topics))
	if err != nil {
		return nil, err
	}
	return assignments(plan), nil
}

// assignments are what all members are assigned.
type assignments map[string]assignor.Assignment

// IntoSyncAssignment implements [kgo.IntoSyncAssignment].
func (p assignments) IntoSyncAssignment() (all []kmsg.SyncGroupRequestGroupAssignment) {
	for id, a := range p {
		c := kmsg.NewConsumerMemberAssignment()
		c.UserData = assignor.AppendAssignment(nil, &a)
		s := kmsg.NewSyncGroupRequestGroupAssignment()
		s.MemberID, s.MemberAssignment = id, c.AppendTo(nil)
		all = append(all, s)
	}
	return all
}
