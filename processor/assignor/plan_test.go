package assignor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestAnIdleMemberWithAStateOnDisk(t *testing.T) {
	group := &Group{Initial: 1, Partitions: map[string]int32{"in": 1}}
	plan, err := Assign([]Member{{ID: "w", Claim: Claim{Group: group, Generation: 3, Holders: []string{"gone"}, Idle: []string{"w"}, OnDisk: []int32{0}}}},
		map[string]int32{"in": 1})
	require.NoError(t, err)
	require.Equal(t, []string{"w"}, plan["w"].Holders)
	require.Empty(t, plan["w"].Idle)
}

// The generations of a group begin anew when the broker has forgotten it.
func TestAPlanOnDiskIsOlderThanTheOneThatIsLived(t *testing.T) {
	lived := Claim{Group: &Group{Initial: 2, Partitions: map[string]int32{"in": 1}}, Generation: 2, Holders: []string{"a", "b"}}
	stale := Claim{Group: &Group{Initial: 1, Partitions: map[string]int32{"in": 1}}, Generation: 40, Holders: []string{"x", "y", "z"}}
	plan, err := Assign([]Member{{ID: "a", Claim: lived}, {ID: "b", Claim: lived}, {ID: "c", Claim: stale}}, map[string]int32{"in": 1})
	require.NoError(t, err)
	require.EqualValues(t, 2, plan["a"].Group.Initial)
	require.Equal(t, []string{"a", "b", "c"}, plan["a"].Holders)
}
