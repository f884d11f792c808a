package client

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// outbox sends the records of one transaction. Of each partition one batch is on its way at a
// time, so that its sequence numbers, which begin at 0 in each transaction, arrive in order.
type outbox struct {
	sequences map[TopicPartition]int32 // of the next record
	sent      []*txnBatch
}

// txnBatch is a batch of a transaction, for one partition.
type txnBatch struct {
	tp      TopicPartition
	topic   topicID
	records []*kgo.Record
	bytes   []byte
	base    int64 // offset of the first record, once it is written
	err     error // why it was not written yet
}

// produceTimeout is how long a broker may wait for its replicas.
const produceTimeout = 30 * time.Second

// send writes batches, and returns when all are durable.
func (o *outbox) send(ctx context.Context, p *txnProducer, batches []*txnBatch) error {
	for len(batches) > 0 {
		var round, rest []*txnBatch
		taken := make(map[TopicPartition]bool)
		for _, b := range batches {
			if taken[b.tp] {
				rest = append(rest, b)
				continue
			}
			taken[b.tp] = true
			round = append(round, b)
		}
		if err := o.write(ctx, p, round); err != nil {
			return err
		}
		o.sent = append(o.sent, round...)
		batches = rest
	}
	return nil
}

// delivered tells the records where they are.
func (o *outbox) delivered() {
	for _, b := range o.sent {
		for i, r := range b.records {
			r.Partition, r.Offset = b.tp.Partition, b.base+int64(i)
			r.ProducerID, r.ProducerEpoch = -1, -1
		}
	}
}

// pack makes batches of records, those of a partition in order. They are to be sent in the
// order of the calls.
func (o *outbox) pack(ctx context.Context, p *txnProducer, records []*kgo.Record) ([]*txnBatch, error) {
	if o.sequences == nil {
		o.sequences = make(map[TopicPartition]int32)
		p.partitioner.begin()
	}
	var batches []*txnBatch
	open := make(map[TopicPartition]*txnBatch)
	sizes := make(map[TopicPartition]int)
	limit := newProducing(p.cl)
	for _, r := range records {
		t, err := p.findTopic(ctx, r.Topic)
		if err != nil {
			return nil, err
		}
		number := p.partitioner.pick(r, len(t.partitions))
		tp := TopicPartition{r.Topic, number}
		if _, ok := t.partitions[number]; !ok {
			return nil, noSuchPartition(tp, t)
		}
		b, size := open[tp], recordSize(r)
		if b == nil || sizes[tp]+size > limit.maxBytes {
			b = &txnBatch{tp: tp, topic: t.id}
			open[tp], sizes[tp] = b, protocol.BatchHeaderLen
			batches = append(batches, b)
		}
		b.records = append(b.records, r)
		sizes[tp] += size
	}
	var builder protocol.BatchBuilder
	for _, b := range batches {
		builder.Reset(protocol.BatchOptions{
			Codec: limit.codec, Transactional: true, LeaderEpoch: -1,
			ProducerID: p.id, ProducerEpoch: p.epoch, BaseSequence: o.sequences[b.tp],
		})
		for _, r := range b.records {
			builder.Append(r.Key, r.Value, headersOf(r), r.Timestamp.UnixMilli())
		}
		o.sequences[b.tp] += int32(len(b.records))
		var err error
		if b.bytes, err = builder.Build(nil); err != nil {
			return nil, fmt.Errorf("make a batch for %v: %w", b.tp, err)
		}
	}
	return batches, nil
}

// recordSize is a bound of what a record takes in a batch.
func recordSize(r *kgo.Record) int {
	const most = 40 // lengths, deltas, attributes, count of headers
	n := most + len(r.Key) + len(r.Value)
	for i := range r.Headers {
		n += 10 + len(r.Headers[i].Key) + len(r.Headers[i].Value)
	}
	return n
}

func headersOf(r *kgo.Record) []protocol.Header {
	if len(r.Headers) == 0 {
		return nil
	}
	headers := make([]protocol.Header, len(r.Headers))
	for i, h := range r.Headers {
		headers[i] = protocol.Header{Key: h.Key, Value: h.Value}
	}
	return headers
}

