package keyfilter

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestAssignmentTranscripts reads as an account of a group: who joins, who leaves, and
// which slices move.
func TestAssignmentTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/assignment", func(t *testing.T, path string) {
		var a Assignment
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			before := a
			switch d.Cmd {
			case "new":
				var initial, limit int32
				d.ScanArgs(t, "initial", &initial)
				d.ScanArgs(t, "limit", &limit)
				var err error
				if a, err = NewAssignment(initial, limit); err != nil {
					return err.Error()
				}
				before = a
			case "join":
				a = a.Join(d.CmdArgs[0].Key)
			case "leave":
				a = a.Leave(d.CmdArgs[0].Key)
			default:
				d.Fatalf(t, "unknown command %s", d.Cmd)
			}
			return describe(t, before, a)
		})
	})
}

// describe writes who holds what of one partition, and how many slots changed hands.
func describe(t *testing.T, before, after Assignment) string {
	var s strings.Builder
	l := mustLine(t, 1)
	for _, member := range after.AppendMembers(nil) {
		held := after.AppendHeld(nil, member)
		if len(held) == 0 {
			fmt.Fprintf(&s, "%s idle\n", member)
			continue
		}
		fmt.Fprintf(&s, "%s:", member)
		for _, bucket := range held {
			i := after.Buckets().Interval(bucket, l)
			fmt.Fprintf(&s, " %d=[%d,%d)", bucket, i.Start, i.End)
		}
		s.WriteByte('\n')
	}
	if len(after.AppendMembers(nil)) == 0 {
		fmt.Fprintf(&s, "%d buckets, nobody\n", after.Buckets().Count())
	}
	if slices := moves(before, after, l); slices > 0 {
		fmt.Fprintf(&s, "slices moved: %d\n", slices)
	}
	return s.String()
}

// moves counts the slices that a member had not held before and holds now, however it
// came to them: the runs of points that changed hands from one member to another.
func moves(before, after Assignment, l Line) int {
	cuts := []int64{}
	for _, a := range []Assignment{before, after} {
		for bucket := range a.Buckets().Count() {
			cuts = append(cuts, a.Buckets().Interval(bucket, l).Start)
		}
	}
	slices.Sort(cuts)
	n := 0
	var lastFrom, lastTo string
	var lastBucket int32 = -1
	for _, point := range slices.Compact(cuts) {
		bucket := after.Buckets().At(point, l)
		from, to := before.Holder(before.Buckets().At(point, l)), after.Holder(bucket)
		if from != to && to != "" && (from != lastFrom || to != lastTo || bucket != lastBucket) {
			n++
		}
		lastFrom, lastTo, lastBucket = from, to, bucket
	}
	return n
}

// TestAssignmentProperties runs joins and leaves at random and holds, after each, what
// the assignment promises: everybody has a share, shares are even, and no more moves
// than that needs.
func TestAssignmentProperties(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		initial := rapid.Int32Range(1, 12).Draw(t, "initial")
		limit := initial << rapid.IntRange(0, 2).Draw(t, "doublings")
		a, err := NewAssignment(initial, limit)
		require.NoError(t, err)
		l := mustLine(t, 1)
		present := map[string]bool{}
		for range rapid.IntRange(1, 80).Draw(t, "steps") {
			member := fmt.Sprint("m", rapid.IntRange(0, 50).Draw(t, "member"))
			before, copied := a, slices.Clone(a.holders)
			wasIdle, were := slices.Contains(a.idle, member), len(a.loads())
			join := rapid.Bool().Draw(t, "join")
			change := present[member] != join
			if join {
				a = a.Join(member)
				present[member] = true
			} else {
				a = a.Leave(member)
				delete(present, member)
			}
			require.Equal(t, copied, before.holders, "the value before is as it was")
			checkAssignment(t, a, present)
			allowed := allowedMoves(before, join, member, were)
			if !change || wasIdle {
				allowed = 0
			}
			require.LessOrEqual(t, moves(before, a, l), allowed, "%v -> %v", before, a)
		}
	})
}

func checkAssignment(t *rapid.T, a Assignment, present map[string]bool) {
	require.NoError(t, a.check())
	members := a.AppendMembers(nil)
	require.Len(t, members, len(present))
	n := 0
	for _, member := range members {
		require.True(t, present[member])
		held := a.AppendHeld(nil, member)
		n += len(held)
		require.Equal(t, len(held) == 0, slices.Contains(a.AppendIdle(nil), member))
	}
	want := min(max(len(members), a.initial), a.limit)
	require.EqualValues(t, want, a.Buckets().Count())
	if len(members) > 0 {
		require.Equal(t, want, n)
	}
	again, err := RestoreAssignment(int32(a.initial), int32(a.limit), a.holders, a.idle)
	require.NoError(t, err)
	require.Equal(t, a.holders, again.holders)
}

// allowedMoves is the number of slices that a change may move at most. Below the
// initial number of members it is what an even spread needs: the rounded down share of
// one that joins, all that one had who leaves.
func allowedMoves(before Assignment, join bool, member string, were int) int {
	switch {
	case join && were < before.initial:
		return before.initial / (were + 1)
	case join:
		return 1
	case were > before.initial:
		return 2
	default:
		return len(before.AppendHeld(nil, member))
	}
}

func TestRestoreAssignmentRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		holders, idle []string
	}{
		"fewer buckets than at first":    {[]string{"a"}, nil},
		"more than the limit":            {[]string{"a", "b", "c", "d", "e"}, nil},
		"a bucket without a holder":      {[]string{"a", ""}, nil},
		"uneven":                         {[]string{"a", "b", "a"}, nil},
		"idle though there is room":      {[]string{"a", "b", "c"}, []string{"d"}},
		"idle, nobody holds anything":    {[]string{"", ""}, []string{"d"}},
		"idle and a holder":              {[]string{"a", "b", "c", "d"}, []string{"d"}},
		"idle twice":                     {[]string{"a", "b", "c", "d"}, []string{"e", "e"}},
		"a member without a name, idle":  {[]string{"a", "b", "c", "d"}, []string{""}},
		"idle while one holds more (N0)": {[]string{"a", "a"}, []string{"b"}},
	} {
		_, err := RestoreAssignment(2, 4, c.holders, c.idle)
		require.Error(t, err, name)
	}
	_, err := RestoreAssignment(3, 2, []string{"a", "b", "c"}, nil)
	require.Error(t, err)
	holders := []string{"a", "b", "c"}
	a, err := RestoreAssignment(2, 4, holders, nil)
	require.NoError(t, err)
	holders[0] = "x"
	require.Equal(t, "a", a.Holder(0), "the holders are copied")
}
