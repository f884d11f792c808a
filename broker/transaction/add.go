package transaction

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// AddRequest adds partitions to the transaction of a producer: AddPartitionsToTxn,
// AddOffsetsToTxn, or what a producer of version 2 writes to.
type AddRequest struct {
	TransactionalID string
	Producer
	Version    int8 // of the protocol: 0 to 2
	Partitions []TopicPartition
	// Again tells that the producer's next transaction is likely to write to them too, and
	// loses little if it does not; see State.Expect.
	Again bool
}

// AddPartitions adds partitions to the transaction, and begins it if there is none. It
// emits nothing if the transaction has them all. The partitions are copied.
func (s *State) AddPartitions(now time.Time, req *AddRequest, out *Output) *kerr.Error {
	if req.TransactionalID == "" {
		return kerr.InvalidRequest
	}
	e := s.ids[req.TransactionalID]
	switch {
	case e == nil:
		return kerr.InvalidProducerIDMapping
	case e.status.ending():
		return kerr.ConcurrentTransactions
	}
	if err := e.check(req.Producer); err != nil {
		return err
	}
	if e.status == Ongoing && e.hasAll(req.Partitions) {
		return nil
	}
	next := e.successor(now, Ongoing)
	next.version = req.Version
	if e.status != Ongoing {
		next.startMs = next.updateMs
	}
	next.partitions = slices.Concat(e.partitions, req.Partitions)
	if e.status != Ongoing && req.Version >= implicitAdds {
		next.partitions, e.expected = append(next.partitions, e.expected...), nil
	}
	next.partitions = sorted(next.partitions)
	s.emit(e.id, next, out)
	return nil
}

// implicitAdds is the version from which writing adds partitions.
const implicitAdds = 2

// Expect has partitions be in the next transaction of the id from its beginning, so that
// they are not added by a record of their own, which would have to be durable before they
// are written to. It counts for one transaction, and is not logged. That they are written to
// is not sure: their markers must do no harm where nothing is to be ended.
func (s *State) Expect(transactionalID string, partitions []TopicPartition) {
	e := s.ids[transactionalID]
	if e == nil {
		return
	}
	for _, tp := range partitions {
		if !slices.Contains(e.expected, tp) {
			e.expected = append(e.expected, tp)
		}
	}
}

// Verify tells whether partitions are in the ongoing transaction of a producer: of each,
// nil or TRANSACTION_ABORTABLE. What concerns them all is returned apart.
func (s *State) Verify(transactionalID string, p Producer, partitions []TopicPartition) ([]*kerr.Error, *kerr.Error) {
	if transactionalID == "" {
		return nil, kerr.InvalidRequest
	}
	e := s.ids[transactionalID]
	if e == nil {
		return nil, kerr.InvalidProducerIDMapping
	}
	if err := e.check(p); err != nil {
		return nil, err
	}
	if e.status.ending() {
		return nil, kerr.ConcurrentTransactions
	}
	errs := make([]*kerr.Error, len(partitions))
	for i, tp := range partitions {
		if !e.has(tp) {
			errs[i] = kerr.TransactionAbortable
		}
	}
	return errs, nil
}

// Ongoing tells whether a producer may write to a partition within its transaction, without
// a change of it. It is cheap enough to ask for each append.
func (s *State) Ongoing(transactionalID string, p Producer, tp TopicPartition) bool {
	e := s.ids[transactionalID]
	return e != nil && e.status == Ongoing && e.check(p) == nil && e.has(tp)
}

func (v *value) has(tp TopicPartition) bool {
	_, found := slices.BinarySearchFunc(v.partitions, tp, comparePartitions)
	return found
}

func (v *value) hasAll(partitions []TopicPartition) bool {
	return !slices.ContainsFunc(partitions, func(tp TopicPartition) bool { return !v.has(tp) })
}
