package tests

import (
	"bytes"
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// writer is an idempotent producer, which writes to the topics that are not compacted.
type writer struct {
	id   int64
	next map[partitionOf]int32      // sequence number
	last map[partitionOf]batchModel // to be sent again
}

// partitionOf names a partition of a topic that may be deleted and made anew.
type partitionOf struct {
	topic     [16]byte
	partition int32
}

// step does one random thing.
func (h *history) step() {
	names := h.names()
	if len(names) == 0 {
		h.createTopic("t0")
		return
	}
	name := names[h.rng.IntN(len(names))]
	t := h.mu.model.topics[name]
	partition := int32(h.rng.IntN(len(t.partitions)))
	switch k := h.rng.IntN(100); {
	case k < 35:
		h.produce(name, partition, -1)
	case k < 40:
		h.produce(name, partition, 1)
	case k < 50 && !t.compacted:
		h.produceIdempotently(name, partition)
	case k < 70:
		h.commitIndividually(h.key(name, partition))
	case k < 77:
		h.commitCumulatively(h.key(name, partition))
	case k < 83:
		h.reopen(h.key(name, partition))
	case k < 87:
		h.createTopic(fmt.Sprint("t", h.rng.IntN(3)))
	case k < 89:
		h.deleteTopic(name)
	case k < 92 && !t.compacted:
		h.deleteRecords(name, partition)
	case k < 95:
		h.newWriter()
	case h.inject == nil:
		h.t.Log("stop and start")
		h.stop()
		h.start()
	}
}

func (h *history) key(topic string, partition int32) ledgerKey {
	return ledgerKey{fmt.Sprint("g", h.rng.IntN(2)), topic, partition}
}

func (h *history) createTopic(name string) {
	if h.mu.model.topics[name] != nil {
		return
	}
	t := &topicModel{compacted: h.rng.IntN(3) == 0, partitions: []*partitionModel{{}, {}}[:1+h.rng.IntN(2)]}
	settings := map[string]string{"segment.ms": fmt.Sprint(1 + h.rng.IntN(50))}
	if t.compacted {
		settings["cleanup.policy"] = "compact"
	}
	h.t.Logf("create topic %s, compacted %v, %d partitions", name, t.compacted, len(t.partitions))
	h.do(func(m *model) {
		made := *t
		made.partitions = nil
		for range t.partitions {
			made.partitions = append(made.partitions, &partitionModel{})
		}
		m.topics[name] = &made
	}, func() error { return h.conn.CreateTopic(name, int32(len(t.partitions)), settings) })
	id, err := h.conn.MakeTopic(name)
	h.must(err)
	h.update(func(m *model) { m.topics[name].id = id })
}

func (h *history) deleteTopic(name string) {
	h.t.Logf("delete topic %s", name)
	h.do(func(m *model) { m.deleteTopic(name) }, func() error { return h.conn.DeleteTopic(name) })
}

func (h *history) deleteRecords(name string, partition int32) {
	p := h.mu.model.topics[name].partitions[partition]
	before := p.start + h.rng.Int64N(max(p.end()-p.start, 0)+1)
	h.t.Logf("delete records of %s-%d below %d", name, partition, before)
	h.do(func(m *model) { m.topics[name].partitions[partition].start = before }, func() error {
		start, err := h.conn.DeleteRecords(name, partition, before)
		if err == nil {
			require.Equal(h.t, before, start)
		}
		return err
	})
}

func (h *history) batch(o protocol.BatchOptions) []byte {
	var b protocol.BatchBuilder
	o.Codec = protocol.Codec(h.rng.IntN(5))
	b.Reset(o)
	for range 1 + h.rng.IntN(5) {
		h.values++
		b.Append(fmt.Appendf(nil, "key-%d", h.rng.IntN(6)), fmt.Appendf(nil, "value-%d", h.values), nil, time.Now().UnixMilli())
	}
	batch, err := b.Build(nil)
	require.NoError(h.t, err)
	return batch
}

// produce sends a few batches in one go.
func (h *history) produce(name string, partition int32, acks int16) {
	batches := make([][]byte, 1+h.rng.IntN(3))
	for i := range batches {
		batches[i] = h.batch(protocol.PlainBatch(0))
	}
	h.send(name, partition, acks, batches)
}

// send sends batches in one go and takes their answers.
func (h *history) send(name string, partition int32, acks int16, batches [][]byte) (bases []int64) {
	h.update(func(m *model) {
		p := m.topics[name].partitions[partition]
		for _, batch := range batches {
			p.asked = append(p.asked, batchModel{base: -1, bytes: batch})
		}
	})
	for _, batch := range batches {
		h.must(h.conn.Send(wire.ProduceRequest(name, partition, acks, batch)))
	}
	for _, batch := range batches {
		resp := wire.ProduceRequest(name, partition, acks, nil).ResponseKind().(*kmsg.ProduceResponse)
		h.must(h.conn.Receive(resp))
		base, err := wire.ProducedAt(resp)
		h.must(err)
		bases = append(bases, base)
		h.t.Logf("produced to %s-%d at %d with acks=%d", name, partition, base, acks)
		h.update(func(m *model) { m.topics[name].partitions[partition].answered(batch, base, acks) })
	}
	return bases
}

// answered notes the answer to the append of a batch.
func (p *partitionModel) answered(batch []byte, base int64, acks int16) {
	for i := range p.asked {
		if b := &p.asked[i]; b.base < 0 && bytes.Equal(b.bytes, batch) {
			b.base = base
			break
		}
	}
	if acks < 0 {
		p.promote(base + 1)
	}
}

func (h *history) newWriter() {
	id, err := h.conn.ProducerID()
	h.must(err)
	for _, w := range h.writers {
		require.NotEqual(h.t, w.id, id, "a producer id was given away twice")
	}
	require.NotContains(h.t, h.mu.model.producerIDs, id, "a producer id was given away twice")
	h.writers = append(h.writers, &writer{id: id, next: make(map[partitionOf]int32), last: make(map[partitionOf]batchModel)})
	h.update(func(m *model) { m.producerIDs = append(m.producerIDs, id) })
}

// produceIdempotently sends a new batch of an idempotent producer, or its last one again.
func (h *history) produceIdempotently(name string, partition int32) {
	if len(h.writers) == 0 {
		h.newWriter()
	}
	w := h.writers[h.rng.IntN(len(h.writers))]
	at := partitionOf{h.mu.model.topics[name].id, partition}
	if last, ok := w.last[at]; ok && h.rng.IntN(3) == 0 {
		resp, err := h.conn.Do(wire.ProduceRequest(name, partition, -1, last.bytes))
		h.must(err)
		base, err := wire.ProducedAt(resp)
		h.must(err)
		require.Equal(h.t, last.base, base, "a batch sent again was not taken for what it is")
		return
	}
	batch := h.batch(protocol.BatchOptions{ProducerID: w.id, BaseSequence: w.next[at]})
	base := h.send(name, partition, -1, [][]byte{batch})[0]
	sent := batchModel{base: base, bytes: batch}
	w.last[at] = sent
	w.next[at] += int32(sent.next() - base)
}

// runs are some runs of offsets in a partition's range.
func (h *history) runs(from, to int64) []protocol.Run {
	var runs []protocol.Run
	for at := from + h.rng.Int64N(4); at < to && len(runs) < 4; {
		end := min(at+1+h.rng.Int64N(5), to)
		runs = append(runs, protocol.Run{Start: at, End: end})
		at = end + 1 + h.rng.Int64N(4)
	}
	return runs
}

func (h *history) commitIndividually(key ledgerKey) {
	p := h.mu.model.topics[key.topic].partitions[key.partition]
	runs := h.runs(p.start, p.end())
	if len(runs) == 0 {
		return
	}
	start := p.start
	h.t.Logf("commit %v of %v", runs, key)
	h.do(func(m *model) { m.of(key).individually(runs, start) }, func() error {
		_, err := h.conn.CommitIndividually(key.group, key.topic, key.partition, protocol.IndividualOffsets{Commit: runs, Origin: protocol.NoOrigin})
		return err
	})
}

// commitCumulatively commits as a stock client does: forward to the end of what is known,
// back, or in between where no offset is without a record, so that it is clear what is a
// rewind.
func (h *history) commitCumulatively(key ledgerKey) {
	t := h.mu.model.topics[key.topic]
	p, c := t.partitions[key.partition], h.mu.model.committed(key)
	offset := p.end()
	switch stable := c.stable(); {
	case h.rng.IntN(2) == 0 && !t.compacted && p.start == 0:
		offset = h.rng.Int64N(p.end() + 1)
	case h.rng.IntN(3) == 0 && stable > p.start:
		offset = p.start + h.rng.Int64N(stable-p.start)
	}
	metadata := fmt.Sprint("metadata-", h.rng.IntN(100))
	h.t.Logf("commit everything below %d of %v", offset, key)
	h.do(func(m *model) { m.of(key).cumulatively(offset, metadata) }, func() error {
		return h.conn.CommitCumulatively(key.group, key.topic, key.partition, offset, metadata)
	})
}

func (h *history) reopen(key ledgerKey) {
	p, c := h.mu.model.topics[key.topic].partitions[key.partition], h.mu.model.committed(key)
	runs := h.runs(p.start, p.end())
	if len(runs) == 0 || !c.founded {
		return
	}
	h.t.Logf("reopen %v of %v", runs, key)
	h.do(func(m *model) { m.of(key).reopen(runs) }, func() error {
		_, err := h.conn.CommitIndividually(key.group, key.topic, key.partition, protocol.IndividualOffsets{Reopen: runs, Origin: protocol.NoOrigin})
		return err
	})
}
