package client

import (
	"errors"
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// SplitBalancer wraps a balancer of consumer groups, such as [kgo.RangeBalancer], so that a
// topic with fewer partitions than members that subscribe to it leaves none of them idle: the
// slots of its partitions are split between the members by linear hashing. All other topics
// are left to the balancer that is wrapped.
//
// A range of slots goes only to a member that says in its join metadata that it can fetch
// and commit within one, as a [GroupReader] does, and travels in the user data of its
// assignment. Other members get whole partitions: one each for as long as more than one is
// left. A group may have members of both kinds, since its protocol keeps the name of the
// balancer that is wrapped. If the leader of a group does not split, everybody gets whole
// partitions.
//
// [OpenGroupReader] wraps its balancer itself. A kgo client that shares its group with
// GroupReaders is given SplitBalancer with kgo.Balancers, so that partitions are split when
// it leads the group; it fetches whole partitions itself. As any stock consumer it begins at
// the stable offset, so it is given records again that were committed above that.
//
// With a cooperative balancer, such as [kgo.CooperativeStickyBalancer], members go on reading
// through a rebalance what they keep, and the two steps in which Kafka moves partitions apply
// to slots: what changes hands is assigned to nobody until the member that had it has given
// it up and committed, and to its new holder in the generation after that. A range whose
// bounds change is given up and begun anew, by its holder as well.
//
// The balancer must speak Kafka's consumer protocol, as those of kgo do: range, round-robin,
// sticky and cooperative-sticky. kgo.BalanceRacks has no effect.
func SplitBalancer(inner kgo.GroupBalancer) kgo.GroupBalancer { return &splitBalancer{inner} }

// splitBalancer is the wrapped balancer of a member that cannot split.
type splitBalancer struct{ inner kgo.GroupBalancer }

func (b *splitBalancer) ProtocolName() string { return b.inner.ProtocolName() }
func (b *splitBalancer) IsCooperative() bool  { return b.inner.IsCooperative() }

func (b *splitBalancer) JoinGroupMetadata(topics []string, held map[string][]int32, generation int32) []byte {
	return b.inner.JoinGroupMetadata(topics, held, generation)
}

func (b *splitBalancer) ParseSyncAssignment(assignment []byte) (map[string][]int32, error) {
	return b.inner.ParseSyncAssignment(assignment)
}

// MemberBalancer shows the inner balancer the members as it knows them, without our data.
func (b *splitBalancer) MemberBalancer(members []kmsg.JoinGroupResponseMember) (kgo.GroupMemberBalancer, map[string]struct{}, error) {
	consumers, err := kgo.NewConsumerBalancer(nil, members)
	if err != nil {
		return nil, nil, err
	}
	plain := slices.Clone(members)
	s := &splitMemberBalancer{subscribers: make(map[string][]splitMember)}
	if b.inner.IsCooperative() {
		s.reading = make(map[string][]AssignedSlots)
	}
	consumers.EachMember(func(member *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		rest, ok := s.add(member.MemberID, meta)
		if !ok {
			return
		}
		at := slices.IndexFunc(plain, func(m kmsg.JoinGroupResponseMember) bool { return m.MemberID == member.MemberID })
		if meta.UserData = rest; len(rest) == 0 {
			meta.UserData = nil
		}
		plain[at].ProtocolMetadata = meta.AppendTo(nil)
		s.splits = append(s.splits, member.MemberID)
	})
	inner, topics, err := b.inner.MemberBalancer(plain)
	s.inner = inner
	return s, topics, err
}

// splitMemberBalancer balances one generation.
type splitMemberBalancer struct {
	inner       kgo.GroupMemberBalancer
	splits      []string                 // the members that can split
	subscribers map[string][]splitMember // by topic
	// reading is what members read still, by their ids; nil if the balancer is eager.
	reading map[string][]AssignedSlots
}

// add notes what a member subscribes to. If it can split, its user data are divided.
func (s *splitMemberBalancer) add(id string, meta *kmsg.ConsumerMemberMetadata) (rest []byte, ok bool) {
	rest, ours, ok := cutSplitData(meta.UserData)
	var data splitData
	if ok {
		var err error
		// Data that we do not understand are those of a member that splits in another way.
		if data, err = parseSplitData(ours); err != nil {
			ok = false
		}
	}
	for _, topic := range slices.Compact(slices.Sorted(slices.Values(meta.Topics))) {
		m := splitMember{id: id, splits: ok, claimed: -1}
		for _, held := range data.topics {
			if held.name == topic {
				m.claim, m.claimed = held.slice, data.generation
			}
		}
		s.subscribers[topic] = append(s.subscribers[topic], m)
	}
	if s.reading != nil {
		s.reading[id] = stillReading(meta, ok, &data)
	}
	return rest, ok
}

// stillReading is what a member of a cooperative group has not given up: what it says if it
// can split, and else whole partitions.
func stillReading(meta *kmsg.ConsumerMemberMetadata, splits bool, data *splitData) (ranges []AssignedSlots) {
	if splits {
		for _, t := range data.topics {
			ranges = append(ranges, t.ranges...)
		}
		return ranges
	}
	for _, t := range meta.OwnedPartitions {
		for _, p := range t.Partitions {
			ranges = append(ranges, AssignedSlots{TopicPartition{t.Topic, p}, allSlots})
		}
	}
	return ranges
}

// SetBalanceInfo implements [kgo.GroupMemberBalancerInfo].
func (s *splitMemberBalancer) SetBalanceInfo(info kgo.BalanceInfo) {
	if inner, ok := s.inner.(kgo.GroupMemberBalancerInfo); ok {
		inner.SetBalanceInfo(info)
	}
}

// Balance implements [kgo.GroupMemberBalancer]; kgo calls BalanceOrError instead.
func (s *splitMemberBalancer) Balance(topics map[string]int32) kgo.IntoSyncAssignment {
	plan, err := s.BalanceOrError(topics)
	if err != nil {
		return nil
	}
	return plan
}

// BalanceOrError splits the topics that have too few partitions, and leaves the others to
// the inner balancer.
func (s *splitMemberBalancer) BalanceOrError(topics map[string]int32) (kgo.IntoSyncAssignment, error) {
	whole := make(map[string]int32, len(topics))
	plan := make(splitAssignments)
	for topic, partitions := range topics {
		members := s.subscribers[topic]
		if !split(partitions, members) {
			whole[topic] = partitions
			continue
		}
		shares, err := splitPlan(partitions, members)
		if err != nil {
			return nil, fmt.Errorf("topic %s: %w", topic, err)
		}
		for i, m := range members {
			plan.of(m.id).addShare(topic, &shares[i])
		}
	}
	rest, err := s.balanceInner(whole)
	if err != nil {
		return nil, err
	}
	for _, a := range rest {
		if err := plan.of(a.MemberID).addWhole(a.MemberAssignment); err != nil {
			return nil, fmt.Errorf("read what the inner balancer assigns: %w", err)
		}
	}
	for _, id := range s.splits {
		plan.of(id).splits = true
	}
	if s.reading != nil {
		plan.handOver(s.reading)
	}
	return plan, nil
}

func (s *splitMemberBalancer) balanceInner(topics map[string]int32) ([]kmsg.SyncGroupRequestGroupAssignment, error) {
	plan := kgo.IntoSyncAssignment(nil)
	if b, ok := s.inner.(kgo.GroupMemberBalancerOrError); ok {
		var err error
		if plan, err = b.BalanceOrError(topics); err != nil {
			return nil, err
		}
	} else {
		plan = s.inner.Balance(topics)
	}
	if plan == nil {
		return nil, errors.New("the inner balancer returned no plan")
	}
	return plan.IntoSyncAssignment(), nil
}