// findTopic is the topic to produce to. What passes is tried again until ctx ends.
func (p *txnProducer) findTopic(ctx context.Context, name string) (topicInfo, error) {
	for tries := 1; ; tries++ {
		t, err := p.t.topics.find(ctx, p.cl, name)
		if err == nil {
			return t, nil
		}
		var said *kerr.Error
		if !passing(err, errors.As(err, &said)) || !sleep(ctx, p.pause(tries, err)) {
			return t, err
		}
	}
}

// write writes batches of different partitions. What passes is tried again, as it was, until
// ctx ends: a broker that has a batch already knows it by its sequence number.
func (o *outbox) write(ctx context.Context, p *txnProducer, batches []*txnBatch) error {
	for tries := 1; len(batches) > 0; tries++ {
		if err := p.produce(ctx, batches); err != nil {
			return err
		}
		var again []*txnBatch
		var why error
		for _, b := range batches {
			if b.err == nil {
				continue
			}
			var said *kerr.Error
			if !errors.Is(b.err, kerr.ConcurrentTransactions) {
				p.t.topics.forget(b.tp.Topic)
			}
			if !passing(b.err, errors.As(b.err, &said)) {
				return &PartitionError{Topic: b.tp.Topic, Partition: b.tp.Partition, Doing: "produce to", Err: b.err}
			}
			again, why = append(again, b), b.err
		}
		batches = again
		if len(batches) > 0 && !sleep(ctx, p.pause(tries, why)) {
			return errors.Join(context.Cause(ctx), why)
		}
	}
	return nil
}

// produce sends each batch once, to the leader of its partition, and notes in it what came
// of that. The error is about what is not worth another try.
func (p *txnProducer) produce(ctx context.Context, batches []*txnBatch) error {
	leaders := make(map[int32][]*txnBatch)
	for _, b := range batches {
		t, err := p.findTopic(ctx, b.tp.Topic)
		if err != nil {
			return err
		}
		if t.id != b.topic {
			return fmt.Errorf("produce to %v: %w", b.tp, ErrTopicRecreated)
		}
		leader := t.partitions[b.tp.Partition].leader
		if leader < 0 {
			b.err = kerr.LeaderNotAvailable
			continue
		}
		leaders[leader] = append(leaders[leader], b)
	}
	var others sync.WaitGroup
	n := len(leaders)
	for leader, batches := range leaders {
		if n--; n == 0 {
			p.produceTo(ctx, leader, batches) // mostly there is one
		} else {
			others.Go(func() { p.produceTo(ctx, leader, batches) })
		}
	}
	others.Wait()
	return nil
}

// produceTo sends one request.
func (p *txnProducer) produceTo(ctx context.Context, leader int32, batches []*txnBatch) {
	req := kmsg.NewPtrProduceRequest()
	req.TransactionID, req.Acks, req.TimeoutMillis = &p.name, -1, int32(produceTimeout.Milliseconds())
	index := newTopicIndex()
	for _, b := range batches {
		at, isNew := index.of(b.topic)
		if isNew {
			t := kmsg.NewProduceRequestTopic()
			t.Topic, t.TopicID = b.tp.Topic, b.topic
			req.Topics = append(req.Topics, t)
		}
		part := kmsg.NewProduceRequestTopicPartition()
		part.Partition, part.Records = b.tp.Partition, b.bytes
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, part)
	}
	r, err := p.cl.Broker(int(leader)).Request(ctx, req)
	if err == nil && r.GetVersion() < producesVersion {
		err = errOldTransactions
	}
	for _, b := range batches {
		if b.err = err; err == nil {
			b.base, b.err = findProduced(r.(*kmsg.ProduceResponse), b)
		}
	}
}

// findProduced looks up what became of a batch.
func findProduced(resp *kmsg.ProduceResponse, b *txnBatch) (base int64, err error) {
	p, err := findPartition(resp.Topics, b.tp, b.topic,
		func(t *kmsg.ProduceResponseTopic) (string, topicID, []kmsg.ProduceResponseTopicPartition) {
			return t.Topic, t.TopicID, t.Partitions
		}, func(p *kmsg.ProduceResponseTopicPartition) int32 { return p.Partition })
	if err != nil {
		return -1, err
	}
	if err = kerr.ErrorForCode(p.ErrorCode); errors.Is(err, kerr.DuplicateSequenceNumber) {
		err = nil // written before
	}
	return p.BaseOffset, err
}
