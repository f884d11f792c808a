package assignor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// one is a topic of so many partitions, as the group knows it, and found how it is.
func one(partitions int32) map[string]Topic {
	return map[string]Topic{"in": {Partitions: partitions, Fold: partitions}}
}

func found(partitions int32) map[string]Input {
	return map[string]Input{"in": {Partitions: partitions}}
}

func TestAnIdleMemberWithAStateOnDisk(t *testing.T) {
	group := &Group{Initial: 1, Topics: one(1)}
	plan, err := Assign([]Member{{ID: "w", Claim: Claim{Group: group, Generation: 3, Holders: []string{"gone"}, Idle: []string{"w"}, OnDisk: []Stored{{Bucket: 0}}}}},
		found(1))
	require.NoError(t, err)
	require.Equal(t, []string{"w"}, plan["w"].Holders)
	require.Empty(t, plan["w"].Idle)
}

// The generations of a group begin anew when the broker has forgotten it.
func TestAPlanOnDiskIsOlderThanTheOneThatIsLived(t *testing.T) {
	lived := Claim{Group: &Group{Initial: 2, Topics: one(1)}, Generation: 2, Holders: []string{"a", "b"}}
	stale := Claim{Group: &Group{Initial: 1, Topics: one(1)}, Generation: 40, Holders: []string{"x", "y", "z"}}
	plan, err := Assign([]Member{{ID: "a", Claim: lived}, {ID: "b", Claim: lived}, {ID: "c", Claim: stale}}, found(1))
	require.NoError(t, err)
	require.EqualValues(t, 2, plan["a"].Group.Initial)
	require.Equal(t, []string{"a", "b", "c"}, plan["a"].Holders)
}

// As long as anybody processes something it goes on in the units that it is counted in.
func TestAPlanThatIsProcessedCountsMost(t *testing.T) {
	topics := one(1)
	lived := &Group{Initial: 2, Topics: topics}
	other := &Group{Initial: 1, Topics: topics}
	plan, err := Assign([]Member{
		{ID: "a", Claim: Claim{Group: lived, Generation: 2, Holders: []string{"a", "a"}, Tasks: []TaskState{{Bucket: 0, Active: lived.all()}}}},
		{ID: "b", Claim: Claim{Group: other, Generation: 40, Holders: []string{"b"}}},
	}, found(1))
	require.NoError(t, err)
	require.EqualValues(t, 2, plan["a"].Group.Initial)
	require.Equal(t, []string{"a", "b"}, plan["a"].Holders)
	require.Equal(t, []Task{{Bucket: 0, Active: lived.all()}}, plan["a"].Tasks)
}

// What a member processes that counts in other units is given to nobody before it has given
// it up.
func TestAMemberOfAnotherGroupGivesUpFirst(t *testing.T) {
	group := &Group{Initial: 2, Topics: one(1)}
	for name, other := range map[string]*Group{
		"of more buckets":          {Initial: 3, Topics: one(1)},
		"of a topic made anew":     {Initial: 2, Topics: one(4)},
		"of fewer, and more parts": {Initial: 1, Topics: one(2)},
	} {
		t.Run(name, func(t *testing.T) {
			foreign := Claim{Group: other, Generation: 3, Holders: []string{"x"}, Tasks: []TaskState{{Bucket: 0, Active: Area{{0, 7}}}}}
			members := []Member{
				{ID: "a", Claim: Claim{Group: group, Generation: 4, Holders: []string{"a", "b"}, Tasks: []TaskState{{Bucket: 0, Active: Area{{0, 9}}}}}},
				{ID: "b", Claim: foreign},
			}
			plan, err := Assign(members, found(1))
			require.NoError(t, err)
			require.Equal(t, Area{{0, 9}}, plan["a"].Tasks[0].Active)
			require.Equal(t, Area{{9, UnitsPerBucket}}, plan["a"].Tasks[0].Rebuild)
			require.Equal(t, []Task{{Bucket: 1, Rebuild: Area{{UnitsPerBucket, 2 * UnitsPerBucket}}}}, plan["b"].Tasks)

			members[1].Claim.Tasks = nil
			plan, err = Assign(members, found(1))
			require.NoError(t, err)
			require.Equal(t, []Task{{Bucket: 0, Active: Area{{0, UnitsPerBucket}}}}, plan["a"].Tasks)
			require.Equal(t, []Task{{Bucket: 1, Active: Area{{UnitsPerBucket, 2 * UnitsPerBucket}}}}, plan["b"].Tasks)
		})
	}
}

