package tests

import (
	"maps"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// model is the naive account of what a broker has confirmed.
type model struct {
	topics      map[string]*topicModel
	commits     map[ledgerKey]*commitModel
	producerIDs []int64 // given away
}

// topicModel is a topic that exists.
type topicModel struct {
	id         [16]byte // zero while it is not known
	compacted  bool
	partitions []*partitionModel
}

// partitionModel is what was appended to a partition.
type partitionModel struct {
	start int64 // everything below was deleted
	// sure are the batches that must be there, by offset; what is missing between them was
	// never confirmed.
	sure []batchModel
	// asked are those whose append was asked for and not confirmed: each of them may be
	// there, once. Those answered without being durable know their offset.
	asked []batchModel
}

// batchModel is a batch as it was sent.
type batchModel struct {
	base  int64 // -1: not known
	bytes []byte
}

func (b *batchModel) header() protocol.BatchHeader {
	h, err := protocol.ParseBatchHeader(b.bytes)
	if err != nil {
		panic(err) // the tests built it
	}
	return h
}

func (b *batchModel) next() int64 {
	h := b.header()
	return b.base + int64(h.LastOffsetDelta) + 1
}

// end is one past the last record that must be there.
func (p *partitionModel) end() int64 {
	if n := len(p.sure); n > 0 {
		return p.sure[n-1].next()
	}
	return 0
}

// promote makes sure of what was answered below an offset that is durable.
func (p *partitionModel) promote(below int64) {
	p.asked = slices.DeleteFunc(p.asked, func(b batchModel) bool {
		durable := b.base >= 0 && b.base < below
		if durable {
			p.sure = append(p.sure, b)
		}
		return durable
	})
	slices.SortFunc(p.sure, func(a, b batchModel) int { return int(a.base - b.base) })
}

// ledgerKey names what a group has committed of a partition.
type ledgerKey struct {
	group, topic string
	partition    int32
}

// commitModel is what a group has committed of a partition.
type commitModel struct {
	offset    int64 // while there is no ledger; -1: nothing
	metadata  string
	founded   bool
	committed []bool // the ledger, up to its max commit offset
	// unclear: it crashed while the ledger was founded, and what is committed since is the
	// same with one and without.
	unclear bool
}

// stable is the first offset that is open.
func (c *commitModel) stable() int64 {
	if !c.founded {
		return c.offset
	}
	if i := slices.Index(c.committed, false); i >= 0 {
		return int64(i)
	}
	return int64(len(c.committed))
}

// isCommitted tells whether an offset is.
func (c *commitModel) isCommitted(offset int64) bool {
	if !c.founded {
		return offset < c.offset
	}
	return offset < int64(len(c.committed)) && c.committed[offset]
}

func (c *commitModel) individually(runs []protocol.Run, logStart int64) {
	if !c.founded {
		c.founded = true
		c.mark(0, max(c.offset, logStart), true)
	}
	for _, r := range runs {
		c.mark(r.Start, r.End, true)
	}
}

func (c *commitModel) reopen(runs []protocol.Run) {
	for _, r := range runs {
		c.mark(r.Start, min(r.End, int64(len(c.committed))), false)
	}
}

func (c *commitModel) cumulatively(offset int64, metadata string) {
	c.metadata = metadata
	switch {
	case !c.founded:
		c.offset = offset
	case offset < c.stable(): // a rewind
		c.committed = c.committed[:offset]
	default:
		c.mark(0, offset, true)
	}
}

func (c *commitModel) mark(from, to int64, committed bool) {
	for int64(len(c.committed)) < to {
		c.committed = append(c.committed, false)
	}
	for i := from; i < to; i++ {
		c.committed[i] = committed
	}
}

// see takes in a ledger as it is.
func (c *commitModel) see(l *wire.Ledger) {
	c.founded, c.committed = true, make([]bool, l.MaxCommit)
	for i := range c.committed {
		c.committed[i] = isCommitted(l, int64(i))
	}
}

// unclearWhere notes which ledgers there may be, since a change that may have happened
// founds them. A ledger closes the offsets that hold no record, and so may go further than
// what was committed without one.
func (m *model) unclearWhere(changed *model) {
	for key, c := range changed.commits {
		if c.founded && !m.committed(key).founded {
			m.of(key).unclear = true
		}
	}
}

func newModel() *model {
	return &model{topics: make(map[string]*topicModel), commits: make(map[ledgerKey]*commitModel)}
}

// committed is what a group has committed of a partition, to be read only.
func (m *model) committed(key ledgerKey) *commitModel {
	if c := m.commits[key]; c != nil {
		return c
	}
	return &commitModel{offset: -1}
}

// of is what a group has committed of a partition, to be changed.
func (m *model) of(key ledgerKey) *commitModel {
	c := m.commits[key]
	if c == nil {
		c = &commitModel{offset: -1}
		m.commits[key] = c
	}
	return c
}

// deleteTopic forgets a topic and what was committed of it.
func (m *model) deleteTopic(name string) {
	delete(m.topics, name)
	maps.DeleteFunc(m.commits, func(key ledgerKey, _ *commitModel) bool { return key.topic == name })
}

func (m *model) clone() *model {
	n := newModel()
	n.producerIDs = slices.Clone(m.producerIDs)
	for name, t := range m.topics {
		t := *t
		t.partitions = slices.Clone(t.partitions)
		for i, p := range t.partitions {
			t.partitions[i] = &partitionModel{start: p.start, sure: slices.Clone(p.sure), asked: slices.Clone(p.asked)}
		}
		n.topics[name] = &t
	}
	for key, c := range m.commits {
		c := *c
		c.committed = slices.Clone(c.committed)
		n.commits[key] = &c
	}
	return n
}
