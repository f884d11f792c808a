package broker

import (
	"context"
	"strings"
	"unicode/utf8"

	"github.com/lacunamq/lacuna/broker/dealer"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// shareAcks are the acknowledgements that one request carries, partition by partition.
type shareAcks struct {
	b     *Broker
	m     shareMember
	renew bool // renewals are allowed
	parts []shareAck
	acks  []cooperative.Ack
}

// shareAck is what became of the acknowledgements of one partition.
type shareAck struct {
	extension.TopicPartition
	begun dealer.Acknowledgement
	err   error
}

// ackBatch is one batch of acknowledgements: one type for all its offsets, or one for
// each. That of ShareFetch is made of the same fields.
type ackBatch = kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch

// add takes in one batch.
func (a *shareAcks) add(batch *ackBatch) error {
	first, last, types := batch.FirstOffset, batch.LastOffset, batch.AcknowledgeTypes
	n := len(types)
	switch {
	case first < 0 || last < first:
		return refusal(kerr.InvalidRequest, "acknowledgement of offsets %d to %d", first, last)
	case n == 0 || n > 1 && int64(n) != last-first+1:
		return refusal(kerr.InvalidRequest, "%d acknowledge types for offsets %d to %d", n, first, last)
	case len(a.acks) > 0 && a.acks[len(a.acks)-1].End > first:
		return refusal(kerr.InvalidRequest, "acknowledgements out of order at offset %d", first)
	}
	for i, t := range types {
		kind := cooperative.AckType(t)
		if kind < cooperative.Gap || kind > cooperative.Renew || kind == cooperative.Renew && !a.renew {
			return refusal(kerr.InvalidRequest, "acknowledge type %d", t)
		}
		run := cooperative.Run{Start: first + int64(i), End: first + int64(i) + 1}
		if n == 1 {
			run.End = last + 1
		}
		if end := len(a.acks) - 1; i > 0 && a.acks[end].Type == kind {
			a.acks[end].End = run.End
			continue
		}
		a.acks = append(a.acks, cooperative.Ack{Run: run, Type: kind})
	}
	return nil
}

// begin carries out n batches of one partition, unless one of them is wrong.
func (a *shareAcks) begin(tp extension.TopicPartition, n int, batch func(i int) *ackBatch) {
	part := shareAck{TopicPartition: tp}
	for i := 0; i < n && part.err == nil; i++ {
		part.err = a.add(batch(i))
	}
	switch {
	case part.err != nil:
	case a.b.topics.partitionOf(tp.Topic, tp.Partition) == nil:
		part.err = a.b.unknownPartition(tp)
	case len(a.acks) > 0:
		part.begun = a.b.dealer.BeginAcknowledge(a.m.group, a.m.member, tp, a.acks)
	}
	a.parts = append(a.parts, part)
	a.acks = a.acks[:0]
}

// wait waits until all that was begun is durable, which it soon is, whether the client is
// still there or not.
func (a *shareAcks) wait(ctx context.Context) {
	ctx = context.WithoutCancel(ctx)
	for i := range a.parts {
		if p := &a.parts[i]; p.err == nil {
			p.err = p.begun.Wait(ctx)
		}
	}
}

// memberOf is who sends a share request. It outlives the request's frame, which others may
// fill while an acknowledgement waits for the disk.
func memberOf(group, member *string) (shareMember, error) {
	switch {
	case group == nil || *group == "" || member == nil || *member == "":
		return shareMember{}, refusal(kerr.InvalidRequest, "a share request without group or member")
	case utf8.RuneCountInString(*member) > share.MaxMemberID:
		return shareMember{}, refusal(kerr.InvalidRequest, "a member id of more than %d characters", share.MaxMemberID)
	}
	return shareMember{strings.Clone(*group), strings.Clone(*member)}, nil
}

// endShareSession ends the session of a member that says itself that it goes.
func (b *Broker) endShareSession(m shareMember) {
	b.shareSessions.end(m)
	b.dealer.EndSession(m.group, m.member, true)
}

// disconnected ends the share sessions of a connection that is gone.
func (b *Broker) disconnected(c *conn) {
	if b.shareSessions == nil {
		return
	}
	for _, m := range b.shareSessions.endAll(c) {
		b.dealer.EndSession(m.group, m.member, false)
	}
}
