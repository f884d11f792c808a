package transaction

import (
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"pgregory.net/rapid"
)

// TestModel drives a State by random requests beside the model of them in reference_test.go.
// After each step it also tries, on copies, every request of every producer that there may
// be: so each request is repeated at each stage, by the right producer, older and newer
// ones, and strangers. Half of the copies come from the log, which has to make no difference.
func TestModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newModel(rt)
		rt.Repeat(map[string]func(*rapid.T){
			"request":  m.request,
			"repeat":   m.repeat,
			"complete": m.complete,
			"expect":   m.expect,
			"pass":     m.pass,
			"restart":  m.restart,
			"":         m.check,
		})
	})
}

var modelIDs = []string{"t", "u"}

// model is a State, what is known of it, and its log.
type model struct {
	state  *State
	config Config
	refs   map[string]*reference
	log    []Record
	now    time.Time
	nextID int64
	last   request
	acted  string // the transactional id of the last step
	given  map[Producer]bool
}

func newModel(rt *rapid.T) *model {
	m := &model{
		config: Config{MaxTimeout: time.Minute, IDExpiration: 90 * time.Second},
		refs:   make(map[string]*reference), now: start, nextID: 100, given: make(map[Producer]bool),
	}
	m.state = NewState(m.config)
	epoch := rapid.SampledFrom([]int16{0, math.MaxInt16 - 4, math.MaxInt16 - 2, math.MaxInt16 - 1}).Draw(rt, "epoch")
	for _, id := range modelIDs {
		m.refs[id] = &reference{}
		m.carryOut(rt, request{kind: initProducer, id: id, p: None})
		ref := m.refs[id]
		ref.p.Epoch = epoch
		v := m.state.ids[id].value
		v.producer.Epoch = epoch
		m.note(func(out *Output) { m.state.emit(id, &v, out) })
	}
	return m
}

type requestKind int

const (
	initProducer requestKind = iota
	addPartitions
	verifyPartitions
	endTransaction
)

// request is any request that names a producer.
type request struct {
	kind       requestKind
	id         string
	p          Producer
	version    int8
	commit     bool
	partitions []TopicPartition
	newID      int64
}

func (r request) String() string {
	return fmt.Sprintf("%s of %s: %v, version %d, commit %v, %v, new id %d",
		[...]string{"init", "add", "verify", "end"}[r.kind], r.id, r.p, r.version, r.commit, r.partitions, r.newID)
}

func (m *model) request(rt *rapid.T) {
	id := rapid.SampledFrom(modelIDs).Draw(rt, "id")
	m.carryOut(rt, request{
		kind:       requestKind(rapid.IntRange(0, 3).Draw(rt, "kind")),
		id:         id,
		p:          rapid.SampledFrom(append(m.refs[id].producers(), m.refs[id].p, m.refs[id].p)).Draw(rt, "producer"),
		version:    rapid.SampledFrom([]int8{0, 2, 2}).Draw(rt, "version"),
		commit:     rapid.Bool().Draw(rt, "commit"),
		partitions: rapid.SampledFrom([][]TopicPartition{{a0}, {b0, a1}, {a1, a1}, {}}).Draw(rt, "partitions"),
	})
}

// repeat is a client that did not hear the answer.
func (m *model) repeat(rt *rapid.T) { m.carryOut(rt, m.last) }

// wants gives the request a new producer id if it wants one.
func (r request) wants(s *State, newID int64) request {
	r.newID = -1
	switch {
	case r.kind == initProducer && s.WantsProducerID(r.id, r.p), r.kind == endTransaction && s.EndWantsProducerID(r.id):
		r.newID = newID
	}
	return r
}

// send sends it to a State.
func (r request) send(now time.Time, s *State, out *Output) answer {
	a := answer{p: None}
	switch r.kind {
	case initProducer:
		a.p, a.err = s.InitProducerID(now, &InitRequest{
			TransactionalID: r.id, TimeoutMs: 30_000, Expected: r.p, NewID: r.newID}, out)
	case addPartitions:
		a.err = s.AddPartitions(now, &AddRequest{
			TransactionalID: r.id, Producer: r.p, Version: r.version, Partitions: r.partitions}, out)
	case verifyPartitions:
		var each []*kerr.Error
		each, a.err = s.Verify(r.id, r.p, r.partitions)
		a.missing = slices.Index(each, kerr.TransactionAbortable) >= 0
	case endTransaction:
		a.p, a.err = s.End(now, &EndRequest{
			TransactionalID: r.id, Producer: r.p, Version: r.version, Commit: r.commit, NewID: r.newID}, out)
	}
	a.ends = slices.Contains(out.Ended, r.id)
	return a
}

func (m *model) carryOut(rt *rapid.T, r request) {
	r = r.wants(m.state, m.nextID)
	if r.newID >= 0 {
		m.nextID++
	}
	m.last, m.acted = r, r.id
	want, fresh := m.refs[r.id].answer(m.now, r)
	m.note(func(out *Output) {
		require.Equal(rt, want, r.send(m.now, m.state, out), "%v", r)
		require.LessOrEqual(rt, len(out.Records), 1)
	})
	if fresh {
		require.Less(rt, want.p.Epoch, int16(math.MaxInt16), "%v", r)
		require.False(rt, m.given[want.p], "%v was given before: %v", want.p, r)
		m.given[want.p] = true
	}
}

