package client

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

// turnover is a cooperative group without a broker. Its members read on through rebalances,
// and go over to what they are assigned one after the other, in any order. One that does not
// before the next generation begins has missed its assignment, and reads on what it read.
type turnover struct {
	t          require.TestingT
	partitions map[string]int32
	generation int32
	balancers  map[string]kgo.GroupBalancer
	reading    map[string][]AssignedSlots
}

func newTurnover(t require.TestingT, partitions map[string]int32) *turnover {
	return &turnover{t: t, partitions: partitions, balancers: map[string]kgo.GroupBalancer{}, reading: map[string][]AssignedSlots{}}
}

func (u *turnover) join(id string, b kgo.GroupBalancer) { u.balancers[id] = b }

func (u *turnover) leave(id string) {
	delete(u.balancers, id)
	delete(u.reading, id)
}

func (u *turnover) members() []string { return slices.Sorted(maps.Keys(u.balancers)) }

// stock is what a member that knows partitions only reads, as kgo keeps it.
func (u *turnover) stock(id string) map[string][]int32 {
	held := make(map[string][]int32)
	for _, r := range u.reading[id] {
		held[r.Topic] = append(held[r.Topic], r.Partition)
	}
	return held
}

// generate runs one generation, in which members go over in the given order, and tells
// whether another is to follow.
func (u *turnover) generate(leader string, order []string) (rejoin bool) {
	topics := slices.Sorted(maps.Keys(u.partitions))
	var joined []kmsg.JoinGroupResponseMember
	for _, id := range u.members() {
		m := kmsg.NewJoinGroupResponseMember()
		m.MemberID, m.ProtocolMetadata = id, u.balancers[id].JoinGroupMetadata(topics, u.stock(id), u.generation)
		joined = append(joined, m)
	}
	u.generation++
	mb, _, err := u.balancers[leader].MemberBalancer(joined)
	require.NoError(u.t, err)
	plan, err := mb.(kgo.GroupMemberBalancerOrError).BalanceOrError(u.partitions)
	require.NoError(u.t, err)
	assigned := map[string][]byte{}
	for _, a := range plan.IntoSyncAssignment() {
		assigned[a.MemberID] = a.MemberAssignment
	}
	for _, id := range order {
		rejoin = u.goOver(id, assigned[id]) || rejoin
		u.disjoint()
	}
	return rejoin
}

// goOver lets a member go over to its assignment.
func (u *turnover) goOver(id string, assignment []byte) (rejoin bool) {
	before := u.reading[id]
	kgos, err := u.balancers[id].ParseSyncAssignment(assignment)
	require.NoError(u.t, err)
	if b, ok := u.balancers[id].(*splittingBalancer); ok {
		require.Empty(u.t, kgos, "kgo must not fetch")
		u.reading[id], rejoin = b.began(u.generation)
		return rejoin
	}
	u.reading[id] = nil
	for topic, partitions := range kgos {
		for _, p := range partitions {
			u.reading[id] = append(u.reading[id], AssignedSlots{TopicPartition{topic, p}, allSlots})
		}
	}
	sortAssigned(u.reading[id])
	return !allWithin(before, u.reading[id])
}

// disjoint checks that no slot has two readers.
func (u *turnover) disjoint() {
	for x, theirs := range u.reading {
		for y, others := range u.reading {
			if x < y {
				require.Empty(u.t, within(theirs, others), "read by %s and by %s in generation %d", x, y, u.generation)
			}
		}
	}
}

// settle runs generations until none is to follow, and checks that everything is read.
func (u *turnover) settle(leader string, order []string) (generations int) {
	for generations = 1; u.generate(leader, order); generations++ {
		require.Less(u.t, generations, 5, "the group does not come to rest: %v", u.reading)
	}
	slots, all := 0, 0
	for _, ranges := range u.reading {
		slots += countSlots(ranges)
	}
	for _, n := range u.partitions {
		all += int(n) * (int(allSlots.Hi) + 1)
	}
	require.Equal(u.t, all, slots, "some slots are nobody's: %v", u.reading)
	return generations
}

func cooperativeSplitting() kgo.GroupBalancer {
	return newSplittingBalancer(kgo.CooperativeStickyBalancer())
}

