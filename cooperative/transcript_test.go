package cooperative

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/keyfilter"
)

// TestTranscripts runs the life stories of partitions in testdata/dispatcher, which are
// judged by the naive model besides. `-rewrite` writes them anew.
func TestTranscripts(t *testing.T) {
	datadriven.Walk(t, "testdata/dispatcher", func(t *testing.T, path string) {
		var s story
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string { return s.run(t, d) })
	})
}

type story struct{ m *model }

func (s *story) run(t *testing.T, d *datadriven.TestData) string {
	if d.Cmd == "partition" {
		s.m = newModel(storyConfig(t, d))
		return ""
	}
	if d.HasArg("now") {
		s.m.now = number(t, d, "now", 0)
	}
	before := s.shown()
	if err := s.do(t, d); err != nil {
		return err.Error() + "\n"
	}
	require.NoError(t, s.m.feed())
	out := ""
	after := s.shown()
	for offset := range s.m.end {
		if before[offset] != after[offset] {
			out += fmt.Sprintf("%d: %s\n", offset, after[offset])
		}
	}
	if ready := s.m.d.Ready(nil); len(ready) > 0 {
		out += "ready: " + strings.Join(ready, " ") + "\n"
	}
	if out == "" {
		return "nothing\n"
	}
	return out
}

// shown is what is to be seen of each offset.
func (s *story) shown() map[int64]string {
	all := map[int64]string{}
	for offset := range s.m.end {
		e := s.m.d.Explain(offset)
		switch {
		case s.m.ledger.IsCommitted(offset):
			all[offset] = "committed"
			continue
		case e.State == Unknown:
			all[offset] = "not kept"
			continue
		}
		all[offset] = e.State.String()
		if e.Member != "" {
			all[offset] += " by " + e.Member
		}
		if e.DeadlineMs > 0 {
			all[offset] += fmt.Sprintf(" until %d", e.DeadlineMs)
		}
		if e.Deliveries > 0 {
			all[offset] += fmt.Sprintf(", deliveries=%d", e.Deliveries)
		}
		if e.Blocker != "" {
			all[offset] += ", behind " + e.Blocker
		}
	}
	return all
}

func storyConfig(t *testing.T, d *datadriven.TestData) Config {
	mode := RoundRobin
	for _, m := range benchModes {
		if d.HasArg("mode") && argument(t, d, "mode")[0] == m.name {
			mode = m.mode
		}
	}
	c := testConfig(mode)
	c.Limits.Acquired = int(number(t, d, "locks", 1000))
	c.Limits.Deliveries = int(number(t, d, "deliveries", 5))
	c.Limits.BackoffMs = number(t, d, "backoff", 0)
	c.Limits.DeadLetters = d.HasArg("dead-letters")
	for _, member := range argument(t, d, "holders") {
		c.Assignment = join(c.Assignment, member)
	}
	return c
}

func (s *story) do(t *testing.T, d *datadriven.TestData) error {
	member := strings.Join(argument(t, d, "member"), "")
	var runs []Run
	for _, o := range argument(t, d, "offsets") {
		first, last, ok := strings.Cut(o, "-")
		if !ok {
			last = first
		}
		runs = append(runs, Run{Start: parse(t, first), End: parse(t, last) + 1})
	}
	switch d.Cmd {
	case "append":
		for _, k := range strings.Fields(d.Input) {
			switch k {
			case "absent":
				s.m.append(nil)
			case "null":
				s.m.append(&Key{Null: true})
			default:
				s.m.append(&Key{Hash: keyfilter.Hash([]byte(k), 0)})
			}
		}
		s.m.closeAbsent()
	case "acquire":
		return s.m.acquire(member, Want{MaxRecords: int(number(t, d, "max", 500))})
	case "wait":
		s.m.wait(member)
	case "serve":
		return s.m.serve()
	case "accept", "release", "reject", "renew":
		var acks []Ack
		for _, r := range runs {
			acks = append(acks, Ack{r, map[string]AckType{"accept": Accept, "release": Release, "reject": Reject, "renew": Renew}[d.Cmd]})
			if o := s.m.judge(member, acks[len(acks)-1]); o != Done && len(s.m.expireDue()) == 0 {
				require.NoError(t, s.m.acknowledge(member, acks))
				return fmt.Errorf("refused: %v", []string{"", "INVALID_RECORD_STATE", "INVALID_RECORD_STATE, the bucket moved", "INVALID_REQUEST"}[o])
			}
		}
		return s.m.acknowledge(member, acks)
	case "tick":
		return s.m.tick(0)
	case "leave", "close":
		return s.m.leave(member, d.Cmd == "leave")
	case "stage":
		return s.m.stage(member, runs)
	case "commit", "abort":
		return s.m.endStage(runs, d.Cmd == "commit")
	case "dead-lettered":
		return s.m.deadLettered([]int64{runs[0].Start})
	case "restart":
		return s.m.restart()
	case "holders":
		a := testConfig(KeyRange).Assignment
		for _, h := range argument(t, d, "are") {
			a = join(a, h)
		}
		s.m.config.Assignment = a
		s.m.d.SetAssignment(a)
	default:
		t.Fatalf("%s: what is %q?", d.Pos, d.Cmd)
	}
	return nil
}

// expireDue are the offsets whose time is over.
func (m *model) expireDue() (due []int64) {
	for offset, r := range m.records {
		if (r.state == Acquired || r.state == Delayed) && r.deadline <= m.now {
			due = append(due, offset)
		}
	}
	return due
}

func argument(_ *testing.T, d *datadriven.TestData, name string) []string {
	for _, a := range d.CmdArgs {
		if a.Key == name {
			return a.Vals
		}
	}
	return nil
}

func number(t *testing.T, d *datadriven.TestData, name string, otherwise int64) int64 {
	if vals := argument(t, d, name); len(vals) > 0 {
		return parse(t, vals[0])
	}
	return otherwise
}

func parse(t *testing.T, s string) int64 {
	n, err := strconv.ParseInt(s, 10, 64)
	require.NoError(t, err)
	return n
}
