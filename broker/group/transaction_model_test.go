package group

import (
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestTransactionModel commits offsets in and outside transactions, ends these, forgets
// offsets in every way there is, compacts the log, and starts again from the log alone or
// from a view and the rest of it. What is committed and pending must be what a walk
// through all that was ever logged says.
func TestTransactionModel(t *testing.T) {
	rapid.Check(t, func(rt *rapid.T) {
		m := newTxnModel()
		rt.Repeat(map[string]func(*rapid.T){
			"commit":     m.commit,
			"stage":      m.stage,
			"stage more": m.stage,
			"end":        m.end,
			"end more":   m.end,
			"delete":     m.delete,
			"topic":      m.deleteTopic,
			"expire":     m.expire,
			"clamp":      m.clamp,
			"checkpoint": func(*rapid.T) { m.checkpoint() },
			"compact":    m.compact,
			"flush":      func(*rapid.T) { m.flush() },
			"restart":    m.restart,
			"":           m.check,
		})
	})
}

// logged is a record of the log, or a marker.
type logged struct {
	record   *Record
	producer int64 // 0: in no transaction
	commit   bool  // of a marker
	gone     bool  // removed by compaction
}

func (l *logged) marker() bool { return l.record == nil }

// at is the offset's partition; the model logs no records of groups but their end.
func (l *logged) at() groupPartition {
	return groupPartition{l.record.offset.group, l.record.offset.tp}
}

func (l *logged) offset() bool { return !l.marker() && l.record.offset != nil }

// txnModel is a State with what its owner keeps for it.
type txnModel struct {
	config Config
	state  *State
	now    time.Time
	out    Output
	log    []logged
	view   map[string][]byte
	viewAt int
	dirty  map[string][]byte // what the view lags behind in
}

func newTxnModel() *txnModel {
	m := &txnModel{config: DefaultConfig(), now: time.UnixMilli(0), view: make(map[string][]byte)}
	m.config.OffsetsRetention = time.Hour
	m.state, m.dirty = m.recover(false)
	return m
}

func drawTP(rt *rapid.T) TopicPartition {
	return TopicPartition{Topic: "t", Partition: rapid.SampledFrom([]int32{0, 0, 0, 1}).Draw(rt, "partition")}
}

func drawOffset(rt *rapid.T) CommitOffset {
	return CommitOffset{
		TopicPartition: drawTP(rt), Offset: rapid.Int64Range(0, 99).Draw(rt, "offset"),
		TopicID: [16]byte{rapid.SampledFrom([]byte{0, 1, 1, 1, 2}).Draw(rt, "topic id")},
	}
}

func drawProducer(rt *rapid.T) int64 { return rapid.Int64Range(1, 3).Draw(rt, "producer") }

func (m *txnModel) commit(rt *rapid.T) {
	_, err := m.state.Commit(m.now, &CommitRequest{
		Identity: Identity{Group: drawGroup(rt), Generation: -1}, RetentionMs: -1, Offsets: []CommitOffset{drawOffset(rt)},
	}, &m.out)
	require.Nil(rt, err)
}

func (m *txnModel) stage(rt *rapid.T) {
	m.flush()
	producer := Producer{ID: drawProducer(rt), Epoch: 7}
	records, errs, err := m.state.CommitInTransaction(m.now, &TxnCommitRequest{Producer: producer, CommitRequest: CommitRequest{
		Identity: Identity{Group: drawGroup(rt), Generation: -1}, Offsets: []CommitOffset{drawOffset(rt)},
	}})
	require.Nil(rt, err)
	require.Nil(rt, errs)
	for i := range records {
		m.append(records[i])
		m.state.Apply(&records[i])
	}
	m.state.ViewChanges(m.note)
}

func (m *txnModel) end(rt *rapid.T) {
	m.flush()
	l := logged{producer: drawProducer(rt), commit: rapid.SampledFrom([]bool{true, true, false}).Draw(rt, "commit")}
	m.log = append(m.log, l)
	m.state.EndTransaction(l.producer, l.commit)
	m.state.ViewChanges(m.note)
}

func (m *txnModel) delete(rt *rapid.T) {
	g := drawGroup(rt)
	if rapid.Bool().Draw(rt, "whole") {
		if m.state.DeleteGroup(g, &m.out) == nil {
			require.NotContains(rt, m.state.groups, g)
		}
		return
	}
	tp := drawTP(rt)
	if _, err := m.state.DeleteOffsets(g, []TopicPartition{tp}, &m.out); err == nil {
		require.False(rt, m.state.HasPending(g, tp, [16]byte{}))
	}
}

// deleteTopic holds that nothing of another topic goes, and that what goes goes whole.
func (m *txnModel) deleteTopic(rt *rapid.T) {
	id := [16]byte{rapid.Byte().Filter(func(b byte) bool { return b == 1 || b == 2 }).Draw(rt, "topic id")}
	before := m.walk(m.everything())
	m.state.DeleteTopic("t", id, &m.out)
	after := m.walk(m.everything())
	for at := range before.all() {
		offsets := before.of(at)
		if slices.ContainsFunc(offsets, func(c Committed) bool { return !c.Concerns(id) }) {
			require.Equal(rt, offsets, after.of(at))
		} else {
			require.Empty(rt, after.of(at))
		}
	}
}

// expire holds that nothing goes that a transaction may set.
func (m *txnModel) expire(rt *rapid.T) {
	m.now = m.now.Add(time.Duration(rapid.IntRange(0, 90).Draw(rt, "minutes")) * time.Minute)
	before := m.walk(m.everything())
	n := len(m.out.Records)
	m.state.Expire(m.now, nil, &m.out)
	for _, r := range m.out.Records[n:] {
		for _, transaction := range before.pending {
			for at := range transaction {
				if r.offset != nil {
					require.NotEqual(rt, groupPartition{r.offset.group, r.offset.tp}, at)
				} else {
					require.NotEqual(rt, r.group.group, at.group)
				}
			}
		}
	}
}

// clamp holds that whatever transactions are committed afterwards, the outcome is the
// same but for offsets past the end.
func (m *txnModel) clamp(rt *rapid.T) {
	end := rapid.Int64Range(0, 99).Draw(rt, "end")
	var markers []logged
	for _, producer := range rapid.Permutation([]int64{1, 2, 3}).Draw(rt, "order") {
		markers = append(markers, logged{producer: producer, commit: rapid.Bool().Draw(rt, "commit")})
	}
	before := m.walk(append(m.everything(), markers...))
	m.state.Clamp(func(string, [16]byte, int32) (int64, bool) { return end, true }, &m.out)
	after := m.walk(append(m.everything(), markers...))
	require.Equal(rt, before.all(), after.all())
	for at, o := range before.committed {
		want := o.Committed
		want.Offset = min(want.Offset, end)
		require.Equal(rt, want, after.committed[at].Committed)
	}
}

func (m *txnModel) append(r Record) {
	l := logged{record: &r}
	if r.Producer != nil {
		l.producer = r.Producer.ID
	} else {
		m.note(r.Key, r.Value)
	}
	m.log = append(m.log, l)
}

// flush appends what was decided.
func (m *txnModel) flush() {
	for _, r := range m.out.Records {
		m.append(r)
	}
	m.out.Reset()
	m.state.ViewChanges(m.note)
}

func (m *txnModel) note(key, value []byte) { m.dirty[string(key)] = value }

func (m *txnModel) checkpoint() {
	// What was decided and not appended is not in dirty, nor in the log that ends here.
	for key, value := range m.dirty {
		if value == nil {
			delete(m.view, key)
		} else {
			m.view[key] = value
		}
	}
	clear(m.dirty)
	m.viewAt = len(m.log)
}

// compact removes what the cleaner of a log may: nothing that the view has not seen, nor
// from the first open transaction on. It may stop half way.
func (m *txnModel) compact(rt *rapid.T) {
	bound := rapid.IntRange(0, m.viewAt).Draw(rt, "bound")
	aborted := make(map[int]bool)
	open := make(map[int64][]int)
	for i := range m.log {
		switch l := &m.log[i]; {
		case l.marker():
			for _, j := range open[l.producer] {
				aborted[j] = !l.commit
			}
			delete(open, l.producer)
		case l.producer != 0:
			open[l.producer] = append(open[l.producer], i)
		}
	}
	for _, list := range open {
		bound = min(bound, list[0])
	}
	last := make(map[string]int)
	for i := range m.log[:bound] {
		if l := &m.log[i]; !l.marker() && !aborted[i] {
			last[string(l.record.Key)] = i
		}
	}
	left := make(map[string]bool)
	leftOf := make(map[int64]bool)
	for i := range m.log[:rapid.IntRange(0, bound).Draw(rt, "as far as")] {
		l := &m.log[i]
		if l.marker() {
			l.gone = l.gone || !leftOf[l.producer]
			delete(leftOf, l.producer)
			continue
		}
		key := string(l.record.Key)
		l.gone = l.gone || aborted[i] || last[key] > i ||
			l.record.Value == nil && !left[key] && rapid.Bool().Draw(rt, "tombstone goes")
		if !l.gone {
			left[key] = true
			leftOf[l.producer] = true
		}
	}
}

// recover makes a state of the log, and of the view if that is there.
func (m *txnModel) recover(view bool) (*State, map[string][]byte) {
	s, dirty := NewState(m.config), make(map[string][]byte)
	note := func(key, value []byte) { dirty[string(key)] = value }
	from := 0
	if view {
		from = m.viewAt
		for _, key := range slices.Sorted(maps.Keys(m.view)) {
			if !ForView([]byte(key)) {
				s.Apply(decoded([]byte(key), m.view[key], nil))
			} else if err := s.LoadView([]byte(key), m.view[key]); err != nil {
				panic(err)
			}
		}
	}
	for i := range m.log[from:] {
		switch l := &m.log[from+i]; {
		case l.gone:
			continue
		case l.marker():
			s.EndTransaction(l.producer, l.commit)
		default:
			s.Apply(decoded(l.record.Key, l.record.Value, l.record.Producer))
			if l.producer == 0 {
				note(l.record.Key, l.record.Value)
			}
		}
		s.ViewChanges(note)
	}
	s.Loaded(m.now, &Output{})
	return s, dirty
}

func decoded(key, value []byte, producer *Producer) *Record {
	r, err := DecodeRecord(key, value)
	if err != nil {
		panic(err)
	}
	r.Producer = producer
	return &r
}

func (m *txnModel) restart(rt *rapid.T) {
	m.out.Reset()
	view := rapid.Bool().Draw(rt, "with view")
	m.state, m.dirty = m.recover(view)
	if !view { // it was lost, so the first checkpoint writes all of it
		m.view, m.viewAt = make(map[string][]byte), 0
	}
}

// check is called after each step.
func (m *txnModel) check(rt *rapid.T) {
	m.walk(m.everything()).require(rt, m.state)
	want := m.walk(m.log)
	for _, view := range []bool{false, true} {
		s, _ := m.recover(view)
		want.require(rt, s)
	}
}

// everything is the log with what was decided and not appended yet.
func (m *txnModel) everything() []logged {
	all := slices.Clone(m.log)
	for i := range m.out.Records {
		l := logged{record: &m.out.Records[i]}
		if l.record.Producer != nil {
			l.producer = l.record.Producer.ID
		}
		all = append(all, l)
	}
	return all
}

// outcome is what a log leads to: of the offsets of a partition that are committed, or in
// a committed transaction, the one that stands last in it.
type outcome struct {
	committed map[groupPartition]placed
	pending   map[int64]map[groupPartition]placed
}

type placed struct {
	Committed
	place int
}

func (m *txnModel) walk(log []logged) outcome {
	o := outcome{make(map[groupPartition]placed), make(map[int64]map[groupPartition]placed)}
	for i := range log {
		switch l := &log[i]; {
		case l.marker():
			for at, p := range o.pending[l.producer] {
				if c, ok := o.committed[at]; l.commit && (!ok || c.place < p.place) {
					o.committed[at] = p
				}
			}
			delete(o.pending, l.producer)
		case !l.offset():
		case l.record.offset.value == nil:
			delete(o.committed, l.at())
			for _, transaction := range o.pending {
				delete(transaction, l.at())
			}
		case l.producer == 0:
			o.committed[l.at()] = placed{*l.record.offset.value, i}
		default:
			if o.pending[l.producer] == nil {
				o.pending[l.producer] = make(map[groupPartition]placed)
			}
			o.pending[l.producer][l.at()] = placed{*l.record.offset.value, i}
		}
	}
	return o
}

// all are the partitions of which anything is committed or pending.
func (o *outcome) all() map[groupPartition]bool {
	all := make(map[groupPartition]bool)
	for at := range o.committed {
		all[at] = true
	}
	for _, transaction := range o.pending {
		for at := range transaction {
			all[at] = true
		}
	}
	return all
}

// of are the offsets of a partition, first the committed one, then those of producers 1
// to 3.
func (o *outcome) of(at groupPartition) (list []Committed) {
	if c, ok := o.committed[at]; ok {
		list = append(list, c.Committed)
	}
	for producer := int64(1); producer <= 3; producer++ {
		if p, ok := o.pending[producer][at]; ok {
			list = append(list, p.Committed)
		}
	}
	return list
}

// require holds that a state is what the log leads to.
func (o outcome) require(rt *rapid.T, s *State) {
	require.NoError(rt, s.CheckInvariants())
	n := 0
	for at := range o.all() {
		c, ok := s.Committed(at.group, at.tp, [16]byte{})
		want, wanted := o.committed[at]
		require.Equal(rt, wanted, ok, "%v", at)
		require.Equal(rt, want.Committed, c, "%v", at)
		if ok {
			n++
		}
		pending := len(o.of(at))
		if ok {
			pending--
		}
		require.Equal(rt, pending > 0, s.HasPending(at.group, at.tp, [16]byte{}), "%v", at)
		require.Len(rt, s.groups[at.group].pending[at.tp], pending, "%v", at)
	}
	for _, id := range s.ids() {
		n -= len(s.AllCommitted(id))
	}
	require.Zero(rt, n, "offsets of partitions that have none")
}
