package client

import (
	"math"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// withAdmin runs test with an Admin of a cluster whose topic t holds records 0 to 19, of
// which group g has committed every second, the first one not.
func withAdmin(t *testing.T, test func(t *testing.T, c *cluster, a *Admin)) {
	t.Helper()
	withCluster(t, func(t *testing.T, c *cluster) {
		c.produce("t", 0, make([]string, 20)...)
		c.ledger("g", "t", 0, func(l *fakeLedger) {
			for o := int64(1); o < 20; o += 2 {
				l.commit(run(o, o+1))
			}
		})
		a, err := NewAdmin(c.kafka())
		require.NoError(t, err)
		t.Cleanup(a.Close)
		test(t, c, a)
	})
}

func TestAdminDescribesLedgers(t *testing.T) {
	withAdmin(t, func(t *testing.T, c *cluster, a *Admin) {
		c.create("u", 2)
		c.produce("u", 1, "a", "b", "c")
		c.ledger("g", "u", 1, func(l *fakeLedger) { l.commit(run(0, 2)) })
		all, err := a.Describe(t.Context(), "g")
		require.NoError(t, err)
		require.Len(t, all, 2)
		require.Equal(t, Ledger{
			TopicPartition: TopicPartition{"t", 0}, Group: "g",
			Stable: 0, MaxCommit: 20, Gaps: 10, Open: 10, LongestGap: run(0, 1), LogEnd: 20, LeaderEpoch: -1,
		}, all[0])
		require.EqualValues(t, 10, all[0].Lag())
		require.Equal(t, "u[1] of group g: stable 2, max commit 2, 0 open in 0 gaps, log 0 to 3", all[1].String())
		require.EqualValues(t, 1, all[1].Lag())

		named, err := a.Describe(t.Context(), "g", "u")
		require.NoError(t, err)
		require.Len(t, named, 2, "with its topic named, a partition counts even if nothing is committed")
		require.EqualValues(t, -1, named[0].Stable)
	})
}

func TestAdminTurnsThePagesOfGaps(t *testing.T) {
	withAdmin(t, func(t *testing.T, _ *cluster, a *Admin) {
		var starts []int64
		for gap, err := range a.Gaps(t.Context(), "g", "t", 0, 5) {
			require.NoError(t, err)
			require.EqualValues(t, 1, gap.End-gap.Start)
			starts = append(starts, gap.Start)
		}
		require.Equal(t, []int64{6, 8, 10, 12, 14, 16, 18}, starts)

		page, err := a.GapsPage(t.Context(), "g", "t", 0, 0, 2)
		require.NoError(t, err)
		require.Equal(t, GapsPage{Stable: 0, MaxCommit: 20, Gaps: []Run{run(0, 1), run(2, 3)}, CompleteTo: 4}, page)

		for gap := range a.Gaps(t.Context(), "g", "t", 0, 0) {
			require.Equal(t, run(0, 1), gap)
			break // a caller may stop early
		}
	})
}

func TestAdminTurnsThePagesOfWhatIsPending(t *testing.T) {
	withAdmin(t, func(t *testing.T, c *cluster, a *Admin) {
		pending := func(from int64) (all []PendingCommit, err error) {
			for p, err := range a.Pending(t.Context(), "g", "t", 0, from) {
				if err != nil {
					return all, err
				}
				all = append(all, p)
			}
			return all, nil
		}
		_, err := pending(0)
		require.ErrorIs(t, err, ErrNoEcho, "a broker that does not know of it says nothing")
		require.ErrorContains(t, err, "t[0] of group g")

		held := []PendingCommit{
			{ProducerID: 7, ProducerEpoch: 1, Offset: -1, Runs: []Run{run(2, 3)}},
			{ProducerID: 5, Offset: 9, Runs: []Run{run(4, 5)}},
			{ProducerID: 7, ProducerEpoch: 1, Offset: -1, Runs: []Run{run(30, 32)}},
		}
		c.ledger("g", "t", 0, func(l *fakeLedger) { l.pending = held })
		all, err := pending(0)
		require.NoError(t, err)
		require.Equal(t, held, all)
		all, err = pending(3)
		require.NoError(t, err)
		require.Equal(t, held[1:], all)
		for p := range a.Pending(t.Context(), "g", "t", 0, 0) {
			require.Equal(t, held[0], p)
			break // a caller may stop early
		}
		_, err = pending(33)
		require.NoError(t, err)
		_, ok, err := a.PendingIn(t.Context(), "g", "t", 0, 3)
		require.NoError(t, err)
		require.False(t, ok, "the next one lies above")
		at, ok, err := a.PendingIn(t.Context(), "g", "t", 0, 4)
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, PendingCommit{ProducerID: 5, Offset: -1, Runs: []Run{run(4, 5)}}, at)
	})
}

