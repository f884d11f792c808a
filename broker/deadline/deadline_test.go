package deadline

import (
	"cmp"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestQueue compares a Queue with a list that is sorted whenever it is asked.
func TestQueue(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		type set struct {
			of    int
			at    time.Time
			first int
		}
		var (
			q       Queue[int]
			model   []set
			firsts  int
			all     = make([]Deadline[int], 8)
			seconds = rapid.Int64Range(0, 20)
			now     = time.Unix(0, 0)
		)
		find := func(of int) int { return slices.IndexFunc(model, func(s set) bool { return s.of == of }) }
		for i := range all {
			all[i].Of = i
		}
		anyOne := rapid.IntRange(0, len(all)-1)
		rt.Repeat(map[string]func(*rapid.T){
			"": func(rt *rapid.T) {
				require.NoError(rt, q.CheckInvariants())
				require.Equal(rt, len(model), q.Len())
				next, ok := q.Next()
				require.Equal(rt, len(model) > 0, ok)
				for _, s := range model {
					require.False(rt, next.After(s.at))
				}
				require.True(rt, !ok || slices.ContainsFunc(model, func(s set) bool { return next.Equal(s.at) }))
				for i := range all {
					at := find(i)
					require.Equal(rt, at >= 0, all[i].IsSet())
					if at >= 0 {
						require.Equal(rt, model[at].at, all[i].At())
					}
				}
			},
			"set": func(rt *rapid.T) {
				of, at := anyOne.Draw(rt, "of"), now.Add(time.Duration(seconds.Draw(rt, "in"))*time.Second)
				q.Set(&all[of], at)
				if i := find(of); i >= 0 {
					model[i].at = at
				} else {
					firsts++
					model = append(model, set{of, at, firsts})
				}
			},
			"clear": func(rt *rapid.T) {
				of := anyOne.Draw(rt, "of")
				q.Clear(&all[of])
				model = slices.DeleteFunc(model, func(s set) bool { return s.of == of })
			},
			"time goes by": func(rt *rapid.T) {
				now = now.Add(time.Duration(seconds.Draw(rt, "seconds")) * time.Second)
				slices.SortFunc(model, func(a, b set) int { return cmp.Or(a.at.Compare(b.at), cmp.Compare(a.first, b.first)) })
				for len(model) > 0 && !model[0].at.After(now) {
					d := q.Due(now)
					require.NotNil(rt, d)
					require.Equal(rt, model[0].of, d.Of)
					model = model[1:]
				}
				require.Nil(rt, q.Due(now))
			},
		})
	})
}

// What every heartbeat does allocates nothing.
func TestMovingADeadlineAllocatesNothing(t *testing.T) {
	var q Queue[*int]
	var d Deadline[*int]
	at := time.Unix(0, 0)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		at = at.Add(time.Second)
		q.Set(&d, at)
	}))
}