// A plan that nobody can have come to does not stop the group: the next older one counts, and
// if there is none the group is founded anew. What is processed stays where it is meanwhile.
func TestPlansThatNobodyCanHaveComeTo(t *testing.T) {
	group := &Group{Initial: 2, Topics: one(1)}
	for name, bad := range map[string]Claim{
		"no holders":         {},
		"too few holders":    {Holders: []string{"a"}},
		"a bucket of nobody": {Holders: []string{"a", ""}},
		"uneven":             {Holders: []string{"a", "a", "b"}},
	} {
		t.Run(name, func(t *testing.T) {
			bad.Group, bad.Generation = group, 9
			bad.Tasks = []TaskState{{Bucket: 5, Active: group.all()}}
			good := Claim{Group: group, Generation: 8, Holders: []string{"c", "a"}}
			members := []Member{{ID: "a", Claim: bad}, {ID: "c", Claim: good}}
			plan, err := Assign(members, found(1))
			require.NoError(t, err)
			require.Equal(t, []string{"c", "a"}, plan["a"].Holders)
			require.Equal(t, group.all(), plan["a"].Tasks[len(plan["a"].Tasks)-1].Active)

			members[1].Claim = Claim{}
			plan, err = Assign(members, found(1))
			require.NoError(t, err)
			require.Len(t, plan["a"].Holders, 2)
			require.ElementsMatch(t, []string{"a", "c"}, plan["a"].Holders)
			require.Equal(t, group.all(), plan["a"].Tasks[len(plan["a"].Tasks)-1].Active)
		})
	}
}

// A founder may ask for more buckets than any group can have.
func TestAGroupBeginsWithNoMoreBucketsThanSlots(t *testing.T) {
	plan, err := Assign([]Member{{ID: "a", Claim: Claim{Initial: 1<<31 - 1}}}, found(1))
	require.NoError(t, err)
	require.EqualValues(t, 65536, plan["a"].Group.Initial)
	require.Len(t, plan["a"].Tasks, 65536)
}

// A disk has old states too, of buckets that were others' by the end.
func TestWhoComesBackToWhat(t *testing.T) {
	group := &Group{Initial: 4, Topics: one(1)}
	for name, c := range map[string]struct {
		holders []string
		a, b    []Stored
		want    []string
	}{
		"most in common":     {[]string{"x", "x", "y", "y"}, []Stored{{0, 0}, {2, 0}, {3, 0}}, []Stored{{0, 0}, {1, 0}, {2, 0}}, []string{"b", "b", "a", "a"}},
		"the least besides":  {[]string{"x", "y", "p", "q"}, []Stored{{0, 0}, {1, 0}}, []Stored{{0, 0}}, []string{"b", "a", "p", "q"}},
		"not what is not":    {[]string{"x", "y", "p", "q"}, []Stored{{1, 0}, {9, 0}}, []Stored{{2, 0}}, []string{"b", "a", "p", "q"}},
		"not what is living": {[]string{"x", "y", "p", "q"}, []Stored{{2, 0}, {3, 0}}, []Stored{{0, 0}, {2, 0}}, []string{"b", "a", "p", "q"}},
		"the least behind":   {[]string{"x", "y", "p", "q"}, []Stored{{0, 9}}, []Stored{{0, 8}, {1, 100}}, []string{"b", "a", "p", "q"}},
		"known to be behind": {[]string{"x", "y", "p", "q"}, []Stored{{0, -1}}, []Stored{{0, 1 << 40}, {9, 0}}, []string{"b", "a", "p", "q"}},
	} {
		t.Run(name, func(t *testing.T) {
			members := []Member{{ID: "a", Claim: Claim{OnDisk: c.a}}, {ID: "b", Claim: Claim{OnDisk: c.b}}}
			members[0].Claim.Group, members[0].Claim.Holders = group, c.holders
			for _, id := range []string{"p", "q"} {
				if c.holders[2] == "p" {
					members = append(members, Member{ID: id})
				}
			}
			plan, err := Assign(members, found(1))
			require.NoError(t, err)
			require.Equal(t, c.want, plan["a"].Holders)
		})
	}
}
