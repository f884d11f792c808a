package broker

import (
	"context"
	"errors"
	"strings"

	"github.com/lacunamq/lacuna/broker/coordinator"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// OffsetCommit (8), versions 2 to 10.
//
// v5 took the retention away, v6 added leader epochs, v7 static members (KIP-345), v8
// flexible versions, v9 errors of KIP-848, v10 topic ids (KIP-848).
//
// A commit begins in the order of the connection; its answer waits until it is durable.
func (b *Broker) offsetCommit(c *call, req *kmsg.OffsetCommitRequest) func(context.Context) kmsg.Response {
	o := offsetCommitting{b: b, version: c.version, resp: req.ResponseKind().(*kmsg.OffsetCommitResponse)}
	// The request's strings are gone when this returns.
	commit := &group.CommitRequest{
		Identity: group.Identity{
			Group: strings.Clone(req.Group), MemberID: strings.Clone(req.MemberID),
			InstanceID: strings.Clone(orEmpty(req.InstanceID)), Generation: req.Generation,
		},
		RetentionMs: -1,
	}
	if c.version <= 4 {
		commit.RetentionMs = req.RetentionTimeMillis
	}
	o.resp.Topics = make([]kmsg.OffsetCommitResponseTopic, len(req.Topics))
	for i := range req.Topics {
		o.topic(&req.Topics[i], &o.resp.Topics[i], commit)
	}
	if len(commit.Offsets) == 0 {
		c.answer = o.resp
		return nil
	}
	o.commit = b.groups.BeginCommit(commit)
	return o.await
}

// offsetCommitting is a commit under way.
type offsetCommitting struct {
	b       *Broker
	version int16
	resp    *kmsg.OffsetCommitResponse
	begun   []*kmsg.OffsetCommitResponseTopicPartition // in the order of the commit
	commit  coordinator.Commit
}

// topic takes over what the request commits of one topic, as far as there is such a topic.
func (o *offsetCommitting) topic(req *kmsg.OffsetCommitRequestTopic, at *kmsg.OffsetCommitResponseTopic, commit *group.CommitRequest) {
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
		case t.partition(p.Partition) == nil:
			answer.ErrorCode = kerr.UnknownTopicOrPartition.Code
		default:
			o.begun = append(o.begun, answer)
			commit.Offsets = append(commit.Offsets, group.CommitOffset{
				TopicPartition: group.TopicPartition{Topic: t.name, Partition: p.Partition},
				TopicID:        t.id, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: strings.Clone(orEmpty(p.Metadata)),
			})
		}
	}
}

// await waits until the commit is durable.
func (o *offsetCommitting) await(ctx context.Context) kmsg.Response {
	errs, err := o.commit.Wait(ctx)
	for i, at := range o.begun {
		switch {
		case err != nil:
			at.ErrorCode = o.b.codeOf(commitError(err, o.version))
		case errs != nil:
			at.ErrorCode = code(errs[i])
		}
	}
	return o.resp
}

// commitError is what a client of that version understands.
func commitError(err error, version int16) error {
	if version < 9 && errors.Is(err, kerr.GroupIDNotFound) {
		return kerr.IllegalGeneration
	}
	return err
}
