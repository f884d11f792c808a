package tests

import (
	"bytes"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// observed is all that a client can see of a broker.
type observed struct {
	topics  map[string]*observedTopic
	ledgers map[ledgerKey]wire.Ledger // of the groups that histories use
}

type observedTopic struct {
	id         [16]byte
	partitions []observedPartition
}

type observedPartition struct {
	start, end  int64
	leaderEpoch int32
	batches     []observedBatch
}

// observedBatch is a batch as it is stored, with its records that are not deleted.
type observedBatch struct {
	header  protocol.BatchHeader
	bytes   []byte
	records []observedRecord
}

type observedRecord struct {
	offset     int64
	key, value string
}

// observe reads everything.
func observe(t *testing.T, c *wire.Conn) *observed {
	o := &observed{topics: make(map[string]*observedTopic), ledgers: make(map[ledgerKey]wire.Ledger)}
	topics, err := c.Topics()
	require.NoError(t, err)
	for i := range topics {
		m := &topics[i]
		require.Zero(t, m.ErrorCode)
		if m.IsInternal {
			continue
		}
		topic := &observedTopic{id: m.TopicID, partitions: make([]observedPartition, len(m.Partitions))}
		o.topics[*m.Topic] = topic
		for j := range m.Partitions {
			at := &m.Partitions[j]
			p := &topic.partitions[at.Partition]
			p.leaderEpoch = at.LeaderEpoch
			p.read(t, c, *m.Topic, at.Partition)
			for _, group := range []string{"g0", "g1"} {
				l, err := c.Ledger(group, *m.Topic, at.Partition)
				require.NoError(t, err)
				o.ledgers[ledgerKey{group, *m.Topic, at.Partition}] = l
			}
		}
	}
	return o
}

// read reads a partition from its first offset to its last.
func (p *observedPartition) read(t *testing.T, c *wire.Conn, topic string, partition int32) {
	for next := int64(0); ; {
		resp, err := c.Do(wire.FetchRequest(topic, partition, next, 1<<20, 0))
		require.NoError(t, err)
		at, err := wire.Fetched(resp)
		if err != nil && next == 0 { // the start is not 0
			next, err = c.StartOffset(topic, partition)
			require.NoError(t, err)
			require.Positive(t, next)
			continue
		}
		require.NoError(t, err, "%s-%d from offset %d", topic, partition, next)
		p.start, p.end = at.LogStartOffset, at.HighWatermark
		for rest := at.RecordBatches; len(rest) > 0; {
			h, err := protocol.ParseBatchHeader(rest)
			require.NoError(t, err)
			require.NoError(t, protocol.VerifyCRC(&h, rest[:h.Size()]))
			p.batches = append(p.batches, newObservedBatch(t, &h, bytes.Clone(rest[:h.Size()]), p.start))
			rest, next = rest[h.Size():], h.NextOffset()
		}
		if len(at.RecordBatches) == 0 {
			require.GreaterOrEqual(t, next, p.start)
			return
		}
	}
}

func newObservedBatch(t *testing.T, h *protocol.BatchHeader, stored []byte, start int64) observedBatch {
	b := observedBatch{header: *h, bytes: stored}
	records, err := protocol.DecompressRecords(nil, h, stored, 1<<20)
	require.NoError(t, err)
	it := protocol.IterateRecords(h, records)
	for it.Next() {
		if r := it.Record(); r.Offset >= start {
			b.records = append(b.records, observedRecord{r.Offset, string(r.Key), string(r.Value)})
		}
	}
	require.NoError(t, it.Err())
	return b
}

// agrees compares with the account of what was confirmed before a crash, or else with
// that account after the change that was asked for when it crashed. It returns the one
// that agrees.
func (o *observed) agrees(c *crash) (*model, error) {
	err := o.compare(c.model, c.stopping)
	if c.change == nil {
		return c.model, err
	}
	changed := c.model.clone()
	c.change(changed)
	changedErr := o.compare(changed, c.stopping)
	switch {
	case err == nil && changedErr == nil:
		unclear := c.model.clone() // the account itself is still being kept
		unclear.unclearWhere(changed)
		return unclear, nil
	case err == nil:
		return c.model, nil
	case changedErr == nil:
		return changed, nil
	}
	return nil, fmt.Errorf("it is not what was before the last request: %w; nor what is after it: %w", err, changedErr)
}

func (o *observed) compare(m *model, stopping bool) error {
	var errs []error
	for name, t := range o.topics {
		if m.topics[name] == nil {
			errs = append(errs, fmt.Errorf("topic %s is there", name))
			continue
		}
		errs = append(errs, o.compareTopic(name, t, m, stopping))
	}
	for name := range m.topics {
		if o.topics[name] == nil {
			errs = append(errs, fmt.Errorf("topic %s is missing", name))
		}
	}
	return errors.Join(errs...)
}

func (o *observed) compareTopic(name string, t *observedTopic, m *model, stopping bool) error {
	want := m.topics[name]
	if want.id != ([16]byte{}) && want.id != t.id {
		return fmt.Errorf("topic %s has another id", name)
	}
	if len(t.partitions) != len(want.partitions) {
		return fmt.Errorf("topic %s has %d partitions, not %d", name, len(t.partitions), len(want.partitions))
	}
	var errs []error
	for i := range t.partitions {
		p := &t.partitions[i]
		err := p.compare(want.partitions[i], want.compacted, stopping)
		for _, group := range []string{"g0", "g1"} {
			key := ledgerKey{group, name, int32(i)}
			l := o.ledgers[key]
			if e := p.compareLedger(&l, m.committed(key), want.compacted); e != nil {
				err = errors.Join(err, fmt.Errorf("group %s: %w; its ledger is %+v, expected %+v", group, e, l, *m.committed(key)))
			}
		}
		if err != nil {
			errs = append(errs, fmt.Errorf("%s-%d, offsets %d to %d: %w", name, i, p.start, p.end, err))
		}
	}
	return errors.Join(errs...)
}

// compare checks the records of a partition.
func (p *observedPartition) compare(want *partitionModel, compacted, stopping bool) error {
	if p.start < want.start {
		return fmt.Errorf("it starts at %d, though the records below %d were deleted", p.start, want.start)
	}
	if p.end < want.end() {
		return fmt.Errorf("it ends at %d, before %d", p.end, want.end())
	}
	for i := range p.batches {
		if epoch := p.batches[i].header.LeaderEpoch; epoch > p.leaderEpoch || epoch == p.leaderEpoch && !stopping {
			return fmt.Errorf("its leader epoch is %d, and that of the batch at %d is %d", p.leaderEpoch, p.batches[i].header.BaseOffset, epoch)
		}
	}
	if compacted {
		return p.compareRecords(want)
	}
	return p.compareBatches(want)
}

// compareBatches checks that every batch is there as it was sent, once, and nothing else.
func (p *observedPartition) compareBatches(want *partitionModel) error {
	sure, asked := want.sure, slices.Clone(want.asked)
	for len(sure) > 0 && sure[0].next() <= p.start {
		sure = sure[1:]
	}
	next := int64(-1)
	for i := range p.batches {
		b := &p.batches[i]
		if next >= 0 && b.header.BaseOffset != next {
			return fmt.Errorf("a hole between %d and %d", next, b.header.BaseOffset)
		}
		next = b.header.NextOffset()
		if len(sure) > 0 && sure[0].base == b.header.BaseOffset {
			if !b.is(&sure[0]) {
				return fmt.Errorf("the batch at %d is not the one that was confirmed there", b.header.BaseOffset)
			}
			sure = sure[1:]
			continue
		}
		n := slices.IndexFunc(asked, func(a batchModel) bool { return b.is(&a) })
		if n < 0 {
			return fmt.Errorf("the batch at %d was never sent, or is there twice", b.header.BaseOffset)
		}
		asked = slices.Delete(asked, n, n+1)
	}
	if len(sure) > 0 {
		return fmt.Errorf("the batch at %d was confirmed and is missing", sure[0].base)
	}
	return nil
}

// is tells whether a stored batch is the one that was sent.
func (b *observedBatch) is(sent *batchModel) bool {
	stored := bytes.Clone(sent.bytes)
	protocol.SetBaseOffset(stored, b.header.BaseOffset)
	protocol.SetLeaderEpoch(stored, b.header.LeaderEpoch)
	return bytes.Equal(stored, b.bytes)
}

// compareRecords checks that of each key the last record is there, that every record is
// one that was sent, and that it is where it was confirmed.
func (p *observedPartition) compareRecords(want *partitionModel) error {
	there := make(map[int64]observedRecord)
	for i := range p.batches {
		for _, r := range p.batches[i].records {
			there[r.offset] = r
		}
	}
	last := p.last()
	sent := make(map[string]bool)
	for _, b := range want.asked {
		for _, r := range b.records() {
			sent[r.key+r.value] = true
		}
	}
	for _, b := range want.sure {
		for _, r := range b.records() {
			got, ok := there[r.offset]
			switch {
			case ok && got != r:
				return fmt.Errorf("record %d is %v, not %v", r.offset, got, r)
			case !ok && r.offset >= p.start && last[r.key] < r.offset:
				return fmt.Errorf("record %d, %v, was confirmed and is missing", r.offset, r)
			}
			delete(there, r.offset)
		}
	}
	for _, r := range there {
		if !sent[r.key+r.value] {
			return fmt.Errorf("record %d, %v, was never sent, or is there twice", r.offset, r)
		}
		delete(sent, r.key+r.value)
	}
	return nil
}

// records are those of a batch whose base is known; of any other they count from 0.
func (b *batchModel) records() (all []observedRecord) {
	h := b.header()
	records, err := protocol.DecompressRecords(nil, &h, b.bytes, 1<<20)
	if err != nil {
		panic(err) // the tests built it, or read it before
	}
	h.BaseOffset = max(b.base, 0)
	for it := protocol.IterateRecords(&h, records); it.Next(); {
		r := it.Record()
		all = append(all, observedRecord{r.Offset, string(r.Key), string(r.Value)})
	}
	return all
}

// last is the offset of the last record of each key.
func (p *observedPartition) last() map[string]int64 {
	last := make(map[string]int64)
	for i := range p.batches {
		for _, r := range p.batches[i].records {
			last[r.key] = r.offset
		}
	}
	return last
}

// compareLedger checks what a group has committed, at every offset that holds a record. In
// a compacted topic the ledger may have closed the offset of a record that was compacted
// away, and the crash brought it back; then there is a later one of its key.
func (p *observedPartition) compareLedger(l *wire.Ledger, want *commitModel, compacted bool) error {
	if l.MaxCommit > p.end {
		return fmt.Errorf("its ledger goes to %d, beyond the end of the log", l.MaxCommit)
	}
	for _, gap := range l.Gaps {
		if gap.Start < l.Stable || gap.End > l.MaxCommit || gap.Start >= gap.End {
			return fmt.Errorf("gap %v is not in its window", gap)
		}
	}
	if l.Metadata != want.metadata {
		return fmt.Errorf("its metadata is %q, not %q", l.Metadata, want.metadata)
	}
	if !want.founded && l.Stable != want.offset && !(want.unclear && l.Stable > want.offset) {
		return fmt.Errorf("its committed offset is %d, not %d", l.Stable, want.offset)
	}
	var wrong []string
	last := p.last()
	for i := range p.batches {
		b := &p.batches[i]
		for _, r := range b.records {
			if compacted && last[r.key] > r.offset {
				continue
			}
			if is, should := isCommitted(l, r.offset), want.isCommitted(r.offset); is != should {
				wrong = append(wrong, fmt.Sprintf("offset %d is committed: %v, should be: %v", r.offset, is, should))
			}
			if want.founded && r.offset == l.Stable-1 && l.LeaderEpoch != b.header.LeaderEpoch {
				wrong = append(wrong, fmt.Sprintf("the committed leader epoch is %d, that of record %d is %d", l.LeaderEpoch, r.offset, b.header.LeaderEpoch))
			}
		}
	}
	if len(wrong) > 0 {
		return errors.New(strings.Join(wrong, "; "))
	}
	return nil
}

func isCommitted(l *wire.Ledger, offset int64) bool {
	return offset < l.MaxCommit && !slices.ContainsFunc(l.Gaps, func(gap protocol.Run) bool {
		return gap.Start <= offset && offset < gap.End
	})
}
