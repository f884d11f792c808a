package commitlog

import (
	"slices"

	"github.com/lacunamq/lacuna/protocol"
)

// cleanTxns follows the transactions while batches are gone through in order, as
// Kafka's CleanedTransactionMetadata does.
type cleanTxns struct {
	aborted []abortedTxn         // not begun yet, by first offset
	open    map[int64]*openAbort // begun, by producer
	commits map[int64]bool       // producers in a transaction that will commit, with records seen
	kept    []abortedTxn         // ended in the segment being written, with records seen
}

type openAbort struct {
	txn  abortedTxn
	seen bool // a batch of it was met
}

// resetTxns starts again at the first segment.
func (p *cleanPass) resetTxns() error {
	p.txns = cleanTxns{open: make(map[int64]*openAbort), commits: make(map[int64]bool)}
	for _, s := range *p.log.segments.Load() {
		if s.sealed.Load() && s.aborted == 0 {
			continue
		}
		x, err := p.log.indexOf(s)
		if err != nil {
			return err
		}
		p.txns.aborted = append(p.txns.aborted, x.aborted.view()...)
	}
	slices.SortFunc(p.txns.aborted, func(a, b abortedTxn) int { return compareInts(a.first, b.first, a.last, b.last) })
	return nil
}

// read notes a batch, with its marker if it is one that ends a transaction. It tells
// whether the batch has no use: it was aborted, or it is a marker of whose transaction
// nothing is left.
func (t *cleanTxns) read(h *protocol.BatchHeader, m *marker) bool {
	for len(t.aborted) > 0 && t.aborted[0].first <= h.LastOffset() {
		a := t.aborted[0]
		t.aborted = t.aborted[1:]
		if t.open[a.producerID] == nil {
			t.open[a.producerID] = &openAbort{txn: a}
		}
	}
	switch {
	case h.Control():
		return t.end(h, m)
	case !h.Transactional():
		return false
	}
	if o := t.open[h.ProducerID]; o != nil {
		o.seen = true
		return true
	}
	t.commits[h.ProducerID] = true
	return false
}

func (t *cleanTxns) end(h *protocol.BatchHeader, m *marker) bool {
	switch {
	case h.NumRecords == 0:
		return true // cleaned before
	case m == nil:
		return false // a control batch of another kind
	case m.abort:
		o := t.open[h.ProducerID]
		delete(t.open, h.ProducerID)
		if o == nil || !o.seen {
			return true
		}
		t.kept = append(t.kept, o.txn)
		return false
	}
	seen := t.commits[h.ProducerID]
	delete(t.commits, h.ProducerID)
	return !seen
}
