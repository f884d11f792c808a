package client

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func splitters(ids ...string) (members []splitMember) {
	for _, id := range ids {
		members = append(members, splitMember{id: id, splits: true, claimed: -1})
	}
	return members
}

// drawn is a plan in words.
func drawn(tb require.TestingT, partitions int32, members []splitMember) (lines []string) {
	shares, err := splitPlan(partitions, members)
	require.NoError(tb, err)
	for i, m := range members {
		line := m.id + ":"
		for _, p := range shares[i].parts {
			line += fmt.Sprintf(" %d/%d-%d", p.Partition, p.Start, p.End-1)
		}
		lines = append(lines, line)
	}
	return lines
}

func TestSplitPlan(t *testing.T) {
	require.Equal(t, []string{"a: 0/0-16383", "b: 0/32768-65535", "c: 0/16384-32767"}, drawn(t, 1, splitters("a", "b", "c")))
	require.Equal(t, []string{"a: 0/0-32767", "b: 1/0-65535", "c: 0/32768-65535"}, drawn(t, 2, splitters("a", "b", "c")))
	stock := func(ids ...string) (members []splitMember) {
		for _, id := range ids {
			members = append(members, splitMember{id: id, claimed: -1})
		}
		return members
	}
	// Who cannot split gets whole partitions, but one is left to those who can.
	require.Equal(t, []string{"s: 1/0-65535", "a: 0/0-32767", "b: 0/32768-65535"}, drawn(t, 2, append(stock("s"), splitters("a", "b")...)))
	require.Equal(t, []string{"s: 2/0-65535", "t: 1/0-65535", "u:", "a: 0/0-65535"}, drawn(t, 3, append(stock("s", "t", "u"), splitters("a")...)))
	require.Equal(t, []string{"s:", "a: 0/0-65535"}, drawn(t, 1, append(stock("s"), splitters("a")...)))

	require.True(t, split(2, splitters("a", "b", "c")))
	require.False(t, split(3, splitters("a", "b", "c")))
	require.False(t, split(1, stock("s", "t")))
	require.False(t, split(0, splitters("a")))
}

// Members that held whole partitions keep a part of them when the topic is split.
func TestSplitPlanAfterWholePartitions(t *testing.T) {
	members := splitters("a", "b", "c")
	members[0].claim, members[0].claimed = splitSlice{bucket: 1}, 4
	members[2].claim, members[2].claimed = splitSlice{bucket: 0}, 4
	require.Equal(t, []string{"a: 1/0-65535", "b: 0/32768-65535", "c: 0/0-32767"}, drawn(t, 2, members))
	members[2].claimed = 3 // it has missed a generation, so b may have had it since
	require.Equal(t, []string{"a: 1/0-65535", "b: 0/0-32767", "c: 0/32768-65535"}, drawn(t, 2, members))
}

// covered checks that every slot has one owner, and that members get what they can use.
func covered(tb require.TestingT, partitions int32, members []splitMember, shares []splitShare) {
	next := make([]int32, partitions)
	var parts []keyfilter.PartitionSlots
	wholes, stock := 0, 0
	for i, m := range members {
		parts = append(parts, shares[i].parts...)
		if m.splits {
			require.Len(tb, shares[i].parts, 1, "%s is idle or holds several", m.id)
			continue
		}
		stock++
		for _, p := range shares[i].parts {
			require.True(tb, p.Whole(), "%s cannot split", m.id)
			wholes++
		}
	}
	slices.SortFunc(parts, func(x, y keyfilter.PartitionSlots) int { return int(x.Start) - int(y.Start) })
	for _, p := range parts {
		require.Equal(tb, next[p.Partition], p.Start, "slots of partition %d are nobody's or two members'", p.Partition)
		require.Greater(tb, p.End, p.Start)
		next[p.Partition] = p.End
	}
	for p, end := range next {
		require.EqualValues(tb, keyfilter.Slots, end, "partition %d", p)
	}
	require.Equal(tb, min(stock, int(partitions)-1), wholes)
}