// A slice changes hands in two steps, and those that are not concerned keep theirs in both.
func TestSlotsChangeHandsInTwoSteps(t *testing.T) {
	u := newTurnover(t, map[string]int32{"t": 1})
	u.join("a", cooperativeSplitting())
	u.settle("a", u.members())
	u.join("b", cooperativeSplitting())
	require.True(t, u.generate("a", u.members()))
	require.Equal(t, []AssignedSlots{{TopicPartition{"t", 0}, SlotRange{Lo: 0, Hi: 32767}}}, u.reading["a"])
	require.Empty(t, u.reading["b"], "a may still be at it")
	require.False(t, u.generate("a", u.members()))
	require.Equal(t, []AssignedSlots{{TopicPartition{"t", 0}, SlotRange{Lo: 32768, Hi: 65535}}}, u.reading["b"])

	u.join("c", cooperativeSplitting())
	keeps := u.reading["b"]
	require.True(t, u.generate("b", u.members()))
	require.Equal(t, keeps, u.reading["b"])
	require.False(t, u.generate("b", u.members()))
	require.Equal(t, keeps, u.reading["b"])
	require.Equal(t, []AssignedSlots{{TopicPartition{"t", 0}, SlotRange{Lo: 16384, Hi: 32767}}}, u.reading["c"])

	// What nobody reads is taken over at once.
	u.leave("b")
	u.join("d", cooperativeSplitting())
	require.False(t, u.generate("d", u.members()))
	require.Equal(t, keeps, u.reading["d"])
}

// A leader that knows partitions only gives the whole of one to a member that reads a part
// of it. That member gives up its part, and so nobody gets the partition before the others
// have given up theirs.
func TestWholePartitionsOfAStockLeader(t *testing.T) {
	u := newTurnover(t, map[string]int32{"t": 1})
	for _, id := range []string{"a", "b", "c"} {
		u.join(id, cooperativeSplitting())
	}
	u.settle("a", u.members())
	before := maps.Clone(u.reading)
	u.join("stock", kgo.CooperativeStickyBalancer())
	require.True(t, u.generate("stock", []string{"a", "b", "stock"}), "c misses its assignment")
	u.generate("stock", []string{"a", "b", "stock"}) // c misses the next one too
	for id, ranges := range u.reading {
		if id == "c" {
			require.Equal(t, before[id], ranges)
		} else {
			require.Empty(t, ranges, "%s must wait for c", id)
		}
	}
	u.settle("stock", u.members())
	u.settle("a", u.members())
}

// A member that was away for a generation may still believe that it holds what is another's
// by now. It does not get it back before the other gave it up, nor is it taken from the other.
func TestHandOverAmongStaleClaims(t *testing.T) {
	at := func(lo, hi uint16) AssignedSlots {
		return AssignedSlots{TopicPartition{"t", 0}, SlotRange{Lo: lo, Hi: hi}}
	}
	planned := map[string][]AssignedSlots{"a": {at(0, 99)}, "b": {at(100, 199)}, "c": {at(200, 299)}}
	handOver(planned, map[string][]AssignedSlots{"a": {at(0, 49)}, "b": {at(0, 120)}, "c": {at(300, 400)}})
	require.Equal(t, map[string][]AssignedSlots{"a": {at(0, 49)}, "b": {at(100, 199)}, "c": {at(200, 299)}}, planned)
}

// However members of both kinds come and go, and whoever leads, no slot ever has two
// readers, and the group comes to rest with one reader for each.
func TestNoSlotHasTwoReaders(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := map[string]int32{"t": rapid.Int32Range(1, 4).Draw(t, "partitions")}
		if rapid.Bool().Draw(t, "two topics") {
			partitions["u"] = rapid.Int32Range(1, 4).Draw(t, "others")
		}
		u := newTurnover(t, partitions)
		kinds := []func() kgo.GroupBalancer{cooperativeSplitting, kgo.CooperativeStickyBalancer,
			func() kgo.GroupBalancer { return SplitBalancer(kgo.CooperativeStickyBalancer()) }}
		names := 0
		for range rapid.IntRange(1, 10).Draw(t, "changes") {
			for _, id := range u.members() {
				if rapid.IntRange(0, 4).Draw(t, "leaves") == 0 {
					u.leave(id)
				}
			}
			for len(u.balancers) == 0 || len(u.balancers) < 8 && rapid.Bool().Draw(t, "joins") {
				kind := rapid.SampledFrom([]int{0, 0, 0, 1, 2}).Draw(t, "kind")
				u.join(fmt.Sprintf("m%d-%d", rapid.IntRange(0, 9).Draw(t, "place"), names), kinds[kind]())
				names++
			}
			leader := rapid.SampledFrom(u.members()).Draw(t, "leader")
			order := rapid.Permutation(u.members()).Draw(t, "order")
			if rapid.Bool().Draw(t, "disturbed") {
				u.generate(leader, order[:rapid.IntRange(0, len(order)).Draw(t, "in time")])
				continue // the next change comes between the two steps
			}
			u.settle(leader, order)
		}
	})
}
