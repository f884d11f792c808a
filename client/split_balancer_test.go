package client

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// joining is a group of members without a broker: each generation they join with what
// their balancers say, and the leader's balancer assigns.
type joining struct {
	t          *testing.T
	partitions map[string]int32
	generation int32
	members    map[string]kgo.GroupBalancer
}

// rebalance lets leader balance, and returns what everybody holds.
func (j *joining) rebalance(leader kgo.GroupBalancer) map[string][]AssignedSlots {
	j.t.Helper()
	j.generation++
	var topics []string
	for topic := range j.partitions {
		topics = append(topics, topic)
	}
	slices.Sort(topics)
	var joined []kmsg.JoinGroupResponseMember
	for id, b := range j.members {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.ProtocolMetadata = id, b.JoinGroupMetadata(topics, nil, j.generation-1)
		joined = append(joined, m)
	}
	slices.SortFunc(joined, func(x, y kmsg.JoinGroupResponseMember) int {
		return slices.Compare([]byte(x.MemberID), []byte(y.MemberID))
	})
	mb, _, err := leader.MemberBalancer(joined)
	require.NoError(j.t, err)
	plan, err := mb.(kgo.GroupMemberBalancerOrError).BalanceOrError(j.partitions)
	require.NoError(j.t, err)
	held := make(map[string][]AssignedSlots)
	for _, a := range plan.IntoSyncAssignment() {
		b := j.members[a.MemberID]
		kgos, err := b.ParseSyncAssignment(a.MemberAssignment)
		require.NoError(j.t, err)
		if b, ok := b.(*splittingBalancer); ok {
			require.Empty(j.t, kgos, "kgo must not fetch")
			held[a.MemberID], _ = b.began(j.generation)
			continue
		}
		held[a.MemberID] = nil
		for topic, partitions := range kgos {
			for _, p := range partitions {
				held[a.MemberID] = append(held[a.MemberID], AssignedSlots{TopicPartition{topic, p}, allSlots})
			}
		}
		sortAssigned(held[a.MemberID])
	}
	require.Len(j.t, held, len(j.members))
	return held
}

func eagerBalancers() map[string]func() kgo.GroupBalancer {
	return map[string]func() kgo.GroupBalancer{
		"range": kgo.RangeBalancer, "roundrobin": kgo.RoundRobinBalancer, "sticky": kgo.StickyBalancer,
	}
}

// Every eager balancer of kgo can be wrapped: topics with partitions enough stay its own.
func TestSplitBalancerOverEveryBalancer(t *testing.T) {
	for name, inner := range eagerBalancers() {
		t.Run("inner="+name, func(t *testing.T) {
			j := &joining{t: t, partitions: map[string]int32{"few": 1, "many": 6}, members: map[string]kgo.GroupBalancer{
				"a": newSplittingBalancer(inner()), "b": newSplittingBalancer(inner()), "c": newSplittingBalancer(inner())}}
			require.Equal(t, name, j.members["a"].ProtocolName())
			held := j.rebalance(j.members["b"])
			slots := map[string]SlotRange{}
			for id, ranges := range held {
				require.Len(t, ranges, 3, "%s holds %v", id, ranges)
				slots[id] = ranges[0].Slots
				require.Equal(t, "few", ranges[0].Topic)
				require.Equal(t, allSlots, ranges[1].Slots)
				require.Equal(t, "many", ranges[2].Topic)
			}
			require.Equal(t, map[string]SlotRange{"a": {Lo: 0, Hi: 16383}, "b": {Lo: 32768, Hi: 65535}, "c": {Lo: 16384, Hi: 32767}}, slots)

			// One leaves and another comes: it takes the place, and nothing else moves.
			delete(j.members, "a")
			j.members["d"] = newSplittingBalancer(inner())
			held = j.rebalance(j.members["d"])
			require.Equal(t, SlotRange{Lo: 0, Hi: 16383}, held["d"][0].Slots)
			require.Equal(t, SlotRange{Lo: 32768, Hi: 65535}, held["b"][0].Slots)
			require.Equal(t, SlotRange{Lo: 16384, Hi: 32767}, held["c"][0].Slots)

			// Alone it has whole partitions; and when another comes, the half of one.
			delete(j.members, "b")
			delete(j.members, "c")
			held = j.rebalance(j.members["d"])
			require.Len(t, held["d"], 7)
			require.Equal(t, allSlots, held["d"][0].Slots)
			j.members["a"] = newSplittingBalancer(inner())
			held = j.rebalance(j.members["a"])
			require.Equal(t, SlotRange{Lo: 0, Hi: 32767}, held["d"][0].Slots)
			require.Equal(t, SlotRange{Lo: 32768, Hi: 65535}, held["a"][0].Slots)
		})
	}
}

