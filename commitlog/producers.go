package commitlog

import (
	"fmt"
	"math"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
)

const (
	noProducer  = -1 // Kafka's NO_PRODUCER_ID, NO_PRODUCER_EPOCH and NO_SEQUENCE
	keptBatches = 5  // a client has at most this many requests in flight
	noTxn       = -1
)

// producedBatch is what is remembered of a batch to recognise it when it comes again.
type producedBatch struct {
	lastSequence int32
	offsetDelta  int32 // last offset less base offset
	lastOffset   int64
	timestampMs  int64 // the broker's, for logs with LogAppendTime, else of the records
}

func (b *producedBatch) firstSequence() int32 { return sequenceBefore(b.lastSequence, b.offsetDelta) }
func (b *producedBatch) base() int64          { return b.lastOffset - int64(b.offsetDelta) }

// producer is what a log knows of one idempotent or transactional producer.
type producer struct {
	id               int64
	epoch            int16
	coordinatorEpoch int32
	txnFirst         int64 // first offset of its open transaction, noTxn
	lastSeenMs       int64 // when it last wrote, by the broker's clock
	timestampMs      int64 // of its last batch or marker
	kept             int8
	batches          [keptBatches]producedBatch // the last ones, oldest first
}

// lastSequence is noProducer if it has written nothing in its epoch.
func (p *producer) lastSequence() int32 {
	if p.kept == 0 {
		return noProducer
	}
	return p.batches[p.kept-1].lastSequence
}

// duplicate finds the batch among the last ones.
func (p *producer) duplicate(h *protocol.BatchHeader) *producedBatch {
	if h.ProducerEpoch != p.epoch || h.BaseSequence < 0 {
		return nil
	}
	last := sequenceAfter(h.BaseSequence, h.LastOffsetDelta)
	for i := range p.batches[:p.kept] {
		if b := &p.batches[i]; b.lastSequence == last && b.firstSequence() == h.BaseSequence {
			return b
		}
	}
	return nil
}

// enter makes epoch the producer's current one; batches of an older one are forgotten.
func (p *producer) enter(epoch int16) {
	if p.epoch != epoch {
		p.epoch = epoch
		p.kept = 0
	}
}

func (p *producer) remember(b producedBatch) {
	if p.kept == keptBatches {
		copy(p.batches[:], p.batches[1:])
		p.kept--
	}
	p.batches[p.kept] = b
	p.kept++
}

// sequenceAfter adds n to a sequence number, which starts again at 0 after the largest
// int32. -1, none, stays.
func sequenceAfter(sequence, n int32) int32 {
	if sequence < 0 {
		return sequence
	}
	return int32((int64(sequence) + int64(n)) & math.MaxInt32)
}

func sequenceBefore(sequence, n int32) int32 {
	if sequence < 0 {
		return sequence
	}
	return int32((int64(sequence) - int64(n)) & math.MaxInt32)
}

// producers is the state of all producers of a log and of their transactions. It is a
// plain value of its owner's lock.
type producers struct {
	byID map[int64]*producer
	txns txnList
}

func newProducers() *producers { return &producers{} }

// batchOrigin says who wrote a batch, and so what is checked of it.
type batchOrigin int8

const (
	fromClient      batchOrigin = iota // epoch and sequence
	fromCoordinator                    // epoch; its batches have no sequence
	fromLog                            // nothing: it was accepted before
)

// check decides whether the batch may be appended. A batch that was appended before is
// returned as its duplicate.
func (ps *producers) check(h *protocol.BatchHeader, origin batchOrigin) (*producedBatch, error) {
	p := ps.byID[h.ProducerID]
	if p == nil {
		return nil, nil // nothing is known, so any sequence begins a history
	}
	if origin == fromClient {
		if dup := p.duplicate(h); dup != nil {
			return dup, nil
		}
	}
	if h.ProducerEpoch < p.epoch {
		return nil, fmt.Errorf("%w: producer %d has epoch %d, the batch %d", ErrInvalidProducerEpoch, p.id, p.epoch, h.ProducerEpoch)
	}
	if origin == fromClient {
		if err := p.checkSequence(h); err != nil {
			return nil, err
		}
	}
	if p.txnFirst != noTxn && !h.Transactional() {
		return nil, fmt.Errorf("%w: producer %d wrote outside its open transaction", ErrInvalidTxnState, p.id)
	}
	return nil, nil
}

// checkSequence is Kafka's ProducerAppendInfo.checkSequence.
func (p *producer) checkSequence(h *protocol.BatchHeader) error {
	if h.ProducerEpoch != p.epoch {
		if h.BaseSequence != 0 && p.epoch != noProducer {
			return fmt.Errorf("%w: producer %d begins epoch %d, after %d, with sequence %d", ErrOutOfOrderSequence,
				p.id, h.ProducerEpoch, p.epoch, h.BaseSequence)
		}
		return nil
	}
	last := p.lastSequence()
	if p.epoch == noProducer || int64(h.BaseSequence) == int64(last)+1 || h.BaseSequence == 0 && last == math.MaxInt32 {
		return nil
	}
	return fmt.Errorf("%w: producer %d continues sequence %d with %d", ErrOutOfOrderSequence, p.id, last, h.BaseSequence)
}

// applyData notes a data batch of a producer that is in the log at its base offset.
func (ps *producers) applyData(h *protocol.BatchHeader, nowMs int64) {
	p := ps.get(h.ProducerID)
	p.enter(h.ProducerEpoch)
	p.lastSeenMs = nowMs
	p.timestampMs = h.MaxTimestamp
	p.remember(producedBatch{
		lastSequence: sequenceAfter(h.BaseSequence, h.LastOffsetDelta),
		offsetDelta:  h.LastOffsetDelta,
		lastOffset:   h.LastOffset(),
		timestampMs:  h.MaxTimestamp,
	})
	if h.Transactional() && p.txnFirst == noTxn {
		p.txnFirst = h.BaseOffset
		ps.txns.begin(p.id, h.BaseOffset)
	}
}

func (ps *producers) get(id int64) *producer {
	if p := ps.byID[id]; p != nil {
		return p
	}
	p := &producer{id: id, epoch: noProducer, coordinatorEpoch: noProducer, txnFirst: noTxn}
	if ps.byID == nil {
		ps.byID = make(map[int64]*producer)
	}
	ps.byID[id] = p
	return p
}

// expire forgets producers that have been idle for expirationMs and have no open
// transaction, then, beyond limit, the ones idle for longest.
func (ps *producers) expire(nowMs, expirationMs int64, limit int) (forced int) {
	for id, p := range ps.byID {
		if p.txnFirst == noTxn && nowMs-p.lastSeenMs >= expirationMs {
			delete(ps.byID, id)
		}
	}
	if len(ps.byID) <= limit {
		return 0
	}
	idle := make([]*producer, 0, len(ps.byID))
	for _, p := range ps.byID {
		if p.txnFirst == noTxn {
			idle = append(idle, p)
		}
	}
	slices.SortFunc(idle, func(a, b *producer) int { return compareInts(a.lastSeenMs, b.lastSeenMs, a.id, b.id) })
	forced = min(len(ps.byID)-limit, len(idle))
	for _, p := range idle[:forced] {
		delete(ps.byID, p.id)
	}
	return forced
}

// compareInts orders by the first pair, then by the second.
func compareInts(a, b, a2, b2 int64) int {
	switch {
	case a < b || a == b && a2 < b2:
		return -1
	case a > b || a2 > b2:
		return 1
	}
	return 0
}
