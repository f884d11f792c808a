package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/lacunamq/lacuna/broker/txncoordinator"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// implicitAdds is the version of Produce from which on writing adds partitions to a
// transaction (KIP-890).
const implicitAdds = 12

// producingTxn is the transaction in which a produce request writes. It is held open
// until all appends of the request have their place.
type producingTxn struct {
	producer transaction.Producer
	write    *txncoordinator.Write
	err      error // what transactional batches are refused with
}

// begin sees that the transaction is open and has the partitions of all transactional
// batches. A request without any has nothing to see.
func (t *producingTxn) begin(ctx context.Context, b *Broker, req *kmsg.ProduceRequest) {
	if req.TransactionID == nil {
		t.err = kerr.TransactionalIDAuthorizationFailed
		return
	}
	add := transaction.AddRequest{TransactionalID: strings.Clone(*req.TransactionID), Version: transactionV0}
	if req.Version >= implicitAdds {
		add.Version = transactionV2
	}
	for i := range req.Topics {
		r := &req.Topics[i]
		topic, refused := b.topics.find(r.Topic, metadata.TopicID(r.TopicID), req.Version >= 13)
		if refused != nil || topic.internal {
			continue
		}
		for j := range r.Partitions {
			header, err := protocol.ParseBatchHeader(r.Partitions[j].Records)
			if err != nil || !header.Transactional() || topic.partition(r.Partitions[j].Partition) == nil {
				continue
			}
			if len(add.Partitions) == 0 {
				add.Producer = transaction.Producer{ID: header.ProducerID, Epoch: header.ProducerEpoch}
			}
			add.Partitions = append(add.Partitions, transaction.TopicPartition{Topic: topic.name, Partition: r.Partitions[j].Partition})
		}
	}
	if len(add.Partitions) == 0 {
		return
	}
	t.producer = add.Producer
	t.write, t.err = b.transactions.BeginWrite(ctx, &add, req.Version >= implicitAdds)
	t.err = writeError(t.err, req.Version >= implicitAdds)
}

// check tells whether a transactional batch may be appended.
func (t *producingTxn) check(h *protocol.BatchHeader) error {
	switch {
	case t.err != nil:
		return t.err
	case t.write == nil || h.ProducerID != t.producer.ID || h.ProducerEpoch != t.producer.Epoch:
		return refusal(kerr.InvalidProducerIDMapping, "the request writes for producer %d, the batch is of %d", t.producer.ID, h.ProducerID)
	}
	return nil
}

// done lets the transaction be ended.
func (t *producingTxn) done() {
	if t.write != nil {
		t.write.Done()
	}
}

// writeError is what a producer understands of a refusal of the transaction coordinator;
// implicit says that it knows the errors of KIP-890.
func writeError(err error, implicit bool) error {
	var refused *kerr.Error
	if err == nil || !errors.As(err, &refused) {
		return err
	}
	switch refused {
	case kerr.ProducerFenced:
		return kerr.InvalidProducerEpoch
	case kerr.TransactionAbortable:
		if !implicit {
			return kerr.InvalidTxnState
		}
	case kerr.ConcurrentTransactions:
		if !implicit {
			return kerr.NotEnoughReplicas // it comes again
		}
	case kerr.CoordinatorLoadInProgress, kerr.CoordinatorNotAvailable, kerr.NotCoordinator:
		return kerr.NotEnoughReplicas
	}
	return err
}