// Stock members get whole partitions, and everybody does when the leader is a stock one.
func TestSplitBalancerWithStockMembers(t *testing.T) {
	for name, inner := range eagerBalancers() {
		t.Run("inner="+name, func(t *testing.T) {
			j := &joining{t: t, partitions: map[string]int32{"t": 2}, members: map[string]kgo.GroupBalancer{
				"a": newSplittingBalancer(inner()), "b": newSplittingBalancer(inner()), "stock": inner(), "leads": SplitBalancer(inner())}}
			for _, leader := range []kgo.GroupBalancer{j.members["a"], j.members["leads"]} {
				held := j.rebalance(leader)
				require.Equal(t, []AssignedSlots{{TopicPartition{"t", 0}, SlotRange{Lo: 0, Hi: 32767}}}, held["a"])
				require.Equal(t, []AssignedSlots{{TopicPartition{"t", 0}, SlotRange{Lo: 32768, Hi: 65535}}}, held["b"])
				require.Equal(t, []AssignedSlots{{TopicPartition{"t", 1}, allSlots}}, held["leads"])
				require.Empty(t, held["stock"])
			}
			held := j.rebalance(inner())
			seen := map[string]bool{}
			for _, ranges := range held {
				for _, r := range ranges {
					require.Equal(t, allSlots, r.Slots)
					require.False(t, seen[r.TopicPartition.String()])
					seen[r.TopicPartition.String()] = true
				}
			}
			require.Len(t, seen, 2)
		})
	}
}

// The sticky balancer learns what members held that split, and so stays sticky.
func TestSplitBalancerKeepsStickyPartitions(t *testing.T) {
	j := &joining{t: t, partitions: map[string]int32{"t": 12}, members: map[string]kgo.GroupBalancer{}}
	for i := range 4 {
		j.members[fmt.Sprint("m", i)] = newSplittingBalancer(kgo.StickyBalancer())
	}
	before := j.rebalance(j.members["m0"])
	delete(j.members, "m0")
	after := j.rebalance(j.members["m1"])
	for id := range j.members {
		require.Subset(t, after[id], before[id])
		require.Len(t, after[id], 4)
	}
}

// An assignment that does not say which slots of a partition it means is refused.
func TestBadSplitAssignments(t *testing.T) {
	a := kmsg.NewConsumerMemberAssignment()
	a.Topics = []kmsg.ConsumerMemberAssignmentTopic{{Topic: "t", Partitions: []int32{0, 1}}}
	data := splitData{topics: []splitTopic{{name: "t", slice: splitSlice{2, 3, 0}, ranges: []AssignedSlots{{TopicPartition{"t", 0}, allSlots}}}}}
	a.UserData = appendSplitData(nil, &data)
	b := newSplittingBalancer(kgo.RangeBalancer())
	_, err := b.ParseSyncAssignment(a.AppendTo(nil))
	require.ErrorContains(t, err, "no slots of t[1]")
	a.UserData = append(a.UserData[:0], "\x07\x00\x00\x00\x01LcnSplit"...)
	_, err = b.ParseSyncAssignment(a.AppendTo(nil))
	require.ErrorContains(t, err, "another version")
	_, err = b.ParseSyncAssignment([]byte{1})
	require.Error(t, err)
	held, _ := b.began(1)
	require.Empty(t, held)
}