// Whatever joins and leaves, every slot of every partition goes to one member, and few of
// those who stay get another share.
func TestSplitPlanThroughChanges(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.Int32Range(1, 5).Draw(t, "partitions")
		var members []splitMember
		held := map[string]splitShare{}
		names := 0
		for generation := range int32(rapid.IntRange(1, 12).Draw(t, "generations")) {
			came, left := 0, 0
			stay := members[:0]
			for _, m := range members {
				if m.splits && rapid.IntRange(0, 5).Draw(t, "leaves") == 0 {
					left++
					continue
				}
				stay = append(stay, m)
			}
			members = stay
			for came < 6 && (!split(partitions, members) || rapid.Bool().Draw(t, "joins")) {
				members = append(members, splitMember{id: fmt.Sprintf("m%d", names), splits: true, claimed: -1})
				names++
				came++
			}
			if !split(partitions, members) {
				continue
			}
			shares, err := splitPlan(partitions, members)
			require.NoError(t, err)
			covered(t, partitions, members, shares)
			moved := 0
			for i := range members {
				before, ok := held[members[i].id]
				if ok && !slices.Equal(before.parts, shares[i].parts) {
					moved++
				}
			}
			require.LessOrEqual(t, moved, max(came-left, 2*(left-came)), "%d came and %d left", came, left)
			clear(held)
			for i := range members {
				members[i].claim, members[i].claimed = shares[i].slice, generation
				held[members[i].id] = shares[i]
			}
		}
	})
}

// Claims are the word of others: none can make a plan that is wrong, nor make it long.
func TestSplitPlanOfAnyClaims(t *testing.T) {
	number := rapid.OneOf(rapid.Int32Range(0, 8), rapid.Int32())
	rapid.Check(t, func(t *rapid.T) {
		partitions := rapid.Int32Range(1, 4).Draw(t, "partitions")
		members := make([]splitMember, rapid.IntRange(int(partitions)+1, 12).Draw(t, "members"))
		for i := range members {
			members[i] = splitMember{id: fmt.Sprintf("m%02d", i), splits: i == 0 || rapid.Bool().Draw(t, "splits"),
				claimed: rapid.Int32Range(-1, 1).Draw(t, "claimed"),
				claim:   splitSlice{number.Draw(t, "of partitions"), number.Draw(t, "buckets"), number.Draw(t, "bucket")}}
		}
		shares, err := splitPlan(partitions, members)
		require.NoError(t, err)
		covered(t, partitions, members, shares)
	})
}

func TestSplitDataOnTheWire(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := splitData{generation: rapid.Int32Range(-1, 1<<30).Draw(t, "generation")}
		number := rapid.Int32Range(0, 1<<31-1)
		for name := range maps.Keys(rapid.MapOfN(rapid.String(), rapid.Bool(), 0, 4).Draw(t, "topics")) {
			topic := splitTopic{name: name, slice: splitSlice{number.Draw(t, "partitions"), number.Draw(t, "buckets"), number.Draw(t, "bucket")}}
			for range rapid.IntRange(0, 3).Draw(t, "ranges") {
				lo := rapid.Uint16().Draw(t, "lo")
				topic.ranges = append(topic.ranges, AssignedSlots{TopicPartition{name, number.Draw(t, "partition")},
					SlotRange{Lo: lo, Hi: rapid.Uint16Min(lo).Draw(t, "hi")}})
			}
			want.topics = append(want.topics, topic)
		}
		inner := rapid.SliceOf(rapid.Byte()).Draw(t, "inner")
		rest, ours, ok := cutSplitData(appendSplitData(inner, &want))
		require.True(t, ok)
		require.Equal(t, append([]byte{}, inner...), append([]byte{}, rest...))
		got, err := parseSplitData(ours)
		require.NoError(t, err)
		require.Equal(t, want, got)
		for n := range ours {
			_, err := parseSplitData(ours[:n])
			require.ErrorIs(t, err, errSplitData)
		}
	})
}

func FuzzSplitData(f *testing.F) {
	f.Add([]byte(nil))
	f.Add([]byte{splitVersion, 0, 0})
	f.Add(appendSplitData([]byte("inner"), &splitData{generation: 3, topics: []splitTopic{{name: "t", slice: splitSlice{1, 3, 2},
		ranges: []AssignedSlots{{TopicPartition{"t", 0}, SlotRange{Lo: 16384, Hi: 32767}}}}}}))
	f.Fuzz(func(t *testing.T, b []byte) {
		rest, ours, ok := cutSplitData(b)
		if !ok {
			require.Equal(t, b, rest)
			ours = b
		}
		d, err := parseSplitData(ours)
		if err != nil {
			return
		}
		_, again, ok := cutSplitData(appendSplitData(nil, &d))
		require.True(t, ok)
		same, err := parseSplitData(again)
		require.NoError(t, err)
		require.Equal(t, d, same)
	})
}
