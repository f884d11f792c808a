package assignor

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func aClaim() Claim {
	return Claim{
		Name: "host", Initial: 3, Generation: 8, Group: &Group{Initial: 2, Topics: map[string]Topic{
			"in": {ID: [16]byte{7}, Partitions: 4, Fold: 2, Grown: [][]int64{{1 << 40, 3}}}, "other": {Partitions: 1, Fold: 1}}},
		Holders: []string{"a", "b"}, Idle: []string{"c"}, OnDisk: []Stored{{0, -1}, {7, 90}},
		Tasks: []TaskState{{Bucket: 1, Active: Area{{0, 3}, {5, 131072}}, Rebuild: Area{{3, 5}}, Ready: Area{{3, 4}}, Lag: 12,
			Reached: []Reached{{"in", Slots{3, 7, 65535}, 1 << 40}}}},
	}
}

func anAssignment() Assignment {
	return Assignment{
		Group:   Group{Initial: 2, Topics: map[string]Topic{"in": {ID: [16]byte{7}, Partitions: 6, Fold: 1, Grown: [][]int64{{0, 9}, {1, 12, 5}}}}},
		Holders: []string{"a", "b"}, Idle: []string{"c"},
		Tasks: []Task{{Bucket: 0, Active: Area{{0, 3}}}, {Bucket: 9, Rebuild: Area{{3, 5}}}},
	}
}

func TestWhatIsSaidIsRead(t *testing.T) {
	for _, c := range []Claim{aClaim(), {Generation: -1}, {Name: "new", Initial: 65536, Generation: -1, OnDisk: []Stored{{3, 0}}}} {
		read, err := DecodeClaim(AppendClaim(nil, &c))
		require.NoError(t, err)
		require.Equal(t, c, read)
	}
	a := anAssignment()
	read, err := DecodeAssignment(AppendAssignment(nil, &a))
	require.NoError(t, err)
	require.Equal(t, a, read)
}

// TestCutShort: no beginning of the bytes is something whole, nor are they with more behind.
func TestCutShort(t *testing.T) {
	c, a := aClaim(), anAssignment()
	for name, whole := range map[string][]byte{"claim": AppendClaim(nil, &c), "assignment": AppendAssignment(nil, &a)} {
		decode := func(b []byte) (err error) {
			if _, err = DecodeClaim(b); name == "assignment" {
				_, err = DecodeAssignment(b)
			}
			return err
		}
		require.NoError(t, decode(whole))
		for n := range whole {
			require.ErrorIs(t, decode(whole[:n]), ErrMalformed, "%d bytes of a %s", n, name)
		}
		require.ErrorIs(t, decode(append(whole, 0)), ErrMalformed)
	}
}

// FuzzAssign: whatever a member says, the leader reads it or refuses it, and what it then
// assigns gives no unit to two.
func FuzzAssign(f *testing.F) {
	c := aClaim()
	f.Add(AppendClaim(nil, &c))
	c = Claim{Generation: -1}
	f.Add(AppendClaim(nil, &c))
	f.Fuzz(func(t *testing.T, b []byte) {
		claim, err := DecodeClaim(b)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := DecodeClaim(AppendClaim(nil, &claim))
		require.NoError(t, err)
		require.Equal(t, claim, again)
		plan, err := Assign([]Member{{ID: "a", Claim: claim}, {ID: "b", Claim: aClaim()}}, map[string]Input{"in": {ID: [16]byte{7}, Partitions: 6, Ends: []int64{1 << 41, 3, 9, 9}}})
		if err != nil {
			return
		}
		var all Area
		for _, a := range plan {
			for _, task := range a.Tasks {
				require.Empty(t, all.Intersect(task.Active))
				all = all.Union(task.Active)
			}
		}
	})
}

func FuzzDecodeAssignment(f *testing.F) {
	a := anAssignment()
	f.Add(AppendAssignment(nil, &a))
	f.Fuzz(func(t *testing.T, b []byte) {
		a, err := DecodeAssignment(b)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformed)
			return
		}
		again, err := DecodeAssignment(AppendAssignment(nil, &a))
		require.NoError(t, err)
		require.Equal(t, a, again)
	})
}
