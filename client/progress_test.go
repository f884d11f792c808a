package client

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// reading drives a progress as a Reader does, over a log that has a record at every
// offset below end.
type reading struct {
	progress
	end    int64
	chunks []chunk
	got    []int64 // every offset delivered, in order
}

// fetch asks for up to n offsets from where the progress wants them.
func (r *reading) fetch(n int64) {
	from := r.next()
	next := min(from+n, max(r.end, from))
	if r.fetched(r.generation, next) {
		r.chunks = append(r.chunks, r.chunk(from, next))
	}
}

func (r *reading) chunk(from, next int64) chunk {
	return chunk{generation: r.generation, next: next, records: recordsBetween(from, next)}
}

// poll delivers what was fetched.
func (r *reading) poll() (got []int64) {
	for _, c := range r.chunks {
		if c.generation != r.generation {
			continue
		}
		for _, record := range c.records {
			if r.wants(record.Offset) {
				got = append(got, record.Offset)
			}
		}
		r.delivered(c.next)
	}
	r.chunks = nil
	r.got = append(r.got, got...)
	return got
}

// catchUp fetches and delivers until there is nothing left.
func (r *reading) catchUp() (got []int64) {
	for r.next() < r.end {
		r.fetch(7)
		got = append(got, r.poll()...)
	}
	return got
}

func view(stable int64, committed ...Run) *ledgerView {
	v := &ledgerView{stable: stable}
	for _, r := range committed {
		v.closed.Add(r)
	}
	return v
}

func TestProgressDeliversGapsFirstThenWhatIsNew(t *testing.T) {
	r := &reading{end: 12}
	r.startFrom(view(3, run(4, 6), run(8, 9)))
	require.Equal(t, []int64{3, 6, 7, 9, 10, 11}, r.catchUp())
}

func TestProgressJumpsFromGapToGap(t *testing.T) {
	var p progress
	p.startFrom(view(10, run(11, 1000), run(1001, 5000)))
	require.EqualValues(t, 10, p.next())
	p.fetched(0, 40)
	require.EqualValues(t, 1000, p.next(), "nothing between 11 and 1000 is open")
	p.fetched(0, 1200)
	require.EqualValues(t, 5000, p.next())
}

func TestProgressWithinALedgerLeavesGapsBelowAlone(t *testing.T) {
	r := &reading{end: 12}
	r.startWithin(view(3, run(4, 6), run(8, 9)), 7)
	require.Equal(t, []int64{7, 9, 10, 11}, r.catchUp())
}

func TestProgressOfAllDeliversWhatIsCommittedOnce(t *testing.T) {
	r := &reading{end: 12, progress: progress{all: true}}
	r.startWithin(view(3, run(4, 6), run(8, 9)), 2)
	r.fetch(7)
	r.closing([]Run{run(7, 8)})
	require.Equal(t, []int64{2, 3, 4, 5, 6, 7, 8}, r.poll(), "also what is committed since it was fetched")
	r.redeliver([]Run{run(5, 8)})
	require.Equal(t, []int64{6, 9, 10, 11}, r.catchUp(), "once more only what is open")
}

func TestProgressTellsWhatIsCommitted(t *testing.T) {
	var p progress
	p.startFrom(view(3, run(5, 7)))
	committed := func() (offsets []int64) {
		for o := range int64(12) {
			if p.committed(o) {
				offsets = append(offsets, o)
			}
		}
		return offsets
	}
	require.Equal(t, []int64{0, 1, 2, 5, 6}, committed())
	p.closing([]Run{run(8, 10)})
	require.Equal(t, []int64{0, 1, 2, 5, 6}, committed(), "not before the answer")
	require.EqualValues(t, 7, p.maxCommit)
	p.beginRefresh()
	p.settled([]Run{run(8, 10)}, true)
	require.Equal(t, []int64{0, 1, 2, 5, 6, 8, 9}, committed())
	p.endRefresh(view(3, run(5, 6)), false)
	require.Equal(t, []int64{0, 1, 2, 5, 8, 9}, committed(), "6 was reopened; 8 and 9 were answered while the ledger was read")
	require.EqualValues(t, 10, p.maxCommit)
	p.truncate(9)
	require.Equal(t, []int64{0, 1, 2, 5, 8}, committed())
	require.EqualValues(t, 9, p.maxCommit)
}

func TestProgressDoesNotDeliverWhatWasCommittedWhileItWasFetched(t *testing.T) {
	r := &reading{end: 5}
	r.startAt(0)
	r.fetch(5)
	r.closing([]Run{run(1, 3)})
	require.Equal(t, []int64{0, 3, 4}, r.poll())
}

func TestProgressDeliversAgainWhatACommitFailedFor(t *testing.T) {
	r := &reading{end: 5}
	r.startFrom(view(0))
	r.catchUp()
	r.closing([]Run{run(1, 3)})
	r.settled([]Run{run(1, 3)}, false)
	r.redeliver([]Run{run(2, 4)})
	require.Equal(t, []int64{2, 3}, r.catchUp())
}

