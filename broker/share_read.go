package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lacunamq/lacuna/broker/dealer"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shareRead reads what one share fetch was dealt.
type shareRead struct {
	b        *Broker
	full     bool // the answer names every partition
	targets  []extension.TopicPartition
	maxBytes int // of all records together, but for a first batch that is larger
	dealt    []dealer.Dealt
	buf      *[]byte // holds the records of all partitions
	reserved int64   // bytes of the budget for fetched data
}

// release gives back the memory of the records, once they have been sent.
func (r *shareRead) release() {
	if r.reserved > 0 {
		r.b.fetchMemory.Release(r.reserved)
	}
	*r.buf = (*r.buf)[:0]
	if cap(*r.buf) <= pooledFetchBytes {
		fetchPool.Put(r.buf)
	}
}

// acknowledge begins what the request acknowledges, which comes before what it fetches.
func (r *shareRead) acknowledge(m shareMember, req *kmsg.ShareFetchRequest) *shareAcks {
	acks := &shareAcks{b: r.b, m: m, renew: req.IsRenewAck}
	for i := range req.Topics {
		t := &req.Topics[i]
		for j := range t.Partitions {
			p := &t.Partitions[j]
			if len(p.AcknowledgementBatches) == 0 {
				continue
			}
			acks.begin(extension.TopicPartition{Topic: t.TopicID, Partition: p.Partition}, len(p.AcknowledgementBatches),
				func(k int) *ackBatch { return (*ackBatch)(&p.AcknowledgementBatches[k]) })
		}
	}
	return acks
}

// fetch has records dealt, to a client that can acknowledge them.
func (r *shareRead) fetch(ctx context.Context, session *shareSession, req *kmsg.ShareFetchRequest, filter *dealer.Filter) (err error) {
	if len(r.targets) == 0 || req.IsRenewAck {
		return nil
	}
	q := r.b.query(session.shareMember, req, r.targets, filter)
	r.maxBytes = q.MaxBytes
	if ctx.Err() == nil {
		r.dealt, err = r.b.dealer.Fetch(ctx, q)
	}
	if ctx.Err() != nil {
		r.giveBack()
		r.dealt = make([]dealer.Dealt, len(r.targets))
		return nil
	}
	if err == nil && !r.b.shareSessions.isOpen(session) {
		r.giveBack()
		return refusal(kerr.ShareSessionNotFound, "the share session of %q in group %q ended meanwhile", session.member, session.group)
	}
	return err
}

// giveBack gives back all that was dealt.
func (r *shareRead) giveBack() {
	for i := range r.dealt {
		r.dealt[i].GiveBack()
	}
}

// answer fills in resp with what was dealt and what became of the acknowledgements.
func (r *shareRead) answer(ctx context.Context, resp *kmsg.ShareFetchResponse, acks []shareAck) {
	if ctx.Err() != nil {
		r.giveBack() // the client is gone, or can send no acknowledgement any more
	}
	for i := range r.dealt {
		d := &r.dealt[i]
		if !r.full && d.Err == nil && len(d.Deliveries) == 0 {
			continue
		}
		at := partitionIn(resp, r.targets[i])
		if d.Err == nil {
			d.Err = r.read(ctx, d, at)
		}
		if d.Err != nil {
			d.GiveBack()
			at.ErrorCode, at.ErrorMessage = r.b.shareFetchError(r.targets[i], d.Err)
			if at.ErrorCode == kerr.NotLeaderForPartition.Code {
				at.CurrentLeader.LeaderID, at.CurrentLeader.LeaderEpoch = noLeader, noLeader
			}
		}
	}
	for i := range acks {
		at := partitionIn(resp, acks[i].TopicPartition)
		if err := acks[i].err; err != nil {
			at.AcknowledgeErrorCode, at.AcknowledgeErrorMessage = r.b.errorAnswer(err)
		}
	}
}

