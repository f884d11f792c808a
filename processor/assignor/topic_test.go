package assignor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestStageModel: what a key's partitioner could have written later is not in an earlier stage.
func TestStageModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var topic Topic
		ends := make([]int64, 0, 16)
		partitions := int32(0)
		type moment struct{ ends []int64 }
		var grown []moment
		for range rapid.IntRange(1, 6).Draw(t, "growths") {
			for i := range ends {
				ends[i] += rapid.Int64Range(0, 3).Draw(t, "written")
			}
			before := topic
			partitions += rapid.Int32Range(1, 3).Draw(t, "added")
			topic = topic.sees(Input{ID: [16]byte{1}, Partitions: partitions, Ends: ends})
			if before.Partitions > 0 {
				grown = append(grown, moment{append([]int64(nil), ends...)})
			}
			ends = append(ends, make([]int64, int(partitions)-len(ends))...)
			require.Equal(t, partitions, topic.Partitions)
			require.Zero(t, partitions%topic.Fold)
			require.True(t, before.Fold == 0 || before.Fold%topic.Fold == 0)
		}
		at := func(name string) (int32, int64) {
			return rapid.Int32Range(0, partitions-1).Draw(t, name), rapid.Int64Range(0, 20).Draw(t, name)
		}
		p, x := at("one")
		q, y := at("other")
		// how often the topic had grown when the record was written, as far as can be told
		after := func(p int32, x int64) (n int) {
			for i, m := range grown {
				if int(p) >= len(m.ends) || x >= m.ends[p] {
					n = i + 1
				}
			}
			return n
		}
		stageP, untilP := topic.Stage(p, x)
		stageQ, _ := topic.Stage(q, y)
		if after(p, x) < after(q, y) {
			require.LessOrEqual(t, stageP, stageQ)
		}
		if len(topic.Grown) == len(grown) {
			require.Equal(t, after(p, x), stageP)
		}
		if untilP < 0 {
			require.Len(t, topic.Grown, stageP)
			return
		}
		require.Greater(t, untilP, x)
		last, _ := topic.Stage(p, untilP-1)
		require.Equal(t, stageP, last)
		next, _ := topic.Stage(p, untilP)
		require.Greater(t, next, stageP)
	})
}

func TestATopicGrows(t *testing.T) {
	id := [16]byte{1}
	topic := Topic{}.sees(Input{ID: id, Partitions: 4})
	require.Equal(t, Topic{ID: id, Partitions: 4, Fold: 4}, topic)
	require.Equal(t, topic, topic.sees(Input{ID: id, Partitions: 8}), "without the ends of its logs it has not grown")
	require.Equal(t, topic, topic.sees(Input{ID: id, Partitions: 2}), "it does not shrink")
	require.Equal(t, Topic{ID: id, Partitions: 8, Fold: 4}, topic.sees(Input{ID: id, Partitions: 8, Ends: make([]int64, 8)}), "nothing was written before")

	topic = topic.sees(Input{ID: id, Partitions: 8, Ends: []int64{5, 0, 7, 1, 9, 9, 9, 9}})
	require.Equal(t, Topic{ID: id, Partitions: 8, Fold: 4, Grown: [][]int64{{5, 0, 7, 1}}}, topic)
	require.EqualValues(t, 2, topic.sees(Input{ID: id, Partitions: 10, Ends: make([]int64, 8)}).Fold)
	require.Equal(t, Topic{ID: [16]byte{2}, Partitions: 3, Fold: 3}, topic.sees(Input{ID: [16]byte{2}, Partitions: 3}), "made anew")

	for i := range int64(20) {
		ends := make([]int64, topic.Partitions)
		ends[0] = 100 + i
		topic = topic.sees(Input{ID: id, Partitions: topic.Partitions + 4, Ends: ends})
	}
	require.Len(t, topic.Grown, maxGrown)
	require.EqualValues(t, 119, topic.Grown[maxGrown-1][0])
}

func TestWhatIsToBeLookedUp(t *testing.T) {
	known := Claim{Group: &Group{Initial: 1, Topics: map[string]Topic{"in": {ID: [16]byte{1}, Partitions: 2, Fold: 2}}}}
	members := []Member{{ID: "new", Claim: Claim{Generation: -1}}, {ID: "a", Claim: known}}
	require.Equal(t, map[string]int32{"in": 2}, Growing(members, map[string]Input{"in": {ID: [16]byte{1}, Partitions: 3}, "other": {Partitions: 9}}))
	require.Empty(t, Growing(members, map[string]Input{"in": {ID: [16]byte{1}, Partitions: 2}}))
	require.Empty(t, Growing(members, map[string]Input{"in": {ID: [16]byte{2}, Partitions: 3}}), "made anew")
	require.Empty(t, Growing(members[:1], map[string]Input{"in": {Partitions: 3}}), "nobody knows it")
}

// When keys move between units everybody gives up everything, and then has the same buckets
// in the new units.
func TestKeysThatMoveAreGivenUpByAll(t *testing.T) {
	group := &Group{Initial: 2, Topics: one(2)}
	claim := func(bucket int32) Claim {
		return Claim{Group: group, Generation: 3, Holders: []string{"a", "b"},
			Tasks: []TaskState{{Bucket: bucket, Active: Area{{int64(bucket) * UnitsPerBucket, int64(bucket+1) * UnitsPerBucket}}}}}
	}
	members := []Member{{ID: "a", Claim: claim(0)}, {ID: "b", Claim: claim(1)}}
	plan, err := Assign(members, map[string]Input{"in": {Partitions: 3, Ends: []int64{4, 4}}})
	require.NoError(t, err)
	for i := range members {
		a := plan[members[i].ID]
		require.EqualValues(t, 1, a.Group.Topics["in"].Fold)
		require.Equal(t, []string{"a", "b"}, a.Holders)
		require.Len(t, a.Tasks, 1)
		require.Empty(t, a.Tasks[0].Active)
		members[i].Claim = Claim{Group: &a.Group, Generation: 4, Holders: a.Holders, Tasks: []TaskState{{Bucket: a.Tasks[0].Bucket, Rebuild: a.Tasks[0].Rebuild}}}
	}
	plan, err = Assign(members, map[string]Input{"in": {Partitions: 3}})
	require.NoError(t, err)
	for bucket, id := range []string{"a", "b"} {
		require.Equal(t, []Task{{Bucket: int32(bucket), Active: Area{{int64(bucket) * UnitsPerBucket, int64(bucket+1) * UnitsPerBucket}}}}, plan[id].Tasks)
	}
}

func TestMeasure(t *testing.T) {
	g := anAssignment().Group
	read, err := DecodeMeasure(AppendMeasure(nil, &g))
	require.NoError(t, err)
	require.True(t, read.MeasuresAs(&g))
	in := g.Topics["in"]
	in.Partitions = 12
	g.Topics["in"] = in
	require.True(t, read.MeasuresAs(&g))
	in.Fold = 2
	g.Topics["in"] = in
	require.False(t, read.MeasuresAs(&g))
	_, err = DecodeMeasure(nil)
	require.ErrorIs(t, err, ErrMalformed)
}
