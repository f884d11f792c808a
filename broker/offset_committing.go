package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetCommitting is a commit under way: of some partitions in the primary topic, of
// others in their ledgers.
type offsetCommitting struct {
	b    *Broker
	byID bool                       // the request names topics by id
	txn  *individualcommit.Producer // of the transaction that it belongs to; nil: none
	told func(error) error          // what a client of the request's version understands
	// shared is the share group of which a member commits in a transaction; nil: it is another
	// kind of group.
	shared *share.View
	resp   *kmsg.OffsetCommitResponse

	plain   group.CommitRequest
	plainAt []*kmsg.OffsetCommitResponseTopicPartition // in the order of the commit
	commit  *coordinator.Commit

	hasLedger func(extension.TopicPartition) bool
	parts     []ledgers.PartitionCommit
	partsAt   []*kmsg.OffsetCommitResponseTopicPartition
	ledgers   *ledgers.Commit
	staged    *shareStaging // instead of ledgers, for a share group
	budget    protocol.Budget
	overLimit bool
}

// begin carries the commit out.
func (o *offsetCommitting) begin(ctx context.Context, req *kmsg.OffsetCommitRequest) {
	hasLedger, release, err := o.b.ledgers.Route(ctx, o.plain.Group)
	o.hasLedger, o.budget = hasLedger, protocol.NewBudget()
	o.resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		o.topic(&req.Topics[i], &o.resp.Topics[i], err)
	}
	if err != nil {
		return
	}
	if o.overLimit {
		o.refuseAll(kerr.InvalidRequest)
	}
	if len(o.plain.Offsets) > 0 {
		commit := o.beginPlain()
		o.commit = &commit
	}
	release()
	if len(o.parts) > 0 {
		m := &extension.Member{
			Group: o.plain.Group, MemberID: o.plain.MemberID, InstanceID: o.plain.InstanceID, Generation: o.plain.Generation,
			InTransaction: o.txn != nil,
		}
		switch {
		case o.shared != nil:
			o.staged = o.b.stageShared(ctx, o.shared, m, *o.txn, o.parts)
		case o.txn != nil:
			o.ledgers = o.b.ledgers.BeginInTransaction(ctx, m, *o.txn, o.parts)
		default:
			o.ledgers = o.b.ledgers.Begin(ctx, m, o.parts)
		}
	}
}

// beginPlain begins to commit what has no ledger.
func (o *offsetCommitting) beginPlain() coordinator.Commit {
	if o.txn == nil {
		return o.b.groups.BeginCommit(&o.plain)
	}
	return o.b.groups.BeginCommitInTransaction(&group.TxnCommitRequest{
		CommitRequest: o.plain, Producer: group.Producer{ID: o.txn.ID, Epoch: o.txn.Epoch},
	})
}

// refuseAll answers every partition with an error, and commits none.
func (o *offsetCommitting) refuseAll(err *kerr.Error) {
	for i := range o.resp.Topics {
		for j := range o.resp.Topics[i].Partitions {
			o.resp.Topics[i].Partitions[j].ErrorCode = err.Code
		}
	}
	o.plain.Offsets, o.plainAt, o.parts, o.partsAt = nil, nil, nil, nil
}

// topic takes over what the request commits of one topic, as far as there is such a topic.
func (o *offsetCommitting) topic(req *kmsg.OffsetCommitRequestTopic, at *kmsg.OffsetCommitResponseTopic, err error) {
	t, refused := o.b.topics.find(req.Topic, metadata.TopicID(req.TopicID), o.byID)
	if errors.Is(refused, kerr.InvalidTopicException) {
		refused = kerr.UnknownTopicOrPartition
	}
	at.Topic, at.TopicID = strings.Clone(req.Topic), req.TopicID
	at.Partitions = make([]kmsg.OffsetCommitResponseTopicPartition, len(req.Partitions))
	for i := range req.Partitions {
		p, answer := &req.Partitions[i], &at.Partitions[i]
		answer.Partition, answer.ErrorCode = p.Partition, code(refused)
		switch {
		case refused != nil:
		case err != nil:
			answer.ErrorCode = o.b.codeOf(err)
		case t.partition(p.Partition) == nil:
			answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
		default:
			if err := o.partition(t, p, answer); err != nil {
				answer.ErrorCode = o.b.codeOf(err)
			}
		}
	}
}

