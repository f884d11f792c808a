package individualcommit

import (
	"maps"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// naiveLedger is a Ledger as simple as can be: one map entry per committed offset at or
// above a floor below which all are committed.
type naiveLedger struct {
	start, ahead int64
	floor        int64
	committed    map[int64]bool
	pending      map[int64]Producer
}

func newNaiveLedger() *naiveLedger {
	return &naiveLedger{committed: map[int64]bool{}, pending: map[int64]Producer{}}
}

func (n *naiveLedger) isCommitted(x int64) bool { return x < n.floor || n.committed[x] }

func (n *naiveLedger) stable() int64 {
	x := int64(0)
	for n.isCommitted(x) {
		x++
	}
	return x
}

func (n *naiveLedger) maxCommit() int64 {
	top := max(n.floor, n.ahead, n.stable())
	for x := range n.committed {
		top = max(top, x+1)
	}
	return top
}

func (n *naiveLedger) gaps(from int64) []Run {
	var gaps []Run
	for x := max(from, n.stable()); x < n.maxCommit() && n.ahead == 0; x++ {
		switch {
		case n.isCommitted(x):
		case len(gaps) > 0 && gaps[len(gaps)-1].End == x:
			gaps[len(gaps)-1].End++
		default:
			gaps = append(gaps, Run{Start: x, End: x + 1})
		}
	}
	return gaps
}

func offsets(runs []Run, each func(x int64) bool) bool {
	for _, r := range runs {
		for x := r.Start; x < r.End; x++ {
			if !each(x) {
				return false
			}
		}
	}
	return true
}

// request does what the design says of a request, and tells whether it is refused.
func (n *naiveLedger) request(q Request, highWatermark int64) bool {
	free := func(x int64) bool { _, held := n.pending[x]; return !held }
	if !offsets(q.Commit, func(x int64) bool { return x < highWatermark && free(x) }) || !offsets(q.Reopen, free) {
		return false
	}
	if q.Offset >= 0 {
		n.cumulative(q.Offset, highWatermark)
	}
	offsets(q.Commit, func(x int64) bool {
		if !n.isCommitted(x) {
			n.ahead = 0
			n.committed[x] = true
		}
		return true
	})
	offsets(q.Reopen, func(x int64) bool {
		if x >= n.start && n.isCommitted(x) {
			n.ahead = 0
			n.lower(x)
			delete(n.committed, x)
		}
		return true
	})
	return true
}

// lower makes single entries of the offsets from x up to the floor.
func (n *naiveLedger) lower(x int64) {
	for ; n.floor > x; n.floor-- {
		n.committed[n.floor-1] = true
	}
}

func (n *naiveLedger) cumulative(offset, highWatermark int64) {
	if offset < n.stable() {
		n.committed = map[int64]bool{}
		n.floor, n.ahead = max(offset, n.start), 0
		return
	}
	n.floor = max(n.floor, min(offset, highWatermark))
	n.ahead = 0
	if offset > highWatermark {
		n.ahead = offset
	}
}

func (n *naiveLedger) clamp(end int64) {
	n.lower(end)
	maps.DeleteFunc(n.committed, func(x int64, _ bool) bool { return x >= end })
	maps.DeleteFunc(n.pending, func(x int64, _ Producer) bool { return x >= end })
	if n.ahead = min(n.ahead, end); n.ahead <= n.stable() {
		n.ahead = 0
	}
}

func (n *naiveLedger) stage(p Producer, runs []Run, highWatermark int64) bool {
	ok := offsets(runs, func(x int64) bool {
		holder, held := n.pending[x]
		return x < highWatermark && ((held && holder == p) || (!held && !n.isCommitted(x)))
	})
	if ok {
		offsets(runs, func(x int64) bool { n.pending[x] = p; return true })
	}
	return ok
}

func (n *naiveLedger) requireSame(t require.TestingT, l *Ledger, top int64) {
	require.NoError(t, l.CheckInvariants())
	require.Equal(t, n.stable(), l.Stable())
	require.Equal(t, max(n.stable(), n.ahead), l.Committed())
	require.Equal(t, n.maxCommit(), l.MaxCommit())
	var pending, held []int64
	for x := range top {
		require.Equal(t, n.isCommitted(x), l.IsCommitted(x), "offset %d", x)
		p, ok := n.pending[x]
		got, gotOK := l.PendingIn(x)
		require.Equal(t, ok, gotOK, "offset %d", x)
		require.Equal(t, p, got)
		if ok {
			pending = append(pending, x)
		}
	}
	offsets(slices.Collect(l.Pending(0)), func(x int64) bool { held = append(held, x); return true })
	require.Equal(t, pending, held)
	n.requireSameGaps(t, l, top)
}

func (n *naiveLedger) requireSameGaps(t require.TestingT, l *Ledger, top int64) {
	want := n.gaps(0)
	require.EqualValues(t, len(want), l.GapCount())
	open := int64(0)
	for _, g := range want {
		open += g.End - g.Start
	}
	require.Equal(t, open, l.OpenCount())
	for _, from := range []int64{0, top / 3, top / 2} {
		first := from
		for n.isCommitted(first) {
			first++
		}
		require.Equal(t, first, l.FirstOpen(from))
		want := n.gaps(from)
		require.Equal(t, want, slices.Collect(l.Gaps(from)))
		gap, ok := l.NextGap(from)
		require.Equal(t, len(want) > 0, ok)
		if ok {
			require.Equal(t, want[0], gap)
		}
		got, next := l.AppendGaps(nil, from, 2)
		if len(want) > 2 {
			require.Equal(t, want[2].Start, next)
			want = want[:2]
		} else {
			require.EqualValues(t, -1, next)
		}
		require.Equal(t, want, got)
	}
}

const modelTop = 60 // offsets of the model's log

func drawRuns(t *rapid.T, top int64, label string) []Run {
	var runs []Run
	at := int64(-1)
	for range rapid.IntRange(0, 4).Draw(t, label) {
		start := at + rapid.Int64Range(1, 12).Draw(t, "skip")
		end := start + rapid.Int64Range(1, 9).Draw(t, "length")
		if end > top {
			break
		}
		runs = append(runs, Run{Start: start, End: end})
		at = end
	}
	return runs
}

// withoutOverlap leaves out of b what touches a, since no offset may be in both lists.
func withoutOverlap(a, b []Run) []Run {
	return slices.DeleteFunc(b, func(r Run) bool {
		return slices.ContainsFunc(a, func(o Run) bool { return r.Start < o.End && o.Start < r.End })
	})
}

// TestLedgerAgainstModel compares a ledger with a map per offset after every step, under
// everything that can happen to one.
func TestLedgerAgainstModel(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		var l Ledger
		n := newNaiveLedger()
		end := int64(0)
		producers := []Producer{{1, 0}, {1, 1}, {2, 0}}
		t.Repeat(map[string]func(*rapid.T){
			"append": func(t *rapid.T) { end = min(end+rapid.Int64Range(1, 20).Draw(t, "records"), modelTop) },
			"request": func(t *rapid.T) {
				q := Request{Offset: rapid.Int64Range(-12, end+6).Draw(t, "offset")}
				q.Offset = max(q.Offset, NoOffset)
				q.Commit = drawRuns(t, end+2, "commit")
				q.Reopen = withoutOverlap(q.Commit, drawRuns(t, modelTop, "reopen"))
				d, err := l.Decide(q, end)
				before := *n
				before.committed = maps.Clone(n.committed)
				require.Equal(t, n.request(q, end), err == nil, "%v", err)
				if err == nil && d.Empty() {
					require.Equal(t, before.ahead, n.ahead)
					require.Equal(t, before.gaps(0), n.gaps(0))
					require.Equal(t, before.stable(), n.stable())
				}
				l.Apply(d)
			},
			"start": func(t *rapid.T) {
				start := rapid.Int64Range(0, end).Draw(t, "start")
				l.AdvanceStart(start)
				n.start = max(n.start, start)
				n.floor = max(n.floor, n.start)
			},
			"close": func(t *rapid.T) {
				to := min(l.Stable()+rapid.Int64Range(0, 5).Draw(t, "absent"), end)
				require.Equal(t, to > n.stable(), l.Close(to))
				n.floor = max(n.floor, to)
			},
			"unclean stop": func(t *rapid.T) {
				end = rapid.Int64Range(n.start, end).Draw(t, "end")
				d := l.DecideClamp(end)
				past := n.maxCommit() > end
				for x := range n.pending {
					past = past || x >= end
				}
				require.Equal(t, past, !d.Empty())
				l.Apply(d)
				n.clamp(end)
			},
			"stage": func(t *rapid.T) {
				p := rapid.SampledFrom(producers).Draw(t, "producer")
				runs := drawRuns(t, end+1, "stage")
				err := l.CheckStage(p, runs, end)
				require.Equal(t, n.stage(p, runs, end), err == nil, "%v", err)
				if err == nil {
					l.Stage(p, runs)
				}
			},
			"end": func(t *rapid.T) {
				p := rapid.SampledFrom(producers).Draw(t, "producer")
				if staged := slices.Collect(l.Staged(p)); rapid.Bool().Draw(t, "commit") && len(staged) > 0 {
					l.Apply(Delta{Commit: staged})
					n.ahead = 0
					offsets(staged, func(x int64) bool { n.committed[x] = true; return true })
				}
				l.EndStage(p)
				maps.DeleteFunc(n.pending, func(_ int64, holder Producer) bool { return holder == p })
			},
			"": func(t *rapid.T) {
				if n.ahead <= n.stable() {
					n.ahead = 0
				}
				n.requireSame(t, &l, modelTop+10)
			},
		})
	})
}

