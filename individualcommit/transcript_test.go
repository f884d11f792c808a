package individualcommit

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"
)

// TestTranscripts runs the ledger's life stories in testdata/ledger. Each file is one
// partition of the internal log with one ledger; what a step logs is printed below the
// ledger as it then is. `-rewrite` writes the files anew.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/ledger", func(t *testing.T, path string) {
		s := &story{id: ID{Group: "g", Topic: [16]byte{1}}, state: NewState(0)}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			return s.run(t, d)
		})
	})
}

// story is the state of one transcript.
type story struct {
	id         ID
	state      *State
	start, end int64
	log        []Record
	now        int64
}

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	var w Records
	s.now++
	if err := s.do(d, &w); err != nil {
		return err.Error() + "\n"
	}
	logged := ""
	for _, r := range w.All() {
		s.log = append(s.log, Record{slices.Clone(r.Key), slices.Clone(r.Value)})
		logged += "  " + describe(t, r) + "\n"
	}
	e := s.state.Get(s.id)
	if e == nil {
		return "no ledger\n" + logged
	}
	if err := e.Trouble(); err != nil {
		return "in trouble: " + err.Error() + "\n" + logged
	}
	require.NoError(t, e.Ledger.CheckInvariants())
	return s.show(e) + logged
}

func (s *story) do(d *datadriven.TestData, w *Records) error {
	e := s.state.Get(s.id)
	switch d.Cmd {
	case "log": // the bounds of the data's log
		s.start, s.end = number(d, "start", s.start), number(d, "end", s.end)
	case "found":
		s.state.Found(w, s.id, NewLedger(number(d, "at", 0), s.start, s.end), Delta{}, nil, s.now)
	case "request":
		return s.request(d, w, e)
	case "close":
		e.Ledger.Close(number(d, "end", 0))
	case "clamp":
		s.state.Clamp(w, e, s.end)
	case "stage":
		p, runs := producer(d), ranges(d, "commit")
		if err := e.Ledger.CheckStage(p, runs, s.end); err != nil {
			return err
		}
		s.state.Stage(w, e, p, StageRequest{Offset: number(d, "offset", NoOffset), Commit: runs})
	case "end":
		s.state.EndTransaction(w, e, producer(d), d.HasArg("commit"), s.end, s.now)
	case "counts": // of a block
		s.state.LogCounts(w, e, number(d, "block", 0), []byte(strings.Join(argument(d, "value"), " ")))
	case "orphans":
		s.state.BuryOrphans(w)
	case "delete":
		s.state.Delete(w, e)
	case "ring": // a short one
		s.state.ring = int32(number(d, "positions", RingSize))
	case "replay":
		s.state = NewState(0)
		for i, r := range s.log {
			if !slices.Contains(argument(d, "without"), strconv.Itoa(i)) {
				_ = s.state.Apply(r.Key, r.Value) // an error shows as trouble
			}
		}
	}
	if e := s.state.Get(s.id); e != nil {
		e.Ledger.AdvanceStart(s.start)
	}
	return nil
}

func (s *story) request(d *datadriven.TestData, w *Records, e *Entry) error {
	delta, err := e.Ledger.Decide(Request{
		Offset: number(d, "offset", NoOffset),
		Commit: ranges(d, "commit"),
		Reopen: ranges(d, "reopen"),
	}, s.end)
	if err != nil {
		return err
	}
	if !delta.Empty() {
		s.state.Log(w, e, delta, nil, s.now)
	}
	return nil
}

func (s *story) show(e *Entry) string {
	l := e.Ledger
	out := fmt.Sprintf("stable=%d max-commit=%d gaps=%s", l.Stable(), l.MaxCommit(), list(slices.Collect(l.Gaps(0))))
	if l.Committed() != l.Stable() {
		out += fmt.Sprintf(" committed=%d", l.Committed())
	}
	if l.HasPending() {
		out += " pending=" + list(slices.Collect(l.Pending(0)))
	}
	for block, counts := range e.Counts() {
		out += fmt.Sprintf(" counts-%d=%s", block, counts)
	}
	return out + "\n"
}