func TestProgressDeliversReopenedOffsetsAfterARefresh(t *testing.T) {
	r := &reading{end: 10}
	r.startFrom(view(0, run(0, 10)))
	require.Empty(t, r.catchUp())
	r.beginRefresh()
	r.endRefresh(view(2, run(4, 10)), false)
	require.Equal(t, []int64{2, 3}, r.catchUp())
}

func TestProgressLeavesOpenOffsetsThatTheCallerHoldsAlone(t *testing.T) {
	r := &reading{end: 10}
	r.startFrom(view(0))
	require.Len(t, r.catchUp(), 10)
	r.beginRefresh()
	r.endRefresh(view(0, run(5, 6)), false)
	require.Empty(t, r.catchUp(), "they were open before the refresh too")
	r.beginRefresh()
	r.endRefresh(view(0, run(5, 6)), true)
	require.Equal(t, []int64{0, 1, 2, 3, 4, 6, 7, 8, 9}, r.catchUp())
}

func TestProgressDoesNotTakeACommitOnItsWayForAReopen(t *testing.T) {
	r := &reading{end: 4}
	r.startFrom(view(0))
	r.catchUp()
	r.closing([]Run{run(1, 2)})
	r.closing([]Run{run(2, 3)})
	r.beginRefresh()
	r.settled([]Run{run(1, 2)}, true) // answered while the ledger was being read
	r.endRefresh(view(0), true)
	require.Equal(t, []int64{0, 3}, r.catchUp())
	require.False(t, r.pending.Contains(1))
	require.True(t, r.pending.Contains(2))
}

func TestProgressNoticesAStableOffsetThatFell(t *testing.T) {
	var p progress
	p.startFrom(view(5))
	require.True(t, p.raiseStable(8))
	require.False(t, p.raiseStable(7))
}

func TestProgressFollowsTheLogStart(t *testing.T) {
	r := &reading{end: 20}
	r.startFrom(view(2, run(4, 6)))
	r.fetch(3)
	r.advanceStart(10)
	require.Empty(t, r.poll(), "it was fetched before the log start moved")
	require.Equal(t, []int64{10, 11, 12, 13, 14, 15, 16, 17, 18, 19}, r.catchUp())
}

func TestProgressForgetsWhatTheLogLost(t *testing.T) {
	r := &reading{end: 10}
	r.startFrom(view(0))
	r.catchUp()
	r.closing([]Run{run(6, 9)})
	r.truncate(7)
	r.end = 9
	require.Equal(t, []int64{7, 8}, r.catchUp(), "other records live there now")
	require.True(t, r.closed.Contains(6))
	require.False(t, r.pending.Contains(7))
}

func TestProgressDropsAnAnswerOlderThanARewind(t *testing.T) {
	r := &reading{end: 10}
	r.startAt(0)
	r.catchUp()
	generation := r.generation
	r.redeliver([]Run{run(3, 5)})
	require.False(t, r.fetched(generation, 20))
	require.Equal(t, []int64{3, 4}, r.catchUp())
}

// The model below is a ledger and a Reader's knowledge of it, offset by offset.
const modelOffsets = 24

type model struct {
	reading
	committed [modelOffsets]bool // the ledger
	known     [modelOffsets]bool // the Reader has reason to know that it is committed
	due       [modelOffsets]bool // to be delivered before the end
	queued    [][]Run            // commits not answered
	delivered [modelOffsets]bool // at least once
	ever      [modelOffsets]bool // the ledger had it as committed at some time

	seen *ledgerView // what a refresh has read so far
}

func (m *model) stable() int64 {
	if i := slices.Index(m.committed[:], false); i >= 0 {
		return int64(i)
	}
	return modelOffsets
}

func (m *model) view() *ledgerView {
	v := &ledgerView{stable: m.stable()}
	for o := v.stable; o < modelOffsets; o++ {
		if m.committed[o] {
			v.closed.Add(run(o, o+1))
		}
	}
	return v
}

// check judges what was delivered.
func (m *model) check(t *rapid.T, got []int64) {
	for _, o := range got {
		if m.known[o] && (!m.all || m.delivered[o]) {
			t.Fatalf("offset %d was delivered, and the reader knew that it was committed", o)
		}
		m.due[o], m.delivered[o] = false, true
	}
}

// checkKnown judges what the progress says is committed.
func (m *model) checkKnown(t *rapid.T) {
	for o := range int64(modelOffsets) {
		m.ever[o] = m.ever[o] || m.committed[o]
		switch says := m.progress.committed(o); {
		case says && !m.ever[o]:
			t.Fatalf("offset %d was never committed", o)
		case !says && m.known[o] && !m.pending.Contains(o):
			t.Fatalf("offset %d is committed, and the reader had reason to know it", o)
		}
	}
}

