package broker

import (
	"strings"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeTransactions (65), version 0 (KIP-664).
func (b *Broker) describeTransactions(c *call, req *kmsg.DescribeTransactionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.DescribeTransactionsResponse)
	for _, id := range req.TransactionalIDs {
		at := kmsg.NewDescribeTransactionsResponseTransactionState()
		at.TransactionalID = strings.Clone(id)
		at.ProducerID, at.ProducerEpoch = -1, -1
		d, found, err := b.transactions.Describe(c.ctx, at.TransactionalID)
		switch {
		case id == "":
			at.ErrorCode = kerr.InvalidRequest.Code
		case err != nil:
			at.ErrorCode = b.codeOf(err)
		case !found:
			at.ErrorCode = kerr.TransactionalIDNotFound.Code
		default:
			describeTransaction(&at, &d)
		}
		resp.TransactionStates = append(resp.TransactionStates, at)
	}
	return resp
}

func describeTransaction(at *kmsg.DescribeTransactionsResponseTransactionState, d *transaction.Description) {
	at.State, at.TimeoutMillis, at.StartTimestamp = d.Status.String(), d.TimeoutMs, d.StartMs
	at.ProducerID, at.ProducerEpoch = d.Producer.ID, d.Producer.Epoch
	for _, tp := range d.Partitions { // in order of topics
		n := len(at.Topics)
		if n == 0 || at.Topics[n-1].Topic != tp.Topic {
			topic := kmsg.NewDescribeTransactionsResponseTransactionStateTopic()
			topic.Topic = tp.Topic
			at.Topics = append(at.Topics, topic)
			n++
		}
		at.Topics[n-1].Partitions = append(at.Topics[n-1].Partitions, tp.Partition)
	}
}
