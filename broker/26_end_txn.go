package broker

import (
	"strings"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// EndTxn (26), versions 0 to 5: commits or aborts a transaction.
//
// v2 added PRODUCER_FENCED, v3 flexible versions, v4 TRANSACTION_ABORTABLE, v5 the epoch
// that each transaction has of its own, which the answer names (KIP-890).
//
// Its answer waits until the markers are durable, if they can be written now.
func (b *Broker) endTxn(c *call, req *kmsg.EndTxnRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.EndTxnResponse)
	version := int8(transactionV0)
	if c.version >= 5 {
		version = transactionV2
	}
	next, err := b.transactions.End(c.ctx, &transaction.EndRequest{
		TransactionalID: strings.Clone(req.TransactionalID),
		Producer:        transaction.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Version:         version, Commit: req.Commit,
	})
	resp.ErrorCode = b.txnCode(err, c.version >= 2)
	resp.ProducerID, resp.ProducerEpoch = -1, -1
	if err == nil {
		resp.ProducerID, resp.ProducerEpoch = next.ID, next.Epoch
	}
	return resp
}
