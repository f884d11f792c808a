package broker

import (
	"context"
	"errors"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Produce (0), versions 0 to 13; record batches of magic 2 only, so that 3 and up work.
//
// v2 added the log append time, v5 the log start, v7 admits zstd, v8 error messages, v9
// flexible versions, v10 the current leader, v12 implicit transaction adds (KIP-890),
// v13 topic ids.
//
// A request begins with its appends, in the order of the connection. With acks=all its
// answer waits for the flushes that cover them.
func (b *Broker) produce(c *call, req *kmsg.ProduceRequest) func(context.Context) kmsg.Response {
	p := producing{b: b, version: c.version, noWait: req.Acks != -1, resp: req.ResponseKind().(*kmsg.ProduceResponse)}
	if req.Acks < -1 || req.Acks > 1 {
		p.refuse = kerr.InvalidRequiredAcks
	} else {
		p.txn.begin(c.ctx, b, req)
		defer p.txn.done()
	}
	p.resp.Topics = make([]kmsg.ProduceResponseTopic, len(req.Topics))
	for i := range req.Topics {
		p.topic(&req.Topics[i], &p.resp.Topics[i])
	}
	if req.Acks == 0 {
		if p.failed {
			// Nobody waits for an answer that could say so.
			c.conn.cancel(errAcksNoneFailed)
		}
		return nil
	}
	if len(p.pending) == 0 {
		c.answer = p.resp
		return nil
	}
	return p.await
}

var errAcksNoneFailed = errors.New("a produce request with acks=0 failed")

// producing is a produce request under way.
type producing struct {
	b       *Broker
	version int16
	noWait  bool // the answer does not wait for the disk
	txn     producingTxn
	refuse  *kerr.Error // what every partition is told, if anything
	resp    *kmsg.ProduceResponse
	pending []pendingAppend
	failed  bool
}

// pendingAppend is an append that is to be durable before its answer.
type pendingAppend struct {
	flush *commitlog.Flush
	at    *kmsg.ProduceResponseTopicPartition
	part  *partition
}

func (p *producing) topic(req *kmsg.ProduceRequestTopic, resp *kmsg.ProduceResponseTopic) {
	resp.Topic, resp.TopicID = string([]byte(req.Topic)), req.TopicID
	var t *topic
	refuse := p.refuse
	if refuse == nil {
		t, refuse = p.b.topics.find(req.Topic, metadata.TopicID(req.TopicID), p.version >= 13)
	}
	if t != nil && t.internal {
		refuse = kerr.InvalidTopicException
	}
	resp.Partitions = make([]kmsg.ProduceResponseTopicPartition, len(req.Partitions))
	for i := range req.Partitions {
		at := &resp.Partitions[i]
		at.Default()
		at.Partition, at.BaseOffset, at.LogAppendTime, at.LogStartOffset = req.Partitions[i].Partition, -1, -1, -1
		err := error(refuse)
		if refuse == nil {
			err = p.append(t, req.Partitions[i].Records, at)
		}
		if err != nil {
			p.fail(at, err)
		}
	}
}

// append appends one batch and fills in its answer, as it stands once the batch is
// durable.
func (p *producing) append(t *topic, batch []byte, at *kmsg.ProduceResponseTopicPartition) error {
	part, log, err := t.open(at.Partition)
	if err != nil {
		return err
	}
	header, err := p.check(part.topic, batch)
	if err != nil {
		return err
	}
	if header.Transactional() {
		if err := p.txn.check(&header); err != nil {
			return err
		}
	}
	if header.Codec() == protocol.CodecZstd && p.version < 7 {
		return kerr.UnsupportedCompressionType
	}
	done, err := log.Append(batch, commitlog.AppendOptions{Header: &header, NoWait: p.noWait})
	if err != nil {
		return err
	}
	at.BaseOffset, at.LogAppendTime, at.LogStartOffset = done.Base, done.AppendTimeMs, done.LogStart
	if done.Flush != nil && !p.noWait {
		p.pending = append(p.pending, pendingAppend{flush: done.Flush, at: at, part: part})
	}
	p.b.metrics.produced(len(batch), int(header.NumRecords))
	return nil
}

// check checks a batch. Those of compacted topics are decompressed for it, a few at a
// time, since each may take max.decoded.batch.bytes.
func (p *producing) check(t *topic, batch []byte) (protocol.BatchHeader, error) {
	o := protocol.CheckOptions{RequireKeys: t.compacted(), MaxDecodedBytes: p.b.limits.maxDecoded}
	if o.RequireKeys {
		defer p.b.decoding.Begin()()
	}
	return protocol.CheckProduced(batch, o)
}

// await waits until every append is durable.
func (p *producing) await(context.Context) kmsg.Response {
	for i := range p.pending {
		w := &p.pending[i]
		<-w.flush.Done() // a log ends all its flushes before it closes
		if err := w.flush.Err(); err != nil {
			w.at.BaseOffset, w.at.LogAppendTime = -1, -1
			p.fail(w.at, err)
		}
	}
	return p.resp
}

func (p *producing) fail(at *kmsg.ProduceResponseTopicPartition, err error) {
	p.failed = true
	code, message := p.b.errorCode(err)
	at.ErrorCode = code
	if message != "" {
		at.ErrorMessage = kmsg.StringPtr(message)
	}
	var fault *protocol.RecordError
	if !errors.As(err, &fault) {
		return
	}
	// So the client knows which records to give up, and that the others were not at fault (KIP-467).
	why := kmsg.StringPtr(fault.Err.Error())
	for _, index := range append([]int32{fault.Index}, fault.More...) {
		at.ErrorRecords = append(at.ErrorRecords, kmsg.ProduceResponseTopicPartitionErrorRecord{RelativeOffset: index, ErrorMessage: why})
	}
}