// TestLedgerEnumerated tries every request and event on every ledger of a log with five
// offsets.
func TestLedgerEnumerated(t *testing.T) {
	const top = 5
	var events []func(l *Ledger, n *naiveLedger)
	for a := int64(0); a <= top+1; a++ {
		events = append(events,
			func(l *Ledger, n *naiveLedger) { request(t, l, n, Request{Offset: a}, top) },
			func(l *Ledger, n *naiveLedger) {
				l.AdvanceStart(a)
				n.start, n.floor = max(n.start, a), max(n.floor, a)
			},
			func(l *Ledger, n *naiveLedger) { l.Close(a); n.floor = max(n.floor, a) },
			func(l *Ledger, n *naiveLedger) { l.Apply(l.DecideClamp(a)); n.clamp(max(a, n.start)) },
		)
		for b := a + 1; b <= top+1; b++ {
			runs := []Run{{Start: a, End: b}}
			events = append(events,
				func(l *Ledger, n *naiveLedger) { request(t, l, n, Request{Offset: NoOffset, Commit: runs}, top) },
				func(l *Ledger, n *naiveLedger) { request(t, l, n, Request{Offset: NoOffset, Reopen: runs}, top) },
				func(l *Ledger, n *naiveLedger) { request(t, l, n, Request{Offset: 2, Reopen: runs}, top) },
			)
		}
	}
	for committed := range 1 << top {
		for start := range int64(3) {
			for _, event := range events {
				l, n := new(Ledger), newNaiveLedger()
				for x := range int64(top) {
					if committed>>x&1 == 1 {
						request(t, l, n, Request{Offset: NoOffset, Commit: []Run{{Start: x, End: x + 1}}}, top)
					}
				}
				l.AdvanceStart(start)
				n.start, n.floor = start, max(n.floor, start)
				event(l, n)
				if n.ahead <= n.stable() {
					n.ahead = 0
				}
				n.requireSame(t, l, top+3)
			}
		}
	}
}

