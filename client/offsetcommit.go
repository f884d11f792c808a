package client

import (
	"context"
	"fmt"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Run is a run of offsets, half-open: [Start, End).
type Run = protocol.Run

// change is what an OffsetCommit asks of one partition.
type change struct {
	tp TopicPartition
	id topicID
	// offset is a cumulative commit, applied before the runs; -1 for none.
	offset int64
	// metadata goes with offset; the individual runs keep what is there.
	metadata *string
	// individual are single offsets to commit or reopen; nil makes the commit one of
	// stock Kafka.
	individual *protocol.IndividualOffsets
}

// changed is the answer to a change.
type changed struct {
	tp    TopicPartition
	state protocol.IndividualState // if the change had individual offsets, and err is nil
	err   error                    // Kafka's, or ErrNoEcho
}

// commitOffsets sends one OffsetCommit to the group's coordinator, as a member, or with nil
// as an operator does. It answers for every change, in order. The error is about the request
// as a whole: then nothing is known about what was applied, and since commits are
// idempotent the same changes may be sent again.
func commitOffsets(ctx context.Context, cl *kgo.Client, group string, as *memberIdentity, changes []change) ([]changed, error) {
	req := commitRequest(group, changes)
	if as != nil {
		req.MemberID, req.InstanceID, req.Generation = as.member, as.instance, as.generation
	}
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return nil, fmt.Errorf("commit to group %s: %w", group, err)
	}
	out := make([]changed, 0, len(changes))
	for i := range changes {
		c := &changes[i]
		state, err := findChanged(resp, c)
		out = append(out, changed{tp: c.tp, state: state, err: err})
	}
	return out, nil
}

// commitRequest fills in names and ids, since which of them goes over the wire depends on
// the version that kgo and the broker agree on.
func commitRequest(group string, changes []change) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	index := make(map[string]int)
	for i := range changes {
		c := &changes[i]
		at, ok := index[c.tp.Topic]
		if !ok {
			at = len(req.Topics)
			index[c.tp.Topic] = at
			t := kmsg.NewOffsetCommitRequestTopic()
			t.Topic, t.TopicID = c.tp.Topic, c.id
			req.Topics = append(req.Topics, t)
		}
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = c.tp.Partition, c.offset, c.metadata
		if c.individual != nil {
			p.UnknownTags.Set(protocol.ExtensionTag, c.individual.AppendTo(nil))
		}
		req.Topics[at].Partitions = append(req.Topics[at].Partitions, p)
	}
	return req
}

// findChanged looks up the answer to c, and checks its echo.
func findChanged(resp *kmsg.OffsetCommitResponse, c *change) (protocol.IndividualState, error) {
	p, err := findPartition(resp.Topics, c.tp, c.id,
		func(t *kmsg.OffsetCommitResponseTopic) (string, topicID, []kmsg.OffsetCommitResponseTopicPartition) {
			return t.Topic, t.TopicID, t.Partitions
		}, func(p *kmsg.OffsetCommitResponseTopicPartition) int32 { return p.Partition })
	switch {
	case err != nil:
		return protocol.IndividualState{}, err
	case c.individual == nil:
		return protocol.IndividualState{}, kerr.ErrorForCode(p.ErrorCode)
	}
	return individualState(p.ErrorCode, &p.UnknownTags)
}
