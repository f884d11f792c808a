package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// implicitOffsets is the version of TxnOffsetCommit from which on it adds the group's
// offsets to the transaction (KIP-890).
const implicitOffsets = 5

// TxnOffsetCommit (28), versions 0 to 6: offsets that are committed if the transaction is.
//
// v2 added leader epochs, v3 flexible versions and members (KIP-447), v4
// TRANSACTION_ABORTABLE, v5 needs no AddOffsetsToTxn before (KIP-890), v6 topic ids.
//
// From version 3 on a partition may carry IndividualOffsets, as in OffsetCommit: they are
// pending until the transaction ends, and refused if one of them is not open.
func (b *Broker) txnOffsetCommit(c *call, req *kmsg.TxnOffsetCommitRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.TxnOffsetCommitResponse)
	committed, err := b.commitInTransaction(c.ctx, req)
	if err != nil {
		committed = refusedOffsets(req, b.codeOf(txnOffsetError(err, c.version)))
	}
	for i := range committed.Topics {
		t := &committed.Topics[i]
		at := kmsg.NewTxnOffsetCommitResponseTopic()
		at.Topic, at.TopicID = t.Topic, t.TopicID
		for j := range t.Partitions {
			part := kmsg.NewTxnOffsetCommitResponseTopicPartition()
			part.Partition, part.ErrorCode, part.UnknownTags = t.Partitions[j].Partition, t.Partitions[j].ErrorCode, t.Partitions[j].UnknownTags
			at.Partitions = append(at.Partitions, part)
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

// commitInTransaction sees that the transaction is open and has the group's partition of
// __consumer_offsets, and keeps its end away until the offsets are durable.
func (b *Broker) commitInTransaction(ctx context.Context, req *kmsg.TxnOffsetCommitRequest) (*kmsg.OffsetCommitResponse, error) {
	groupID := strings.Clone(req.Group)
	if groupID == "" {
		return nil, kerr.InvalidGroupID
	}
	add := transaction.AddRequest{
		TransactionalID: strings.Clone(req.TransactionalID), Version: transactionV0,
		Producer:   transaction.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		Partitions: []transaction.TopicPartition{b.offsetsPartition(groupID)},
		Again:      true, // without offsets there, its end does nothing
	}
	implicit := req.Version >= implicitOffsets
	if implicit {
		add.Version = transactionV2
	}
	write, err := b.transactions.BeginWrite(ctx, &add, implicit)
	if err != nil {
		return nil, err
	}
	defer write.Done()
	view, err := b.groups.Share(ctx, groupID)
	if err != nil {
		return nil, err
	}
	plain := asOffsetCommit(req)
	o := &offsetCommitting{
		b: b, byID: req.Version >= 6, resp: plain.ResponseKind().(*kmsg.OffsetCommitResponse),
		txn:    &individualcommit.Producer{ID: req.ProducerID, Epoch: req.ProducerEpoch},
		told:   func(err error) error { return txnOffsetError(err, req.Version) },
		shared: view,
	}
	o.plain = group.CommitRequest{
		Identity: group.Identity{
			Group: groupID, MemberID: strings.Clone(req.MemberID),
			InstanceID: strings.Clone(orEmpty(req.InstanceID)), Generation: req.Generation,
		},
		RetentionMs: -1,
	}
	if req.Version < 3 {
		o.plain.Generation, o.plain.MemberID, o.plain.InstanceID = -1, "", ""
	}
	o.begin(ctx, plain)
	o.await(ctx)
	return o.resp, nil
}

// asOffsetCommit is what the request commits, as OffsetCommit says it. It shares the
// request's strings and tags.
func asOffsetCommit(req *kmsg.TxnOffsetCommitRequest) *kmsg.OffsetCommitRequest {
	plain := kmsg.NewPtrOffsetCommitRequest()
	plain.Topics = make([]kmsg.OffsetCommitRequestTopic, len(req.Topics))
	for i := range req.Topics {
		t, at := &req.Topics[i], &plain.Topics[i]
		at.Topic, at.TopicID = t.Topic, t.TopicID
		at.Partitions = make([]kmsg.OffsetCommitRequestTopicPartition, len(t.Partitions))
		for j := range t.Partitions {
			p := &t.Partitions[j]
			epoch := p.LeaderEpoch
			if req.Version < 2 {
				epoch = -1
			}
			at.Partitions[j] = kmsg.OffsetCommitRequestTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: epoch, Metadata: p.Metadata, UnknownTags: p.UnknownTags,
			}
		}
	}
	return plain
}

// refusedOffsets answers every partition with an error.
func refusedOffsets(req *kmsg.TxnOffsetCommitRequest, code int16) *kmsg.OffsetCommitResponse {
	resp := kmsg.NewPtrOffsetCommitResponse()
	for i := range req.Topics {
		at := kmsg.NewOffsetCommitResponseTopic()
		at.Topic, at.TopicID = strings.Clone(req.Topics[i].Topic), req.Topics[i].TopicID
		for j := range req.Topics[i].Partitions {
			part := kmsg.NewOffsetCommitResponseTopicPartition()
			part.Partition, part.ErrorCode = req.Topics[i].Partitions[j].Partition, code
			at.Partitions = append(at.Partitions, part)
		}
		resp.Topics = append(resp.Topics, at)
	}
	return resp
}

// txnOffsetError is what a client of that version understands.
func txnOffsetError(err error, version int16) error {
	switch {
	case errors.Is(err, kerr.ProducerFenced):
		return kerr.InvalidProducerEpoch
	case errors.Is(err, kerr.TransactionAbortable) && version < 4:
		return kerr.InvalidTxnState
	case errors.Is(err, kerr.CoordinatorLoadInProgress) && version < 2:
		return kerr.CoordinatorNotAvailable // what these versions do not try again
	}
	return err
}
