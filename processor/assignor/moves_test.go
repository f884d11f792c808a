package assignor

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/keyfilter"
)

// fataler is what both kinds of tests are.
type fataler interface {
	Errorf(format string, args ...any)
	FailNow()
}

func bucketsOf(t fataler, a Assignment) keyfilter.Buckets {
	b, err := keyfilter.NewBuckets(a.Group.Initial, int32(len(a.Holders)))
	require.NoError(t, err)
	return b
}

// areas are what each member has when a plan is reached.
func areas(t fataler, a Assignment) map[string]Area {
	of, buckets := make(map[string]Area), bucketsOf(t, a)
	for bucket, holder := range a.Holders {
		of[holder] = of[holder].Union(a.Group.bucket(buckets, int32(bucket)))
	}
	return of
}

// move is a slice that changes hands.
type move struct {
	from, to string
	slice    Span
}

func moves(t fataler, before, after Assignment) (all []move) {
	had, has := areas(t, before), areas(t, after)
	for from, a := range had {
		for to, b := range has {
			if from == to {
				continue
			}
			for _, s := range a.Intersect(b) {
				all = append(all, move{from, to, s})
			}
		}
	}
	return all
}

// TestMoves changes settled groups and holds what moves against what linear hashing has to.
func TestMoves(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t)
		for range rapid.IntRange(1, 12).Draw(t, "founders") {
			s.join(nil)
		}
		before := s.settle()
		for range rapid.IntRange(1, 8).Draw(t, "changes") {
			enough := len(s.members) >= int(before.Group.Initial)
			gone := rapid.SampledFrom(s.ids()).Draw(t, "gone")
			switch do := rapid.IntRange(0, 2).Draw(t, "do"); {
			case do == 0 || len(s.members) == 1:
				come := s.join(nil).id
				after := s.settle()
				all := moves(t, before, after)
				for _, m := range all {
					require.Equal(t, come, m.to, "nothing moves between those who stay")
				}
				require.True(t, !enough || len(all) == 1, "a join moves %v", all)
				before = after
			case do == 1:
				delete(s.members, gone)
				after := s.settle()
				all := moves(t, before, after)
				if enough {
					require.LessOrEqual(t, len(all), 2, "a leave moves %v", all)
				} else {
					require.Equal(t, areas(t, before)[gone].Len(), length(all), "a leave moves %v", all)
				}
				before = after
			default:
				delete(s.members, gone)
				come := s.join(nil).id
				after := s.settle()
				for _, m := range moves(t, before, after) {
					require.Equal(t, move{gone, come, m.slice}, m, "one for another")
				}
				before = after
			}
		}
	})
}

func length(all []move) (n int64) {
	for _, m := range all {
		n += m.slice.To - m.slice.From
	}
	return n
}

// TestAGroupComesBack: all or some members are gone at once and come back under other ids.
func TestAGroupComesBack(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s := newSim(t)
		for range rapid.IntRange(1, 12).Draw(t, "founders") {
			s.join(nil)
		}
		before := s.settle()
		renamed := make(map[string]string)
		for _, id := range rapid.Permutation(s.ids()).Draw(t, "order") {
			renamed[id] = id
			if rapid.Bool().Draw(t, "restarts") {
				m := s.members[id]
				delete(s.members, id)
				m.disk = make(map[int32]bool)
				for _, task := range m.claim.Tasks {
					m.disk[task.Bucket] = true
				}
				renamed[id] = s.join(m).id
			}
		}
		after := s.settle()
		for bucket, holder := range before.Holders {
			require.Equal(t, renamed[holder], after.Holders[bucket], "bucket %d", bucket)
		}
	})
}

// TestIdleMembers: a line of one partition takes no more than 40,000 buckets if it has that
// many at first, and the member after that waits for one.
func TestIdleMembers(t *testing.T) {
	const full = 40000
	group := &Group{Initial: full, Topics: one(1)}
	holders := make([]string, full)
	for i := range holders {
		holders[i] = fmt.Sprintf("m%05d", i)
	}
	known := Claim{Group: group, Generation: 7, Holders: holders}
	var members []Member
	for _, id := range holders {
		members = append(members, Member{ID: id, Claim: Claim{Generation: -1}})
	}
	members[0].Claim = known
	members = append(members, Member{ID: "late", Claim: Claim{Generation: -1}}, Member{ID: "early", Claim: Claim{Generation: -1}})
	plan, err := Assign(members, found(1))
	require.NoError(t, err)
	require.Equal(t, []string{"early", "late"}, plan["late"].Idle)
	require.Empty(t, plan["late"].Tasks)
	require.Len(t, plan["m00000"].Holders, full)
	for _, id := range holders {
		require.Len(t, plan[id].Tasks, 1)
	}

	members[0].Claim.Idle = []string{"late", "early"} // as they came
	gone := members[77].ID
	members = append(members[:77:77], members[78:]...)
	plan, err = Assign(members, found(1))
	require.NoError(t, err)
	require.Equal(t, "late", plan["early"].Holders[77], "in the place of %s", gone)
	require.Equal(t, []string{"early"}, plan["late"].Idle)
}