// answer is that of the oldest commit.
func (m *model) answer(committed bool) {
	runs := m.queued[0]
	m.queued = m.queued[1:]
	for _, r := range runs {
		for o := r.Start; o < r.End; o++ {
			m.committed[o] = m.committed[o] || committed
			m.known[o] = committed // after a failure the reader cannot say
			m.due[o] = false       // and the caller, who holds the record, was told
		}
	}
	m.settled(runs, committed)
	if !committed {
		return
	}
	if m.raiseStable(m.stable()) && !m.refreshing {
		for o := range m.stable() {
			m.known[o], m.due[o] = true, false
		}
	}
}

func (m *model) reopen(o int64) {
	m.due[o] = m.due[o] || m.known[o] && o < m.position
	m.committed[o], m.known[o] = false, false
}

func (m *model) endRefreshing(openToo bool) {
	for o := range int64(modelOffsets) {
		closed := o < m.seen.stable || m.seen.closed.Contains(o)
		// What was reopened since it was read is not known to be committed any more.
		if closed && m.committed[o] {
			m.known[o], m.due[o] = true, false
		}
		if openToo && !closed && o < m.position && !m.pending.Contains(o) {
			m.due[o] = true
		}
	}
	m.endRefresh(m.seen, openToo)
	m.seen = nil
}

// Whatever happens in whatever order: a record is delivered unless it is committed, not
// when the Reader could know that it is, and again when it was reopened.
func TestProgressModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		m := &model{}
		m.end = modelOffsets
		for o := range m.committed {
			m.committed[o] = rapid.IntRange(0, 2).Draw(t, "committed at start") == 0
			m.known[o] = m.committed[o]
			m.due[o] = !m.committed[o]
		}
		var start int64 // of what is delivered although it is committed
		if m.all = rapid.Bool().Draw(t, "committed too"); m.all {
			start = rapid.Int64Range(0, modelOffsets).Draw(t, "start")
			clear(m.due[:start])
			m.startWithin(m.view(), start)
		} else {
			m.startFrom(m.view())
		}
		offset := rapid.Int64Range(0, modelOffsets-1)
		t.Repeat(map[string]func(*rapid.T){
			"":      m.checkKnown,
			"fetch": func(t *rapid.T) { m.fetch(rapid.Int64Range(1, 9).Draw(t, "offsets")) },
			"poll":  func(t *rapid.T) { m.check(t, m.poll()) },
			"commit": func(t *rapid.T) {
				if len(m.got) == 0 {
					t.Skip("nothing delivered")
				}
				o := rapid.SampledFrom(m.got).Draw(t, "offset")
				runs := []Run{run(o, o+1)}
				m.queued = append(m.queued, runs)
				m.closing(runs)
				m.due[o] = false
			},
			"answer": func(t *rapid.T) {
				if len(m.queued) == 0 {
					t.Skip("no commit")
				}
				m.answer(rapid.IntRange(0, 3).Draw(t, "succeeds") > 0)
			},
			"another reader commits": func(t *rapid.T) {
				o := offset.Draw(t, "offset")
				m.committed[o], m.due[o] = true, false
			},
			"an operator reopens": func(t *rapid.T) { m.reopen(offset.Draw(t, "offset")) },
			"begin a refresh": func(t *rapid.T) {
				if m.refreshing {
					t.Skip("one runs")
				}
				m.beginRefresh()
			},
			"read the ledger": func(t *rapid.T) {
				if !m.refreshing || m.seen != nil {
					t.Skip("no refresh")
				}
				m.seen = m.view()
			},
			"end the refresh": func(t *rapid.T) {
				if m.seen == nil {
					t.Skip("no refresh")
				}
				m.endRefreshing(rapid.Bool().Draw(t, "open too"))
			},
		})
		for len(m.queued) > 0 {
			m.answer(true)
		}
		for range 2 { // the first may compare with what was reopened while it ran
			if !m.refreshing {
				m.beginRefresh()
			}
			if m.seen == nil {
				m.seen = m.view()
			}
			m.endRefreshing(false)
		}
		m.check(t, m.poll())
		m.check(t, m.catchUp())
		for o := range m.due {
			if m.due[o] && !m.committed[o] {
				t.Fatalf("offset %d is open and was not delivered: %v", o, m.got)
			}
			if m.all && int64(o) >= start && !m.delivered[o] {
				t.Fatalf("offset %d was not delivered: %v", o, m.got)
			}
			if m.progress.committed(int64(o)) != m.committed[o] {
				t.Fatalf("offset %d is committed: %v, and the ledger was read last", o, m.committed[o])
			}
		}
		if v := m.view(); m.maxCommit != v.maxCommit() {
			t.Fatalf("max commit is %d, not %d", m.maxCommit, v.maxCommit())
		}
	})
}
