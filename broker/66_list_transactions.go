package broker

import (
	"strings"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListTransactions (66), versions 0 to 2 (KIP-664).
//
// v1 added the filter by duration (KIP-994), v2 that by a pattern of ids (KIP-1152).
func (b *Broker) listTransactions(c *call, req *kmsg.ListTransactionsRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ListTransactionsResponse)
	duration, pattern := int64(-1), ""
	if req.Version >= 1 {
		duration = req.DurationFilterMillis
	}
	if req.Version >= 2 {
		pattern = strings.Clone(orEmpty(req.TransactionalIDPattern))
	}
	f, unknown, refused := transaction.NewFilter(req.StateFilters, req.ProducerIDFilters, duration, pattern)
	if refused != nil {
		resp.ErrorCode = refused.Code
		return resp
	}
	for _, name := range unknown {
		resp.UnknownStateFilters = append(resp.UnknownStateFilters, strings.Clone(name))
	}
	list, err := b.transactions.List(c.ctx, &f)
	if err != nil {
		resp.ErrorCode = b.codeOf(err)
		return resp
	}
	for _, t := range list {
		at := kmsg.NewListTransactionsResponseTransactionState()
		at.TransactionalID, at.ProducerID, at.TransactionState = t.TransactionalID, t.ProducerID, t.Status.String()
		resp.TransactionStates = append(resp.TransactionStates, at)
	}
	return resp
}