// partition takes over what the request commits of one partition, to where it belongs.
func (o *offsetCommitting) partition(t *topic, p *kmsg.OffsetCommitRequestTopicPartition, answer *kmsg.OffsetCommitResponseTopicPartition) error {
	tp := extension.TopicPartition{Topic: t.id, Partition: p.Partition}
	field, individual := extensionField(&p.UnknownTags)
	if o.shared != nil && !individual {
		return group.ErrShareGroup
	}
	if !individual && !o.hasLedger(tp) {
		o.plainAt = append(o.plainAt, answer)
		o.plain.Offsets = append(o.plain.Offsets, group.CommitOffset{
			TopicPartition: group.TopicPartition{Topic: t.name, Partition: p.Partition},
			TopicID:        t.id, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: strings.Clone(orEmpty(p.Metadata)),
		})
		return nil
	}
	commit := ledgers.PartitionCommit{TopicPartition: tp, Individual: individual, Origin: protocol.NoOrigin}
	commit.Offset = p.Offset
	if individual {
		if err := o.individual(t, field, &commit); err != nil {
			return err
		}
	}
	if p.Offset != individualcommit.NoOffset {
		metadata := strings.Clone(orEmpty(p.Metadata))
		if len(metadata) > o.b.settings().Groups.OffsetMetadataMaxBytes {
			return kerr.OffsetMetadataTooLarge
		}
		commit.Metadata = &metadata
	}
	o.parts, o.partsAt = append(o.parts, commit), append(o.partsAt, answer)
	return nil
}

// individual takes over the extension's field.
func (o *offsetCommitting) individual(t *topic, field []byte, commit *ledgers.PartitionCommit) error {
	if !o.b.individualCommitEnabled() {
		return refusal(kerr.InvalidRequest, "individual.commit.enable is false for this broker")
	}
	if !t.settings.Load().individualCommit {
		return refusal(kerr.PolicyViolation, "individual.commit.enable is false for topic %s", t.name)
	}
	var offsets protocol.IndividualOffsets
	err := offsets.Parse(field, &o.budget)
	switch {
	case errors.Is(err, protocol.ErrOverLimit):
		o.overLimit = true
		return err
	case err != nil:
		return err
	case o.txn != nil && len(offsets.Reopen) > 0:
		return refusal(kerr.InvalidRequest, "a transaction reopens nothing")
	case len(offsets.Commit)+len(offsets.Reopen) == 0 && offsets.Origin < 0:
		return refusal(kerr.InvalidRequest, "nothing is committed, nothing reopened, and no origin named")
	case commit.Offset < individualcommit.NoOffset:
		return refusal(kerr.InvalidRequest, "committed offset %d", commit.Offset)
	}
	commit.Commit, commit.Reopen, commit.Origin = offsets.Commit, offsets.Reopen, offsets.Origin
	return nil
}

// await waits until the commit is durable.
func (o *offsetCommitting) await(ctx context.Context) kmsg.Response {
	if o.commit != nil {
		o.awaitPlain(ctx)
	}
	if o.ledgers != nil {
		o.answerParts(o.ledgers.Wait(ctx))
	}
	if o.staged != nil {
		o.answerParts(o.staged.wait(ctx))
	}
	return o.resp
}

func (o *offsetCommitting) awaitPlain(ctx context.Context) {
	errs, err := o.commit.Wait(ctx)
	for i, at := range o.plainAt {
		switch {
		case err != nil:
			at.ErrorCode = o.b.codeOf(o.told(err))
		case errs != nil:
			at.ErrorCode = code(errs[i])
		}
	}
}

func (o *offsetCommitting) answerParts(results []ledgers.Result) {
	for i, result := range results {
		at := o.partsAt[i]
		if result.Err != nil {
			at.ErrorCode = o.b.codeOf(o.told(result.Err))
			continue
		}
		if o.parts[i].Individual {
			state := protocol.IndividualState{Stable: result.Stable, MaxCommit: result.MaxCommit}
			at.UnknownTags.Set(protocol.ExtensionTag, state.AppendTo(nil))
		}
	}
}
