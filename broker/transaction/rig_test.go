package transaction

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

// start is when tests begin.
var start = time.UnixMilli(1_700_000_000_000)

// rig drives a State, whose time it holds, and keeps the log.
type rig struct {
	testing.TB
	state  *State
	config Config
	now    time.Time
	log    []Record
	ended  []string
	nextID int64 // the producer id given out next
}

func newRig(t testing.TB) *rig {
	config := Config{MaxTimeout: 15 * time.Minute, IDExpiration: time.Hour}
	return &rig{TB: t, state: NewState(config), config: config, now: start, nextID: 100}
}

// do runs an operation, logs what it emits, and holds the invariants and that the log makes
// the same state.
func (r *rig) do(op func(out *Output)) {
	r.Helper()
	var out Output
	op(&out)
	r.log = append(r.log, out.Records...)
	r.ended = append(r.ended, out.Ended...)
	require.NoError(r, r.state.CheckInvariants())
}

// init asks for a producer of "t", as a client would that was the expected one.
func (r *rig) init(expected Producer) (p Producer, err *kerr.Error) {
	r.Helper()
	req := &InitRequest{TransactionalID: "t", TimeoutMs: 60_000, Expected: expected, NewID: -1}
	if r.state.WantsProducerID("t", expected) {
		req.NewID = r.newID()
	}
	r.do(func(out *Output) { p, err = r.state.InitProducerID(r.now, req, out) })
	return p, err
}

func (r *rig) newID() int64 {
	r.nextID++
	return r.nextID - 1
}

func (r *rig) add(p Producer, version int8, partitions ...TopicPartition) (err *kerr.Error) {
	r.Helper()
	req := &AddRequest{TransactionalID: "t", Producer: p, Version: version, Partitions: partitions}
	r.do(func(out *Output) { err = r.state.AddPartitions(r.now, req, out) })
	return err
}

func (r *rig) end(p Producer, version int8, commit bool) (next Producer, err *kerr.Error) {
	r.Helper()
	req := &EndRequest{TransactionalID: "t", Producer: p, Version: version, Commit: commit, NewID: -1}
	if version >= 2 && r.state.EndWantsProducerID("t") {
		req.NewID = r.newID()
	}
	r.do(func(out *Output) { next, err = r.state.End(r.now, req, out) })
	return next, err
}

// complete writes the markers of "t", and returns what they were.
func (r *rig) complete() Completion {
	r.Helper()
	c, ok := r.state.Completion("t")
	require.True(r, ok, "no markers to write")
	r.do(func(out *Output) { r.state.Complete(r.now, "t", c.Producer, out) })
	return c
}

func (r *rig) tick() {
	r.Helper()
	r.do(func(out *Output) { r.state.Tick(r.now, out) })
}

// restart replays the log.
func (r *rig) restart() {
	r.Helper()
	r.state = NewState(r.config)
	for _, rec := range r.log {
		require.NoError(r, r.state.Apply(rec.Key, rec.Value))
	}
	require.NoError(r, r.state.CheckInvariants())
}

func (r *rig) describe() Description {
	r.Helper()
	d, ok := r.state.Describe("t")
	require.True(r, ok)
	return d
}

// mustInit expects a producer.
func (r *rig) mustInit(expected Producer) Producer {
	r.Helper()
	p, err := r.init(expected)
	require.Nil(r, err)
	return p
}

// mustBegin begins a transaction of p with one partition.
func (r *rig) mustBegin(p Producer, version int8) {
	r.Helper()
	require.Nil(r, r.add(p, version, a0))
}

// setProducer brings "t" to an epoch that would take long to reach.
func (r *rig) setProducer(p Producer) {
	r.Helper()
	v := r.state.ids["t"].value
	v.producer, v.previousID = p, p.ID
	r.do(func(out *Output) { r.state.emit("t", &v, out) })
}

var (
	a0 = TopicPartition{Topic: "a", Partition: 0}
	a1 = TopicPartition{Topic: "a", Partition: 1}
	b0 = TopicPartition{Topic: "b", Partition: 0}
)