// read reads the records that were dealt of one partition.
func (r *shareRead) read(ctx context.Context, d *dealer.Dealt, at *kmsg.ShareFetchResponseTopicPartition) error {
	if len(d.Deliveries) == 0 {
		return nil
	}
	bytes := min(int64(d.Bytes()), r.b.limits.fetchMemory)
	if err := r.b.fetchMemory.Acquire(ctx, bytes); err != nil {
		return fmt.Errorf("%w: %w", kerr.RequestTimedOut, err) // the connection is gone
	}
	r.reserved += bytes
	before := len(*r.buf)
	data, err := d.AppendRecords(*r.buf, r.maxBytes-before, before == 0, r.b.decoding)
	if err != nil {
		return err
	}
	*r.buf = data
	r.b.metrics.fetchedBytes.Add(float64(len(data) - before))
	at.Records = data[before:len(data):len(data)]
	at.AcquiredRecords = make([]kmsg.ShareFetchResponseTopicPartitionAcquiredRecord, len(d.Deliveries))
	for i := range d.Deliveries {
		a := &at.AcquiredRecords[i]
		a.FirstOffset, a.LastOffset, a.DeliveryCount = d.Deliveries[i].Start, d.Deliveries[i].End-1, d.Deliveries[i].Count
	}
	return nil
}

// partitionIn is the place of a partition in the answer, which is made if need be.
func partitionIn(resp *kmsg.ShareFetchResponse, tp extension.TopicPartition) *kmsg.ShareFetchResponseTopicPartition {
	var t *kmsg.ShareFetchResponseTopic
	for i := range resp.Topics {
		if resp.Topics[i].TopicID == tp.Topic {
			t = &resp.Topics[i]
		}
	}
	if t == nil {
		resp.Topics = append(resp.Topics, kmsg.NewShareFetchResponseTopic())
		t = &resp.Topics[len(resp.Topics)-1]
		t.TopicID = tp.Topic
	}
	for i := range t.Partitions {
		if t.Partitions[i].Partition == tp.Partition {
			return &t.Partitions[i]
		}
	}
	t.Partitions = append(t.Partitions, kmsg.NewShareFetchResponseTopicPartition())
	p := &t.Partitions[len(t.Partitions)-1]
	p.Partition, p.Records = tp.Partition, []byte{} // Kafka's clients take null for an error
	return p
}

// noLeader stands for a leader, and its epoch, that is not known. A client that is told that
// this broker is not the leader would look for it at broker 0 otherwise.
const noLeader = -1

// shareFetchErrors are the errors of a partition that Kafka's share consumers live with.
var shareFetchErrors = []*kerr.Error{
	kerr.NotLeaderForPartition, kerr.ReplicaNotAvailable, kerr.KafkaStorageError, kerr.FencedLeaderEpoch,
	kerr.OffsetNotAvailable, kerr.UnknownTopicOrPartition, kerr.UnknownTopicID, kerr.InconsistentTopicID,
	kerr.UnknownLeaderEpoch, kerr.UnknownServerError, kerr.CorruptMessage,
}

// shareFetchError is how a client is told of an error of a partition. Kafka's Java consumer
// gives up, with all it works on, at one that it does not expect: those are
// UNKNOWN_SERVER_ERROR, with a message that says more.
func (b *Broker) shareFetchError(tp extension.TopicPartition, err error) (code int16, message *string) {
	if errors.Is(err, extension.ErrUnknownPartition) {
		err = b.unknownPartition(tp)
	}
	code, message = b.errorAnswer(err)
	if !slices.ContainsFunc(shareFetchErrors, func(e *kerr.Error) bool { return e.Code == code }) {
		return kerr.UnknownServerError.Code, &[]string{err.Error()}[0]
	}
	return code, message
}

// unknownPartition says what is not there of a partition: its topic, or the partition.
func (b *Broker) unknownPartition(tp extension.TopicPartition) error {
	if t, refused := b.topics.find("", metadata.TopicID(tp.Topic), true); refused == nil {
		return fmt.Errorf("partition %d of topic %s: %w", tp.Partition, t.name, kerr.UnknownTopicOrPartition)
	}
	return fmt.Errorf("topic id %s: %w", metadata.TopicID(tp.Topic), kerr.UnknownTopicID)
}
