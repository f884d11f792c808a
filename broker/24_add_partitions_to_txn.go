package broker

import (
	"strings"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// AddPartitionsToTxn (24), versions 0 to 5: partitions that a transaction is about to
// write to.
//
// v2 added PRODUCER_FENCED, v3 flexible versions, v4 several transactions at once and
// asking without adding (KIP-890), v5 TRANSACTION_ABORTABLE.
func (b *Broker) addPartitionsToTxn(c *call, req *kmsg.AddPartitionsToTxnRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.AddPartitionsToTxnResponse)
	if c.version < 4 {
		adding := partitionsAdding{b: b, c: c, version: transactionV0, id: strings.Clone(req.TransactionalID),
			producer: transaction.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch}}
		for i := range req.Topics {
			adding.topic(req.Topics[i].Topic, req.Topics[i].Partitions)
		}
		adding.run(false)
		resp.Topics = adding.topics
		return resp
	}
	for i := range req.Transactions {
		t := &req.Transactions[i]
		adding := partitionsAdding{b: b, c: c, version: transactionV2, id: strings.Clone(t.TransactionalID),
			producer: transaction.Producer{ID: t.ProducerID, Epoch: t.ProducerEpoch}}
		for j := range t.Topics {
			adding.topic(t.Topics[j].Topic, t.Topics[j].Partitions)
		}
		adding.run(t.VerifyOnly)
		answer := kmsg.NewAddPartitionsToTxnResponseTransaction()
		answer.TransactionalID = adding.id
		for _, topic := range adding.topics {
			at := kmsg.NewAddPartitionsToTxnResponseTransactionTopic()
			at.Topic = topic.Topic
			for _, p := range topic.Partitions {
				part := kmsg.NewAddPartitionsToTxnResponseTransactionTopicPartition()
				part.Partition, part.ErrorCode = p.Partition, p.ErrorCode
				at.Partitions = append(at.Partitions, part)
			}
			answer.Topics = append(answer.Topics, at)
		}
		resp.Transactions = append(resp.Transactions, answer)
	}
	return resp
}

// partitionsAdding is the partitions that one transaction is to have.
type partitionsAdding struct {
	b        *Broker
	c        *call
	id       string
	producer transaction.Producer
	version  int8
	topics   []kmsg.AddPartitionsToTxnResponseTopic
	found    []transaction.TopicPartition
	missing  bool // some are not there
}

func (a *partitionsAdding) topic(name string, partitions []int32) {
	name = strings.Clone(name)
	at := kmsg.NewAddPartitionsToTxnResponseTopic()
	at.Topic = name
	t, refused := a.b.topics.find(name, metadata.TopicID{}, false)
	for _, index := range partitions {
		part := kmsg.NewAddPartitionsToTxnResponseTopicPartition()
		part.Partition = index
		if refused != nil || t.partition(index) == nil {
			a.missing = true
			part.ErrorCode = kerr.UnknownTopicOrPartition.Code
		} else {
			a.found = append(a.found, transaction.TopicPartition{Topic: name, Partition: index})
		}
		at.Partitions = append(at.Partitions, part)
	}
	a.topics = append(a.topics, at)
}

// run adds them all or none, or only asks.
func (a *partitionsAdding) run(verifyOnly bool) {
	switch {
	case a.missing:
		a.answer(func(int) int16 { return kerr.OperationNotAttempted.Code })
	case verifyOnly:
		errs, err := a.b.transactions.Verify(a.c.ctx, a.id, a.producer, a.found)
		a.answer(func(i int) int16 {
			if err != nil {
				return a.b.txnCode(err, a.c.version >= 2)
			}
			if errs[i] == kerr.TransactionAbortable && a.c.version < 5 {
				return kerr.InvalidTxnState.Code
			}
			return code(errs[i])
		})
	default:
		err := a.b.transactions.AddPartitions(a.c.ctx, &transaction.AddRequest{
			TransactionalID: a.id, Producer: a.producer, Version: a.version, Partitions: a.found,
		})
		answered := a.b.txnCode(err, a.c.version >= 2)
		a.answer(func(int) int16 { return answered })
	}
}

// answer gives each partition that is there its code; i counts them.
func (a *partitionsAdding) answer(codeOf func(i int) int16) {
	i := 0
	for t := range a.topics {
		for p := range a.topics[t].Partitions {
			if part := &a.topics[t].Partitions[p]; part.ErrorCode == 0 {
				part.ErrorCode = codeOf(i)
				i++
			}
		}
	}
}