func request(t *testing.T, l *Ledger, n *naiveLedger, q Request, highWatermark int64) {
	d, err := l.Decide(q, highWatermark)
	require.Equal(t, n.request(q, highWatermark), err == nil, "%v", err)
	l.Apply(d)
}

func TestInvalidRequests(t *testing.T) {
	for name, q := range map[string]Request{
		"negative offset": {Offset: -2},
		"empty run":       {Offset: NoOffset, Commit: []Run{{Start: 3, End: 3}}},
		"backwards":       {Offset: NoOffset, Commit: []Run{{Start: 5, End: 3}}},
		"below zero":      {Offset: NoOffset, Reopen: []Run{{Start: -1, End: 3}}},
		"out of order":    {Offset: NoOffset, Reopen: []Run{{Start: 5, End: 6}, {Start: 1, End: 2}}},
		"overlapping":     {Offset: NoOffset, Commit: []Run{{Start: 1, End: 5}, {Start: 4, End: 6}}},
	} {
		var l Ledger
		_, err := l.Decide(q, 100)
		require.ErrorIs(t, err, ErrInvalidRuns, name)
	}
}

// TestGrowth: what makes no new run may always be committed, however full the memory.
func TestGrowth(t *testing.T) {
	ledger := func() *Ledger {
		l := NewLedger(10, 0, 100)
		l.Apply(Delta{Commit: []Run{{Start: 20, End: 30}}})
		return l
	}
	commit := func(start, end int64) Delta { return Delta{Commit: []Run{{Start: start, End: end}}} }
	reopen := func(start, end int64) Delta { return Delta{Reopen: []Run{{Start: start, End: end}}} }
	for want, deltas := range map[int][]Delta{
		0: {commit(10, 11), commit(5, 12), commit(19, 20), commit(30, 31), commit(15, 25), reopen(20, 22), reopen(29, 30), reopen(9, 10)},
		1: {commit(12, 13), commit(31, 32), reopen(22, 23), reopen(3, 4)},
	} {
		for _, d := range deltas {
			l := ledger()
			require.Equal(t, want, l.Growth(d), "%+v", d)
			before := l.GapCount()
			l.Apply(d)
			require.LessOrEqual(t, l.GapCount(), before+int64(want), "%+v", d)
		}
	}
}
