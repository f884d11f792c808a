package group

import (
	"fmt"
	"slices"
)

// groupPartition names what one offset is about.
type groupPartition struct {
	group string
	tp    TopicPartition
}

// pendingOffset is an offset that a transaction commits when it is committed. Of the
// offsets of a partition, also of those of several transactions, the one that was written
// last counts, as in Kafka.
type pendingOffset struct {
	groupPartition
	producer  Producer
	offset    Committed
	order     uint64 // of writing, among the pending ones
	overtaken bool   // a later one was committed
}

// pendingOffsets are the offsets of all transactions that have not ended. Those of one
// partition are in its entry, in order.
type pendingOffsets struct {
	byProducer map[int64]map[groupPartition]*pendingOffset
	lastOrder  uint64
	// What a view of the log does not know yet: pending offsets that came, went or were
	// overtaken, and offsets that became committed at a marker.
	changed map[pendingKey]struct{}
	settled map[groupPartition]struct{}
}

type pendingKey struct {
	producerID int64
	groupPartition
}

func newPendingOffsets() pendingOffsets {
	return pendingOffsets{
		byProducer: make(map[int64]map[groupPartition]*pendingOffset),
		changed:    make(map[pendingKey]struct{}), settled: make(map[groupPartition]struct{}),
	}
}

func (p *pendingOffset) key() pendingKey { return pendingKey{p.producer.ID, p.groupPartition} }

// applyPending takes an offset of a transaction, in place of an earlier one of the same.
func (s *State) applyPending(change *offsetChange, producer Producer) {
	if change.value == nil {
		return // nobody writes one, and it would mean nothing before the marker
	}
	at := groupPartition{change.group, change.tp}
	if was := s.pending.byProducer[producer.ID][at]; was != nil {
		s.unstage(s.groups[at.group], was)
	}
	s.pending.lastOrder++
	s.stage(&pendingOffset{groupPartition: at, producer: producer, offset: *change.value, order: s.pending.lastOrder})
}

// stage adds one in its order.
func (s *State) stage(p *pendingOffset) {
	e := s.groups[p.group]
	if e == nil {
		e = s.add(p.group)
	}
	if e.pending == nil {
		e.pending = make(map[TopicPartition][]*pendingOffset)
	}
	list := e.pending[p.tp]
	at := len(list)
	for at > 0 && list[at-1].order > p.order { // a view has them in the order of producers
		at--
	}
	e.pending[p.tp] = slices.Insert(list, at, p)
	transaction := s.pending.byProducer[p.producer.ID]
	if transaction == nil {
		transaction = make(map[groupPartition]*pendingOffset)
		s.pending.byProducer[p.producer.ID] = transaction
	}
	transaction[p.groupPartition] = p
	s.pending.changed[p.key()] = struct{}{}
}

func (s *State) unstage(e *entry, p *pendingOffset) {
	if list := e.pending[p.tp]; len(list) == 1 {
		delete(e.pending, p.tp)
	} else {
		e.pending[p.tp] = slices.DeleteFunc(list, func(q *pendingOffset) bool { return q == p })
	}
	transaction := s.pending.byProducer[p.producer.ID]
	delete(transaction, p.groupPartition)
	if len(transaction) == 0 {
		delete(s.pending.byProducer, p.producer.ID)
	}
	s.pending.changed[p.key()] = struct{}{}
}

// overtake says that an offset of the partition is committed that was written after the
// pending ones below order.
func (s *State) overtake(e *entry, tp TopicPartition, order uint64) {
	for _, p := range e.pending[tp] {
		if p.order < order && !p.overtaken {
			p.overtaken = true
			s.pending.changed[p.key()] = struct{}{}
		}
	}
}

// partitions lists those of which the group has committed anything, or may once a
// transaction is committed, in order.
func (e *entry) partitions() []TopicPartition {
	list := make([]TopicPartition, 0, len(e.offsets)+len(e.pending))
	for tp := range e.offsets {
		list = append(list, tp)
	}
	for tp := range e.pending {
		if _, ok := e.offsets[tp]; !ok {
			list = append(list, tp)
		}
	}
	slices.SortFunc(list, TopicPartition.compare)
	return list
}

// keepsOffsets tells whether there is anything to keep the group's id for.
func (e *entry) keepsOffsets() bool { return len(e.offsets) > 0 || len(e.pending) > 0 }

func (s *State) checkPending() error {
	n := 0
	for _, e := range s.groups {
		for tp, list := range e.pending {
			n += len(list)
			for i, p := range list {
				if p.group != e.id || p.tp != tp || s.pending.byProducer[p.producer.ID][p.groupPartition] != p {
					return fmt.Errorf("a pending offset of %q, %v is filed under another id", e.id, tp)
				}
				if p.order > s.pending.lastOrder || i > 0 && p.order <= list[i-1].order {
					return fmt.Errorf("pending offsets of %q, %v are out of order", e.id, tp)
				}
			}
			if len(list) == 0 {
				return fmt.Errorf("an empty list of pending offsets of %q, %v", e.id, tp)
			}
		}
	}
	for id, transaction := range s.pending.byProducer {
		n -= len(transaction)
		if len(transaction) == 0 {
			return fmt.Errorf("an empty transaction of producer %d", id)
		}
	}
	if n != 0 {
		return fmt.Errorf("%d pending offsets more in groups than in transactions", n)
	}
	return nil
}
