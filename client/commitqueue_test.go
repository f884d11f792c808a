package client

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

var (
	p0 = TopicPartition{Topic: "t", Partition: 0}
	p1 = TopicPartition{Topic: "t", Partition: 1}
)

func TestCommitQueueJoinsWhatManyCommit(t *testing.T) {
	var q commitQueue
	q.add(p0, []Run{run(4, 5)}, newTicket(1))
	q.add(p0, []Run{run(3, 4)}, newTicket(1))
	q.add(p1, []Run{run(9, 10)}, newTicket(1))
	q.add(p0, []Run{run(7, 8)}, nil)
	require.Equal(t, [][]part{{
		{tp: p0, runs: []Run{run(3, 5), run(7, 8)}},
		{tp: p1, runs: []Run{run(9, 10)}},
	}}, q.requests(100))
}

func TestCommitQueueKeepsOneRunOfOffsetsInOrder(t *testing.T) {
	var q commitQueue
	for o := range int64(1000) {
		q.add(p0, []Run{run(o, o+1)}, nil)
	}
	require.Equal(t, 1, q.runs)
	require.Equal(t, [][]part{{{tp: p0, runs: []Run{run(0, 1000)}}}}, q.requests(100))
}

// Every second offset is the worst case: no request may carry more runs than a broker
// takes, and none is left out.
func TestCommitQueueSplitsUnderTheLimit(t *testing.T) {
	var q commitQueue
	for o := range int64(250) {
		q.add(p0, []Run{run(2*o, 2*o+1)}, nil)
		q.add(p1, []Run{run(2*o, 2*o+1)}, nil)
	}
	var sizes []int
	offsets := make(map[TopicPartition]int)
	for _, request := range q.requests(100) {
		size := 0
		for _, p := range request {
			size += len(p.runs)
			offsets[p.tp] += len(p.runs)
		}
		sizes = append(sizes, size)
	}
	require.Equal(t, []int{100, 100, 100, 100, 100}, sizes)
	require.Equal(t, map[TopicPartition]int{p0: 250, p1: 250}, offsets)
}

func TestCommitQueueIsEmptyAfterTake(t *testing.T) {
	var q commitQueue
	q.add(p0, []Run{run(0, 1)}, nil)
	q.markers = append(q.markers, newTicket(1))
	require.False(t, q.empty())
	taken := q.take()
	require.True(t, q.empty())
	require.Len(t, taken.requests(10), 1)
	require.Len(t, taken.markers, 1)
}

func TestTicketIsDoneWhenAllPartsAre(t *testing.T) {
	tk := newTicket(2)
	tk.settle(nil)
	select {
	case <-tk.done:
		t.Fatal("done with one of two parts")
	default:
	}
	tk.settle(ErrTruncated)
	<-tk.done
	require.ErrorIs(t, tk.err(), ErrTruncated)
}

// offsetsOf is the set that runs stand for.
func offsetsOf(runs []Run) map[int64]bool {
	set := make(map[int64]bool)
	for _, r := range runs {
		for o := r.Start; o < r.End; o++ {
			set[o] = true
		}
	}
	return set
}

func drawRuns(t *rapid.T, label string) (runs []Run) {
	for range rapid.IntRange(0, 8).Draw(t, label) {
		start := rapid.Int64Range(0, 40).Draw(t, "start")
		runs = append(runs, run(start, start+rapid.Int64Range(1, 6).Draw(t, "length")))
	}
	return runs
}

func TestNormalizeKeepsTheOffsetsAndSeparatesTheRuns(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		runs := drawRuns(t, "runs")
		want := offsetsOf(runs)
		normal, err := normalize(runs)
		require.NoError(t, err)
		require.Equal(t, want, offsetsOf(normal))
		for i := 1; i < len(normal); i++ {
			require.Greater(t, normal[i].Start, normal[i-1].End, "runs that touch are one")
		}
	})
}

func TestNormalizeRefusesWhatIsNoRun(t *testing.T) {
	for _, bad := range []Run{run(3, 3), run(4, 3), run(-1, 2)} {
		_, err := normalize([]Run{run(0, 1), bad})
		require.ErrorIs(t, err, ErrBadRuns)
	}
}
