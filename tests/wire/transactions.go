package wire

import (
	"fmt"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
)

// Producer is a transactional producer, as its coordinator knows it.
type Producer struct {
	TransactionalID string
	ID              int64
	Epoch           int16
	// Explicit has it add partitions before it writes to them, as clients do from before
	// KIP-890.
	Explicit bool

	sequences map[topicPartition]int32
}

type topicPartition struct {
	topic     string
	partition int32
}

// InitProducer gives a transactional id its next producer. What another one of that id has
// left open is aborted.
func (c *Conn) InitProducer(id string, timeoutMs int32) (*Producer, error) {
	req := kmsg.NewPtrInitProducerIDRequest()
	req.SetVersion(producerIDVersion)
	req.TransactionalID, req.TransactionTimeoutMillis = &id, timeoutMs
	resp, err := c.Do(req)
	if err != nil {
		return nil, err
	}
	answer := resp.(*kmsg.InitProducerIDResponse)
	p := &Producer{TransactionalID: id, ID: answer.ProducerID, Epoch: answer.ProducerEpoch, sequences: make(map[topicPartition]int32)}
	return p, kerr.ErrorForCode(answer.ErrorCode)
}

// Produce appends one record in the producer's transaction.
func (p *Producer) Produce(c *Conn, topic string, partition int32, value string) (offset int64, err error) {
	return p.produce(c, topic, partition, func(b *protocol.BatchBuilder) { b.Append(nil, []byte(value), nil, 1) })
}

// ProduceBatch appends one batch in the producer's transaction, of what fill appends.
func (p *Producer) ProduceBatch(c *Conn, topic string, partition int32, fill func(*protocol.BatchBuilder)) error {
	_, err := p.produce(c, topic, partition, fill)
	return err
}

func (p *Producer) produce(c *Conn, topic string, partition int32, fill func(*protocol.BatchBuilder)) (offset int64, err error) {
	if p.Explicit {
		if err := p.addPartition(c, topic, partition); err != nil {
			return -1, err
		}
	}
	at := topicPartition{topic, partition}
	var builder protocol.BatchBuilder
	o := protocol.PlainBatch(0)
	o.Transactional, o.ProducerID, o.ProducerEpoch, o.BaseSequence = true, p.ID, p.Epoch, p.sequences[at]
	builder.Reset(o)
	fill(&builder)
	batch, err := builder.Build(nil)
	if err != nil {
		return -1, err
	}
	h, err := protocol.ParseBatchHeader(batch)
	if err != nil {
		return -1, err
	}
	req := ProduceRequest(topic, partition, -1, batch)
	req.TransactionID = &p.TransactionalID
	if p.Explicit {
		req.SetVersion(11)
	}
	resp, err := c.Do(req)
	if err != nil {
		return -1, err
	}
	if offset, err = ProducedAt(resp); err == nil {
		p.sequences[at] += h.NumRecords
	}
	return offset, err
}

func (p *Producer) addPartition(c *Conn, topic string, partition int32) error {
	req := kmsg.NewPtrAddPartitionsToTxnRequest()
	req.SetVersion(3)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch = p.TransactionalID, p.ID, p.Epoch
	req.Topics = []kmsg.AddPartitionsToTxnRequestTopic{{Topic: topic, Partitions: []int32{partition}}}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.AddPartitionsToTxnResponse).Topics[0].Partitions[0].ErrorCode)
}

// Stage commits a partition's offsets of a group in the producer's transaction: all below
// offset if it is not -1, and single ones if they are not nil. Member is that of a share
// group, empty for a group without members.
func (p *Producer) Stage(c *Conn, group, member, topic string, partition int32, offset int64, individual *protocol.IndividualOffsets) error {
	if p.Explicit {
		if err := p.addOffsets(c, group); err != nil {
			return err
		}
	}
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.SetVersion(5)
	if p.Explicit {
		req.SetVersion(4)
	}
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch = p.TransactionalID, group, p.ID, p.Epoch
	req.Generation, req.MemberID = -1, member
	part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	part.Partition, part.Offset = partition, offset
	if individual != nil {
		part.UnknownTags.Set(protocol.ExtensionTag, individual.AppendTo(nil))
	}
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{part}}}
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	answer := &resp.(*kmsg.TxnOffsetCommitResponse).Topics[0].Partitions[0]
	if err := kerr.ErrorForCode(answer.ErrorCode); err != nil {
		return err
	}
	if _, ok := ExtensionField(&answer.UnknownTags); individual != nil && !ok {
		return fmt.Errorf("the answer to an individual commit in a transaction has no IndividualState")
	}
	return nil
}

func (p *Producer) addOffsets(c *Conn, group string) error {
	req := kmsg.NewPtrAddOffsetsToTxnRequest()
	req.SetVersion(3)
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Group = p.TransactionalID, p.ID, p.Epoch, group
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.(*kmsg.AddOffsetsToTxnResponse).ErrorCode)
}

// End commits or aborts the producer's transaction.
func (p *Producer) End(c *Conn, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.SetVersion(5)
	if p.Explicit {
		req.SetVersion(4)
	}
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.TransactionalID, p.ID, p.Epoch, commit
	resp, err := c.Do(req)
	if err != nil {
		return err
	}
	answer := resp.(*kmsg.EndTxnResponse)
	if answer.ErrorCode == 0 && !p.Explicit {
		p.ID, p.Epoch = answer.ProducerID, answer.ProducerEpoch
		clear(p.sequences)
	}
	return kerr.ErrorForCode(answer.ErrorCode)
}

// TransactionStatus is how a transactional id stands, in Kafka's words.
func (c *Conn) TransactionStatus(id string) (string, error) {
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := c.Do(req)
	if err != nil {
		return "", err
	}
	answer := &resp.(*kmsg.DescribeTransactionsResponse).TransactionStates[0]
	return answer.State, kerr.ErrorForCode(answer.ErrorCode)
}

// Committed gives the values that a reader of committed records sees of a partition, and
// the offset that it comes to: the last stable offset.
func (c *Conn) Committed(topic string, partition int32) (values []string, stable int64, err error) {
	for {
		req := FetchRequest(topic, partition, stable, 1<<20, 0)
		req.IsolationLevel = 1
		resp, err := c.Do(req)
		if err != nil {
			return nil, 0, err
		}
		p, err := Fetched(resp)
		if err != nil || len(p.RecordBatches) == 0 {
			return values, stable, err
		}
		aborted := p.AbortedTransactions
		for batches := p.RecordBatches; len(batches) > 0; {
			h, err := protocol.ParseBatchHeader(batches)
			if err != nil {
				return nil, 0, err
			}
			batch := batches[:h.Size()]
			batches, stable = batches[h.Size():], h.NextOffset()
			at := slices.IndexFunc(aborted, func(a kmsg.FetchResponseTopicPartitionAbortedTransaction) bool {
				return a.ProducerID == h.ProducerID && a.FirstOffset <= h.BaseOffset
			})
			switch {
			case at >= 0 && h.Control():
				aborted = slices.Delete(slices.Clone(aborted), at, at+1)
			case at >= 0 && h.Transactional():
			default:
				err := EachRecord(batch, func(r *protocol.Record) error {
					values = append(values, string(r.Value))
					return nil
				})
				if err != nil {
					return nil, 0, err
				}
			}
		}
	}
}
