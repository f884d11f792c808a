package broker

import (
	"strings"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AddOffsetsToTxn (25), versions 0 to 4: a transaction is about to commit offsets of a
// group, and so to write to the group's partition of __consumer_offsets.
//
// v2 added PRODUCER_FENCED, v3 flexible versions, v4 TRANSACTION_ABORTABLE (KIP-890).
func (b *Broker) addOffsetsToTxn(c *call, req *kmsg.AddOffsetsToTxnRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AddOffsetsToTxnResponse)
	if req.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return resp
	}
	err := b.transactions.AddPartitions(c.ctx, &transaction.AddRequest{
		TransactionalID: strings.Clone(req.TransactionalID),
		Producer:        transaction.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Version:         transactionV0,
		Partitions:      []transaction.TopicPartition{b.offsetsPartition(req.Group)},
	})
	resp.ErrorCode = b.txnCode(err, c.version >= 2)
	return resp
}
