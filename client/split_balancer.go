package client

import (
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrCooperativeBalancer refuses to split what a cooperative balancer assigns. Its members
// keep their partitions through a rebalance, and Kafka's protocol for that knows whole
// partitions only, so two members might hold the same slots for a moment.
var ErrCooperativeBalancer = errors.New("a cooperative balancer cannot be split: use an eager one, such as kgo.StickyBalancer")

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
// it leads the group; it fetches whole partitions itself.
//
// The balancer must be eager and speak Kafka's consumer protocol, as those of kgo do; with a
// cooperative one balancing fails with [ErrCooperativeBalancer]. kgo.BalanceRacks has no
// effect.
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
	if b.inner.IsCooperative() {
		return nil, nil, ErrCooperativeBalancer
	}
	consumers, err := kgo.NewConsumerBalancer(nil, members)
	if err != nil {
		return nil, nil, err
	}
	plain := slices.Clone(members)
	s := &splitMemberBalancer{subscribers: make(map[string][]splitMember)}
	consumers.EachMember(func(member *kmsg.JoinGroupResponseMember, meta *kmsg.ConsumerMemberMetadata) {
		rest, data, ok := s.add(member.MemberID, meta)
		if !ok {
			return
		}
		at := slices.IndexFunc(plain, func(m kmsg.JoinGroupResponseMember) bool { return m.MemberID == member.MemberID })
		if meta.UserData = rest; len(rest) == 0 {
			meta.UserData = nil
		}
		plain[at].ProtocolMetadata = meta.AppendTo(nil)
		s.splits = append(s.splits, splitJoined{member.MemberID, data})
	})
	inner, topics, err := b.inner.MemberBalancer(plain)
	s.inner = inner
	return s, topics, err
}

// splitJoined is a member that can split, and what it said when it joined.
type splitJoined struct {
	id   string
	data splitData
}

// splitMemberBalancer balances one generation.
type splitMemberBalancer struct {
	inner       kgo.GroupMemberBalancer
	splits      []splitJoined
	subscribers map[string][]splitMember // by topic
}

// add notes what a member subscribes to. If it can split, its user data are divided.
func (s *splitMemberBalancer) add(id string, meta *kmsg.ConsumerMemberMetadata) (rest []byte, data splitData, ok bool) {
	rest, ours, ok := cutSplitData(meta.UserData)
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
	return rest, data, ok
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
			plan.of(m.id).add(topic, m.splits, &shares[i])
		}
	}
	rest, err := s.balanceInner(whole)
	if err != nil {
		return nil, err
	}
	for _, a := range rest {
		if err := plan.of(a.MemberID).whole.ReadFrom(a.MemberAssignment); err != nil {
			return nil, fmt.Errorf("read what the inner balancer assigns: %w", err)
		}
	}
	for _, m := range s.splits {
		plan.of(m.id).splits = true
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

// splitAssignments are the assignments of members by their ids.
type splitAssignments map[string]*splitAssignment

// splitAssignment is what one member gets.
type splitAssignment struct {
	splits bool
	whole  kmsg.ConsumerMemberAssignment // of the inner balancer
	topics []kmsg.ConsumerMemberAssignmentTopic
	data   splitData
}

func (p splitAssignments) of(id string) *splitAssignment {
	if p[id] == nil {
		p[id] = &splitAssignment{whole: kmsg.NewConsumerMemberAssignment()}
	}
	return p[id]
}

// add takes in a member's share of a topic.
func (a *splitAssignment) add(topic string, splits bool, share *splitShare) {
	if len(share.parts) == 0 {
		return
	}
	t := kmsg.NewConsumerMemberAssignmentTopic()
	t.Topic = topic
	ours := splitTopic{name: topic, slice: share.slice}
	for _, p := range share.parts {
		t.Partitions = append(t.Partitions, p.Partition)
		ours.ranges = append(ours.ranges, AssignedSlots{
			TopicPartition: TopicPartition{topic, p.Partition},
			Slots:          protocol.SlotRange{Lo: uint16(p.Start), Hi: uint16(p.End - 1)},
		})
	}
	a.topics = append(a.topics, t)
	if splits {
		a.data.topics = append(a.data.topics, ours)
	}
}

// IntoSyncAssignment implements [kgo.IntoSyncAssignment].
func (p splitAssignments) IntoSyncAssignment() []kmsg.SyncGroupRequestGroupAssignment {
	all := make([]kmsg.SyncGroupRequestGroupAssignment, 0, len(p))
	for id, a := range p {
		whole := a.whole
		whole.Topics = slices.Concat(whole.Topics, a.topics)
		slices.SortFunc(whole.Topics, func(x, y kmsg.ConsumerMemberAssignmentTopic) int { return cmp.Compare(x.Topic, y.Topic) })
		if a.splits {
			slices.SortFunc(a.data.topics, func(x, y splitTopic) int { return cmp.Compare(x.name, y.name) })
			whole.UserData = appendSplitData(whole.UserData, &a.data)
		}
		sync := kmsg.NewSyncGroupRequestGroupAssignment()
		sync.MemberID, sync.MemberAssignment = id, whole.AppendTo(nil)
		all = append(all, sync)
	}
	slices.SortFunc(all, func(x, y kmsg.SyncGroupRequestGroupAssignment) int { return cmp.Compare(x.MemberID, y.MemberID) })
	return all
}