func TestAdminCommitsAndReopens(t *testing.T) {
	withAdmin(t, func(t *testing.T, _ *cluster, a *Admin) {
		state, err := a.Commit(t.Context(), "g", "t", 0, run(4, 5), run(0, 1), run(2, 3))
		require.NoError(t, err)
		require.Equal(t, State{Stable: 6, MaxCommit: 20}, state)
		state, err = a.Reopen(t.Context(), "g", "t", 0, run(3, 4))
		require.NoError(t, err)
		require.Equal(t, State{Stable: 3, MaxCommit: 20}, state)
	})
}

func TestAdminErrorsSayWhatTheyAreAbout(t *testing.T) {
	withAdmin(t, func(t *testing.T, c *cluster, a *Admin) {
		_, err := a.Commit(t.Context(), "g", "t", 0, run(20, 21))
		require.ErrorIs(t, err, kerr.OffsetOutOfRange)
		require.ErrorContains(t, err, "commit t[0] of group g")
		_, err = a.Commit(t.Context(), "g", "t", 4, run(0, 1))
		require.ErrorIs(t, err, kerr.UnknownTopicOrPartition)
		require.ErrorContains(t, err, "partitions 0 to 0")
		_, err = a.Reopen(t.Context(), "g", "t", 0)
		require.ErrorIs(t, err, ErrBadRuns)

		c.features = nil
		plain, err := NewAdmin(c.kafka())
		require.NoError(t, err)
		defer plain.Close()
		_, err = plain.Describe(t.Context(), "g")
		require.ErrorAs(t, err, new(*FeatureError))
	})
}

func TestAdminResets(t *testing.T) {
	tp := TopicPartition{"t", 0}
	for name, tc := range map[string]struct {
		to   Position
		want int64
	}{
		"forward":             {At(9), 9},
		"earliest":            {Earliest(), 0},
		"latest":              {Latest(), 20},
		"beyond the log":      {At(math.MaxInt64), 20},
		"since a time":        {Since(time.UnixMilli(7)), 7},
		"since after the log": {Since(time.UnixMilli(99)), 20},
		"where it is":         {At(1), 1},
	} {
		t.Run(name, func(t *testing.T) {
			withAdmin(t, func(t *testing.T, c *cluster, a *Admin) {
				c.ledger("g", "t", 0, func(l *fakeLedger) { l.commit(run(0, 1)) })
				done, err := a.Reset(t.Context(), "g", tc.to, tp)
				require.NoError(t, err)
				require.Equal(t, []Reset{{TopicPartition: tp, From: 2, To: tc.want, Forgotten: 20}}, done)
				c.ledger("g", "t", 0, func(l *fakeLedger) {
					require.Equal(t, tc.want, l.stable)
					require.Equal(t, tc.want, l.maxCommit(), "no gap is left on either side")
				})
			})
		})
	}
}

func TestPositionInWords(t *testing.T) {
	require.Equal(t, "earliest", Position{}.String())
	require.Equal(t, "latest", Latest().String())
	require.Equal(t, "offset 7", At(7).String())
	require.Equal(t, "since 1970-01-01T00:00:01Z", Since(time.UnixMilli(1000)).String())
	require.Equal(t, "none", NoReset().String())
}
