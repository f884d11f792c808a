package individualcommit

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestPendingTellsWhoHoldsWhat(t *testing.T) {
	s, w := NewState(0), new(Records)
	e := s.Found(w, ID{Group: "g"}, NewLedger(2, 0, 100), Delta{}, nil, 0)
	require.False(t, e.HasPending())
	list, next := e.Pending(0, 10)
	require.Empty(t, list)
	require.Equal(t, int64(-1), next)

	one, two := Producer{ID: 1}, Producer{ID: 2, Epoch: 3}
	s.Stage(w, e, two, StageRequest{Offset: NoOffset, Commit: []Run{{Start: 5, End: 8}, {Start: 10, End: 11}}})
	s.Stage(w, e, one, StageRequest{Offset: NoOffset, Commit: []Run{{Start: 8, End: 9}}})
	list, next = e.Pending(6, 2)
	require.Equal(t, []PendingCommit{
		{Producer: one, Offset: NoOffset, Runs: []Run{{Start: 8, End: 9}}},
		{Producer: two, Offset: NoOffset, Runs: []Run{{Start: 6, End: 8}}},
	}, list, "neighbours of two transactions are two runs")
	require.Equal(t, int64(10), next)

	d, err := e.Ledger.Decide(Request{Offset: 8}, 100)
	require.NoError(t, err)
	s.Log(w, e, d, nil, 0)
	list, _ = e.Pending(0, 10)
	require.Equal(t, []PendingCommit{
		{Producer: one, Offset: NoOffset, Runs: []Run{{Start: 8, End: 9}}},
		{Producer: two, Offset: NoOffset, Runs: []Run{{Start: 10, End: 11}}},
	}, list, "a cumulative commit has committed the rest")
}

// TestPendingCumulativeCommit: a cumulative commit is pending too, until another one comes.
func TestPendingCumulativeCommit(t *testing.T) {
	s, w := NewState(0), new(Records)
	e := s.Found(w, ID{Group: "g"}, NewLedger(2, 0, 100), Delta{}, nil, 0)
	p := Producer{ID: 1}
	s.Stage(w, e, p, StageRequest{Offset: 7})
	s.Stage(w, e, p, StageRequest{Offset: 9})
	require.True(t, e.HasPending())
	list, next := e.Pending(0, 10)
	require.Equal(t, []PendingCommit{{Producer: p, Offset: 9}}, list, "the last one counts")
	require.Equal(t, int64(-1), next)
	list, _ = e.Pending(10, 10)
	require.Empty(t, list)

	d, err := e.Ledger.Decide(Request{Offset: 4}, 100)
	require.NoError(t, err)
	s.Log(w, e, d, nil, 0)
	require.False(t, e.HasPending(), "it would change nothing any more")
	list, _ = e.Pending(0, 10)
	require.Empty(t, list)
}

// TestPendingPages: however what is pending is turned over, it is all there once.
func TestPendingPages(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		s, w := NewState(0), new(Records)
		e := s.Found(w, ID{Group: "g"}, NewLedger(0, 0, 1000), Delta{}, nil, 0)
		holders, moves := make(map[int64]Producer), make(map[Producer]int64)
		for range rapid.IntRange(0, 20).Draw(t, "commits") {
			p := Producer{ID: rapid.Int64Range(1, 4).Draw(t, "producer")}
			q := StageRequest{Offset: rapid.Int64Range(NoOffset, 60).Draw(t, "offset")}
			start := rapid.Int64Range(0, 60).Draw(t, "start")
			q.Commit = []Run{{Start: start, End: start + rapid.Int64Range(1, 5).Draw(t, "length")}}
			if e.Ledger.CheckStage(p, q.Commit, 1000) != nil {
				continue
			}
			s.Stage(w, e, p, q)
			for o := start; o < q.Commit[0].End; o++ {
				holders[o] = p
			}
			if q.Offset != NoOffset {
				moves[p] = q.Offset
			}
		}
		limit := rapid.IntRange(1, 5).Draw(t, "limit")
		gotHolders, gotMoves := make(map[int64]Producer), make(map[Producer]int64)
		for from := int64(0); from >= 0; {
			list, next := e.Pending(from, limit)
			require.True(t, slices.IsSortedFunc(list, func(a, b PendingCommit) int { return int(a.ID - b.ID) }))
			for _, c := range list {
				if c.Offset != NoOffset {
					require.NotContains(t, gotMoves, c.Producer)
					gotMoves[c.Producer] = c.Offset
				}
				for _, r := range c.Runs {
					for o := r.Start; o < r.End; o++ {
						require.NotContains(t, gotHolders, o)
						gotHolders[o] = c.Producer
					}
				}
			}
			require.True(t, next < 0 || next > from, "it goes on")
			from = next
		}
		require.Equal(t, holders, gotHolders)
		require.Equal(t, moves, gotMoves)
	})
}
