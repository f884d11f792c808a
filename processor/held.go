package processor

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
)

// held are records that a feed has read and may not hand over: of a partition the first that
// whoever has it has not committed, and all behind it. Other partitions go on.
type held struct {
	of map[client.TopicPartition][]*kgo.Record
	n  int
}

// heldMax is how many records a feed holds before it reads no more of any partition.
const heldMax = 10_000

// add adds records that were read, those of a partition in their order.
func (h *held) add(records []*kgo.Record) {
	if h.of == nil {
		h.of = make(map[client.TopicPartition][]*kgo.Record)
	}
	for _, r := range records {
		tp := partitionOf(r)
		h.of[tp] = append(h.of[tp], r)
	}
	h.n += len(records)
}

// putBack adds records that were taken, before the others of their partitions.
func (h *held) putBack(records []*kgo.Record) {
	behind := h.of
	h.of = nil
	h.add(records)
	for tp, more := range behind {
		h.of[tp] = append(h.of[tp], more...)
	}
}

// takeAll takes everything, one partition after the other.
func (h *held) takeAll(tps []client.TopicPartition) (records []*kgo.Record) {
	for _, tp := range tps {
		records = append(records, h.of[tp]...)
	}
	clear(h.of)
	h.n = 0
	return records
}

// ledger tells what is committed.
type ledger interface {
	IsCommitted(tp client.TopicPartition, offset int64) bool
	Committed(records ...*kgo.Record) []bool
}

// takeCommitted takes of each partition what comes before the first record that is not
// committed.
func (h *held) takeCommitted(tps []client.TopicPartition, l ledger) (records []*kgo.Record) {
	for _, tp := range tps {
		of := h.of[tp]
		if len(of) == 0 || !l.IsCommitted(tp, of[0].Offset) {
			continue
		}
		n := slices.Index(l.Committed(of...), false)
		if n < 0 {
			n = len(of)
		}
		records = append(records, of[:n]...)
		h.n -= n
		if h.of[tp] = of[n:]; n == len(of) {
			delete(h.of, tp)
		}
	}
	return records
}

// bound lowers positions to what is held.
func (h *held) bound(next map[client.TopicPartition]int64) {
	for tp, of := range h.of {
		if at, ok := next[tp]; ok && len(of) > 0 {
			next[tp] = min(at, of[0].Offset)
		}
	}
}