// describe prints a record as `lacuna` users would want it.
func describe(t *testing.T, r Record) string {
	k, err := ParseKey(r.Key)
	require.NoError(t, err)
	name := map[KeyKind]string{KindSnapshot: "snapshot", KindDelta: fmt.Sprintf("delta %d", k.Position),
		KindPending: fmt.Sprintf("pending %d/%d", k.ProducerID, k.Counter), KindCounts: fmt.Sprintf("counts %d", k.Block),
		KindOutcome: fmt.Sprintf("outcome of %d", k.ProducerID)}[k.Kind]
	if r.Value == nil {
		return name + ": tombstone"
	}
	switch k.Kind {
	case KindSnapshot:
		snap, err := parseSnapshot(r.Value)
		require.NoError(t, err)
		return fmt.Sprintf("%s: generation %d, stable %d, committed %s", name, snap.generation,
			snap.ledger.Stable(), list(slices.Collect(snap.ledger.above.Runs(0))))
	case KindDelta:
		var c change
		require.NoError(t, c.parse(r.Value))
		return fmt.Sprintf("%s: generation %d%s", name, c.generation, describeChange(&c))
	case KindCounts:
		counts, _, err := parseCounts(r.Value)
		require.NoError(t, err)
		return fmt.Sprintf("%s: %s", name, counts)
	default:
		st, err := parseStaged(r.Value)
		require.NoError(t, err)
		return fmt.Sprintf("%s: offset %d, commit %s", name, st.offset, list(st.commit))
	}
}

func describeChange(c *change) string {
	out, m := "", c.delta.Move
	if c.floor > 0 {
		out += fmt.Sprintf(", floor %d", c.floor)
	}
	switch m.Kind {
	case MoveCommit:
		out += fmt.Sprintf(", offset %d at high watermark %d", m.To, m.From)
	case MoveRewind:
		out += fmt.Sprintf(", rewind from %d to %d", m.From, m.To)
	case MoveClamp:
		out += fmt.Sprintf(", clamp from %d to %d", m.From, m.To)
	case MoveNone:
	}
	if len(c.delta.Commit) > 0 {
		out += ", commit " + list(c.delta.Commit)
	}
	if len(c.delta.Reopen) > 0 {
		out += ", reopen " + list(c.delta.Reopen)
	}
	return out
}

func list(runs []Run) string {
	var out []string
	for _, r := range runs {
		out = append(out, fmt.Sprintf("[%d,%d)", r.Start, r.End))
	}
	return "{" + strings.Join(out, " ") + "}"
}

func argument(d *datadriven.TestData, key string) []string {
	for _, arg := range d.CmdArgs {
		if arg.Key == key {
			return arg.Vals
		}
	}
	return nil
}

func number(d *datadriven.TestData, key string, otherwise int64) int64 {
	if vals := argument(d, key); len(vals) == 1 {
		n, err := strconv.ParseInt(vals[0], 10, 64)
		if err != nil {
			d.Fatalf(nil, "%s: %v", key, err)
		}
		return n
	}
	return otherwise
}

// ranges reads runs as inclusive first-last, or single offsets: commit=(3,5-9).
func ranges(d *datadriven.TestData, key string) []Run {
	var runs []Run
	for _, val := range argument(d, key) {
		first, last, isRange := strings.Cut(val, "-")
		if !isRange {
			last = first
		}
		start, _ := strconv.ParseInt(first, 10, 64)
		end, _ := strconv.ParseInt(last, 10, 64)
		runs = append(runs, Run{Start: start, End: end + 1})
	}
	return runs
}

func producer(d *datadriven.TestData) Producer {
	return Producer{ID: number(d, "producer", 0), Epoch: int16(number(d, "epoch", 0))}
}
