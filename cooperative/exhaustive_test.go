package cooperative

import (
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// smallStep is one of the few things that can be done in a small history.
type smallStep struct {
	name string
	do   func(*model) error
}

// heldFirst is the first record that a member has acquired, or 0.
func (m *model) heldFirst(member string) Run {
	for _, offset := range m.offsets() {
		if r := m.records[offset]; r.state == Acquired && r.member == member {
			return Run{Start: offset, End: offset + 1}
		}
	}
	return Run{Start: 0, End: 1}
}

var smallSteps = []smallStep{
	{"a acquires one", func(m *model) error { return m.acquire("a", Want{MaxRecords: 1}) }},
	{"a acquires two", func(m *model) error { return m.acquire("a", Want{MaxRecords: 2}) }},
	{"b acquires two", func(m *model) error { return m.acquire("b", Want{MaxRecords: 2}) }},
	{"a accepts", func(m *model) error { return m.acknowledge("a", []Ack{{m.heldFirst("a"), Accept}}) }},
	{"a releases", func(m *model) error { return m.acknowledge("a", []Ack{{m.heldFirst("a"), Release}}) }},
	{"b rejects", func(m *model) error { return m.acknowledge("b", []Ack{{m.heldFirst("b"), Reject}}) }},
	{"a stages", func(m *model) error { return m.stage("a", []Run{m.heldFirst("a")}) }},
	{"all abort", func(m *model) error { return m.endStage([]Run{{Start: 0, End: 4}}, false) }},
	{"all commit", func(m *model) error { return m.endStage([]Run{{Start: 0, End: 4}}, true) }},
	{"a leaves", func(m *model) error { return m.leave("a", true) }},
	{"time passes", func(m *model) error { return m.tick(30_000) }},
	{"it restarts", func(m *model) error { return m.restart() }},
}

// TestAllSmallHistories goes through every history of a few steps of two members, with
// three records of a key, one of them not fed before the steps, and one without a key.
func TestAllSmallHistories(t *testing.T) {
	depth := 3
	if os.Getenv("LACUNA_LONG") == "1" {
		depth = 5
	}
	for _, mode := range []Mode{RoundRobin, KeyOrdered} {
		c := testConfig(mode)
		c.Limits.Deliveries = 2
		path := make([]int, 0, depth)
		var walk func()
		walk = func() {
			if len(path) == depth {
				playSmall(t, c, path)
				return
			}
			for i := range smallSteps {
				path = append(path, i)
				walk()
				path = path[:len(path)-1]
			}
		}
		walk()
	}
}

func playSmall(t *testing.T, c Config, path []int) {
	m := newModel(c)
	m.append(keyed("k"), keyed("k"), &Key{Null: true}, keyed("k"))
	var names []string
	for _, i := range path {
		names = append(names, smallSteps[i].name)
		err := m.feed()
		if err == nil {
			err = smallSteps[i].do(m)
		}
		require.NoError(t, err, strings.Join(names, ", "))
	}
	m.wait("c")
	require.NoError(t, m.serve(), strings.Join(names, ", "))
}
