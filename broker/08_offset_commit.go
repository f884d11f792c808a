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
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit (8), versions 2 to 10.
//
// v5 took the retention away, v6 added leader epochs, v7 static members (KIP-345), v8
// flexible versions, v9 errors of KIP-848, v10 topic ids (KIP-848).
//
// From version 8 on a partition may carry IndividualOffsets, and is then answered with
// IndividualState (docs/protocol.md). What it commits, and every commit of a partition
// that has a ledger, goes to the ledger.
//
// A commit begins in the order of the connection; its answer waits until it is durable.
func (b *Broker) offsetCommit(c *call, req *kmsg.OffsetCommitRequest) func(context.Context) kmsg.Response {
	o := &offsetCommitting{b: b, version: c.version, resp: req.ResponseKind().(*kmsg.OffsetCommitResponse)}
	// The request's strings are gone when this returns.
	o.plain = group.CommitRequest{
		Identity: group.Identity{
			Group: strings.Clone(req.Group), MemberID: strings.Clone(req.MemberID),
			InstanceID: strings.Clone(orEmpty(req.InstanceID)), Generation: req.Generation,
		},
		RetentionMs: -1,
	}
	if c.version <= 4 {
		o.plain.RetentionMs = req.RetentionTimeMillis
	}
	o.begin(c.ctx, req)
	if o.commit == nil && o.ledgers == nil {
		c.answer = o.resp
		return nil
	}
	return o.await
}

// offsetCommitting is a commit under way: of some partitions in the primary topic, of
// others in their ledgers.
type offsetCommitting struct {
	b       *Broker
	version int16
	resp    *kmsg.OffsetCommitResponse

	plain   group.CommitRequest
	plainAt []*kmsg.OffsetCommitResponseTopicPartition // in the order of the commit
	commit  *coordinator.Commit

	hasLedger func(extension.TopicPartition) bool
	parts     []ledgers.PartitionCommit
	partsAt   []*kmsg.OffsetCommitResponseTopicPartition
	ledgers   *ledgers.Commit
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
		commit := o.b.groups.BeginCommit(&o.plain)
		o.commit = &commit
	}
	release()
	if len(o.parts) > 0 {
		o.ledgers = o.b.ledgers.Begin(ctx, &extension.Member{
			Group: o.plain.Group, MemberID: o.plain.MemberID, InstanceID: o.plain.InstanceID, Generation: o.plain.Generation,
		}, o.parts)
	}
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
	t, refused := o.b.topics.find(req.Topic, metadata.TopicID(req.TopicID), o.version >= 10)
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
		o.awaitLedgers(ctx)
	}
	return o.resp
}

func (o *offsetCommitting) awaitPlain(ctx context.Context) {
	errs, err := o.commit.Wait(ctx)
	for i, at := range o.plainAt {
		switch {
		case err != nil:
			at.ErrorCode = o.b.codeOf(commitError(err, o.version))
		case errs != nil:
			at.ErrorCode = code(errs[i])
		}
	}
}

func (o *offsetCommitting) awaitLedgers(ctx context.Context) {
	for i, result := range o.ledgers.Wait(ctx) {
		at := o.partsAt[i]
		if result.Err != nil {
			at.ErrorCode = o.b.codeOf(commitError(result.Err, o.version))
			continue
		}
		if o.parts[i].Individual {
			state := protocol.IndividualState{Stable: result.Stable, MaxCommit: result.MaxCommit}
			at.UnknownTags.Set(protocol.ExtensionTag, state.AppendTo(nil))
		}
	}
}

// commitError is what a client of that version understands.
func commitError(err error, version int16) error {
	if version < 9 && errors.Is(err, kerr.GroupIDNotFound) {
		return kerr.IllegalGeneration
	}
	return err
}