// note moves the output to the log.
func (m *model) note(op func(out *Output)) {
	var out Output
	op(&out)
	m.log = append(m.log, out.Records...)
}

// complete writes the markers of a transaction, or reports those of one long past.
func (m *model) complete(rt *rapid.T) {
	id := rapid.SampledFrom(modelIDs).Draw(rt, "id")
	m.acted = id
	ref := m.refs[id]
	c, ok := m.state.Completion(id)
	require.Equal(rt, ref.status.ending(), ok)
	require.Equal(rt, ok, slices.Contains(m.state.Ending(), id))
	if !ok {
		m.note(func(out *Output) {
			m.state.Complete(m.now, id, ref.p, out)
			require.Empty(rt, out.Records)
		})
		return
	}
	require.Equal(rt, Completion{
		Producer: ref.p, Version: ref.version, Commit: ref.status == PrepareCommit, Partitions: ref.partitions}, c)
	ref.complete(m.now)
	m.note(func(out *Output) { m.state.Complete(m.now, id, c.Producer, out) })
}

func (m *model) expect(rt *rapid.T) {
	id := rapid.SampledFrom(modelIDs).Draw(rt, "id")
	m.acted = id
	m.state.Expect(id, []TopicPartition{a1})
	if ref := m.refs[id]; ref.exists {
		ref.expected = []TopicPartition{a1}
	}
}

func (m *model) restart(*rapid.T) {
	m.state = m.replayed()
	for _, ref := range m.refs {
		ref.expected = nil
	}
}

func (m *model) pass(rt *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.Int64Range(0, 50_000).Draw(rt, "ms")) * time.Millisecond)
	for _, ref := range m.refs {
		ref.tick(m.now, m.config)
	}
	m.note(func(out *Output) { m.state.Tick(m.now, out) })
}

// check is called after each step.
func (m *model) check(rt *rapid.T) {
	replayed := m.replayed()
	m.requireAs(rt, m.state)
	m.requireAs(rt, replayed)
	ref := m.refs[m.acted]
	tried := []*State{m.state, replayed}
	for i, r := range every(m.acted, ref.producers()) {
		s, ref := tried[i%2].copy(), *ref
		ref.expected = nil // which is not logged
		var out Output
		r = r.wants(s, m.nextID)
		want, _ := ref.answer(m.now, r)
		if got := r.send(m.now, s, &out); got != want {
			require.Equal(rt, want, got, "%v", r)
		}
		ref.requireAs(rt, s, m.acted)
	}
}

func (m *model) requireAs(rt *rapid.T, s *State) {
	require.NoError(rt, s.CheckInvariants())
	due, some := int64(math.MaxInt64), false
	for id, ref := range m.refs {
		ref.requireAs(rt, s, id)
		if at, ok := ref.due(m.config); ok {
			due, some = min(due, at), true
		}
		for _, tp := range []TopicPartition{a0, a1, b0} {
			if want := ref.status == Ongoing && slices.Contains(ref.partitions, tp); s.Ongoing(id, ref.p, tp) != want {
				require.Fail(rt, "Ongoing", "%v in %s: %v", tp, id, !want)
			}
		}
	}
	at, ok := s.NextDeadline()
	require.Equal(rt, some, ok)
	if ok {
		require.Equal(rt, due, at.UnixMilli())
	}
}

// replayed is a State that was loaded from the log.
func (m *model) replayed() *State {
	s := NewState(m.config)
	for _, r := range m.log {
		if err := s.Apply(r.Key, r.Value); err != nil {
			panic(err)
		}
	}
	return s
}

func (s *State) copy() *State {
	c := NewState(s.config)
	for id, e := range s.ids {
		c.set(id, &e.value)
	}
	return c
}

// requireAs holds that a transactional id is described as it should be.
func (r *reference) requireAs(rt *rapid.T, s *State, id string) {
	got, exists := s.Describe(id)
	want := Description{Producer: r.p, Status: r.status, TimeoutMs: r.timeoutMs, StartMs: r.startMs, Partitions: r.partitions}
	if !r.exists {
		want = Description{}
	}
	if exists != r.exists || got.Producer != want.Producer || got.Status != want.Status ||
		got.TimeoutMs != want.TimeoutMs || got.StartMs != want.StartMs || !slices.Equal(got.Partitions, want.Partitions) {
		require.Equal(rt, want, got)
	}
}

// every lists all requests that the producers might send.
func every(id string, producers []Producer) []request {
	var list []request
	for _, p := range producers {
		list = append(list,
			request{kind: initProducer, id: id, p: p},
			request{kind: addPartitions, id: id, p: p, version: 2, partitions: []TopicPartition{a0, b0}},
			request{kind: verifyPartitions, id: id, p: p, partitions: []TopicPartition{a0, b0}})
		for _, commit := range []bool{false, true} {
			for _, version := range []int8{0, 2} {
				list = append(list, request{kind: endTransaction, id: id, p: p, version: version, commit: commit})
			}
		}
	}
	return list
}
