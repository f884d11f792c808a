package client

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// stageOffsets makes offsets pending in the transaction of p, as a member of the group, or
// with nil as an operator. Each partition is done whole or not at all; staged is told of each
// that is. What passes is tried again until ctx ends: to stage what is staged is no change.
func (p *txnProducer) stageOffsets(ctx context.Context, group string, as *memberIdentity, changes []change, staged func(TopicPartition)) error {
	for tries := 1; ; tries++ {
		answers, err := p.sendStage(ctx, group, as, changes)
		if err != nil && !passing(err, false) {
			return &GroupError{Group: group, Doing: "acknowledge in a transaction", Err: err}
		}
		var again []change
		for i, answer := range answers {
			switch {
			case answer.err == nil:
				staged(answer.tp)
			case passing(answer.err, true):
				again, err = append(again, changes[i]), answer.err
			default:
				return stageError(group, answer)
			}
		}
		if len(answers) > 0 {
			changes = again
		}
		if len(changes) == 0 {
			return nil
		}
		if !sleep(ctx, p.pause(tries, err)) {
			return &GroupError{Group: group, Doing: "acknowledge in a transaction", Err: errors.Join(context.Cause(ctx), err)}
		}
	}
}

// stageError is the error of a partition that was refused.
func stageError(group string, answer changed) error {
	err := answer.err
	if errors.Is(err, kerr.InvalidRecordState) {
		err = errors.Join(ErrConflict, err)
	}
	return &PartitionError{Topic: answer.tp.Topic, Partition: answer.tp.Partition, Group: group, Doing: "acknowledge in a transaction", Err: err}
}

// sendStage sends one TxnOffsetCommit. It answers for every change, in order, or not at all.
func (p *txnProducer) sendStage(ctx context.Context, group string, as *memberIdentity, changes []change) ([]changed, error) {
	plain := commitRequest(group, changes)
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.Group, req.TransactionalID, req.ProducerID, req.ProducerEpoch = group, p.name, p.id, p.epoch
	if as != nil {
		req.MemberID, req.InstanceID, req.Generation = as.member, as.instance, as.generation
	}
	for i := range plain.Topics {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic, t.TopicID = plain.Topics[i].Topic, plain.Topics[i].TopicID
		for j := range plain.Topics[i].Partitions {
			from := &plain.Topics[i].Partitions[j]
			part := kmsg.NewTxnOffsetCommitRequestTopicPartition()
			part.Partition, part.Offset, part.UnknownTags = from.Partition, from.Offset, from.UnknownTags
			t.Partitions = append(t.Partitions, part)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, err := req.RequestWith(ctx, p.cl)
	if err != nil {
		return nil, err
	}
	if resp.Version < transactionsVersion {
		return nil, errOldTransactions
	}
	out := make([]changed, 0, len(changes))
	for i := range changes {
		out = append(out, changed{tp: changes[i].tp, err: findStaged(resp, &changes[i])})
	}
	return out, nil
}

// findStaged looks up the answer to c, and checks its echo.
func findStaged(resp *kmsg.TxnOffsetCommitResponse, c *change) error {
	p, err := findPartition(resp.Topics, c.tp, c.id,
		func(t *kmsg.TxnOffsetCommitResponseTopic) (string, topicID, []kmsg.TxnOffsetCommitResponseTopicPartition) {
			return t.Topic, t.TopicID, t.Partitions
		}, func(p *kmsg.TxnOffsetCommitResponseTopicPartition) int32 { return p.Partition })
	if err == nil {
		_, err = individualState(p.ErrorCode, &p.UnknownTags)
	}
	return err
}
