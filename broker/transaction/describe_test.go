package transaction

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// TestList chooses transactional ids by all that ListTransactions can ask for.
func TestList(t *testing.T) {
	s := NewState(DefaultConfig())
	var out Output
	for i, id := range []string{"pay-1", "pay-2", "ship-1"} {
		p, err := s.InitProducerID(start, &InitRequest{TransactionalID: id, TimeoutMs: 1000, Expected: None, NewID: int64(i)}, &out)
		require.Nil(t, err)
		if id == "pay-2" {
			require.Nil(t, s.AddPartitions(start, &AddRequest{TransactionalID: id, Producer: p, Version: 2, Partitions: []TopicPartition{a0}}, &out))
		}
	}
	now := start.Add(5 * time.Second)
	for name, test := range map[string]struct {
		states      []string
		producerIDs []int64
		durationMs  int64
		pattern     string
		want        []string
		unknown     []string
	}{
		"all":                       {nil, nil, -1, "", []string{"pay-1", "pay-2", "ship-1"}, nil},
		"by state":                  {[]string{"Ongoing"}, nil, -1, "", []string{"pay-2"}, nil},
		"by states":                 {[]string{"Ongoing", "Empty"}, nil, -1, "", []string{"pay-1", "pay-2", "ship-1"}, nil},
		"by a state nobody is in":   {[]string{"Dead", "PrepareEpochFence"}, nil, -1, "", nil, nil},
		"by a state there is not":   {[]string{"ongoing", "Ongoing"}, nil, -1, "", []string{"pay-2"}, []string{"ongoing"}},
		"by no state there is":      {[]string{"ongoing"}, nil, -1, "", nil, []string{"ongoing"}},
		"by producer id":            {nil, []int64{0, 2, 9}, -1, "", []string{"pay-1", "ship-1"}, nil},
		"by duration":               {[]string{"Ongoing"}, nil, 4999, "", []string{"pay-2"}, nil},
		"by duration, exactly":      {[]string{"Ongoing"}, nil, 5000, "", nil, nil},
		"by duration, never begun":  {nil, nil, 5000, "", []string{"pay-1", "ship-1"}, nil},
		"by pattern":                {nil, nil, -1, "pay-.*", []string{"pay-1", "pay-2"}, nil},
		"by pattern, as a whole":    {nil, nil, -1, "pay", nil, nil},
		"by pattern of choices":     {nil, nil, -1, "pay-1|ship-1|p", []string{"pay-1", "ship-1"}, nil},
		"by pattern, without case":  {nil, nil, -1, "(?i)PAY-1", []string{"pay-1"}, nil},
		"by pattern and producerID": {nil, []int64{1}, -1, ".*2", []string{"pay-2"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			f, unknown, err := NewFilter(test.states, test.producerIDs, test.durationMs, test.pattern)
			require.Nil(t, err)
			require.Equal(t, test.unknown, unknown)
			var got []string
			for _, l := range s.List(now, &f) {
				got = append(got, l.TransactionalID)
			}
			require.Equal(t, test.want, got)
		})
	}
	for _, pattern := range []string{"(", "a)|(b", "x{1001}", `\1`} {
		_, _, err := NewFilter(nil, nil, -1, pattern)
		require.Equal(t, kerr.InvalidRegularExpression, err, pattern)
	}
	require.Equal(t, []Listed{{"pay-1", 0, Empty}, {"pay-2", 1, Ongoing}, {"ship-1", 2, Empty}}, s.List(now, &Filter{}))
}

func TestDescribe(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	require.Equal(t, Description{Producer: p, Status: Empty, TimeoutMs: 60_000, StartMs: -1}, r.describe())
	r.now = r.now.Add(time.Second)
	require.Nil(t, r.add(p, 2, b0, a1))
	require.Equal(t, Description{
		Producer: p, Status: Ongoing, TimeoutMs: 60_000, StartMs: r.now.UnixMilli(), Partitions: []TopicPartition{a1, b0},
	}, r.describe())
	for status, name := range map[Status]string{
		Empty: "Empty", Ongoing: "Ongoing", PrepareCommit: "PrepareCommit", PrepareAbort: "PrepareAbort",
		CompleteCommit: "CompleteCommit", CompleteAbort: "CompleteAbort", 9: "Status(9)",
	} {
		require.Equal(t, name, status.String())
	}
}

func TestOngoingDoesNotAllocate(t *testing.T) {
	r := newRig(t)
	p := r.mustInit(None)
	require.Nil(t, r.add(p, 2, a0, a1, b0))
	require.Zero(t, testing.AllocsPerRun(100, func() { r.state.Ongoing("t", p, a1) }))
}
