package broker

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/broker/dealer"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// batchOptimized is the acquire mode in which stored batches are dealt whole; the other,
// 1, keeps the limit of records strictly.
const batchOptimized = 0

// ShareFetch (78), versions 1 to 2 (KIP-932): a member of a share group acquires records,
// and says what became of some that it acquired before.
//
// v1 replaced the limits in bytes of each partition by limits of records. v2 added the
// acquire mode (KIP-1206) and renewals (KIP-1222).
//
// A request may carry a KeyFilter, and the answer then carries FilterApplied: the member
// acquires only records that match. It belongs to this request; the session does not keep it.
//
// A client that has closed its side of the connection is answered, as in Kafka, and
// acquires nothing more, since the session ends with the connection.
func (b *Broker) shareFetch(c *call, req *kmsg.ShareFetchRequest) kmsg.Response {
	resp := req.ResponseKind().(*kmsg.ShareFetchResponse)
	refuse := func(err error) kmsg.Response {
		resp.ErrorCode, resp.ErrorMessage = b.errorAnswer(err)
		return resp
	}
	m, err := memberOf(req.GroupID, req.MemberID)
	if err != nil {
		return refuse(err)
	}
	if err := checkShareFetch(req); err != nil {
		return refuse(err)
	}
	filter, err := shareFilterOf(req)
	if err != nil {
		return refuse(err)
	}
	view, err := b.groups.Share(context.WithoutCancel(c.ctx), m.group)
	switch {
	case err != nil:
		return refuse(err)
	case view == nil || !view.Member(m.member):
		return refuse(fmt.Errorf("%q is no member of share group %q: %w", m.member, m.group, kerr.UnknownMemberID))
	}
	session, targets, refused := b.shareSessions.fetch(m, req.ShareSessionEpoch, c.conn, targetsOf(req))
	if errors.Is(refused, kerr.ShareSessionLimitReached) {
		pause(c.ctx, maxWait(req)) // as in Kafka: its client tries again at once
	}
	if refused != nil {
		return refuse(refused)
	}
	r := &shareRead{b: b, buf: fetchPool.Get().(*[]byte), full: req.ShareSessionEpoch == openShareSession, targets: targets}
	c.release, c.unsent = r.release, r.giveBack
	acks := r.acknowledge(m, req)
	if session == nil {
		b.endShareSession(m)
	} else if err := r.fetch(c.ctx, session, req, filter); err != nil {
		return refuse(err)
	}
	acks.wait(c.ctx)
	resp.AcquisitionLockTimeoutMillis = int32(b.dealer.LockMs(m.group))
	r.answer(c.ctx, resp, acks.parts)
	if filter != nil {
		resp.UnknownTags.Set(protocol.ExtensionTag, protocol.FilterApplied{}.AppendTo(nil))
	}
	return resp
}

// shareFilterOf gives the filter that a fetch carries, nil when it carries none.
func shareFilterOf(req *kmsg.ShareFetchRequest) (*dealer.Filter, error) {
	field, ok := extensionField(&req.UnknownTags)
	if !ok {
		return nil, nil
	}
	return dealer.NewFilter(field)
}

// checkShareFetch refuses what does not go together.
func checkShareFetch(req *kmsg.ShareFetchRequest) error {
	acks := slices.ContainsFunc(req.Topics, func(t kmsg.ShareFetchRequestTopic) bool {
		return slices.ContainsFunc(t.Partitions, func(p kmsg.ShareFetchRequestTopicPartition) bool { return len(p.AcknowledgementBatches) > 0 })
	})
	switch {
	case req.ShareSessionEpoch == openShareSession && acks:
		return refusal(kerr.InvalidRequest, "the first fetch of a share session acknowledges records")
	case req.ShareAcquireMode != batchOptimized && req.ShareAcquireMode != 1:
		return refusal(kerr.InvalidRequest, "share acquire mode %d", req.ShareAcquireMode)
	case req.IsRenewAck && (req.MaxBytes != 0 || req.MinBytes != 0 || req.MaxRecords != 0 || req.MaxWaitMillis != 0):
		return refusal(kerr.InvalidRequest, "a fetch that renews asks for records")
	}
	return nil
}

// targetsOf is what a request adds to what its session fetches, and takes away.
func targetsOf(req *kmsg.ShareFetchRequest) (t shareTargets) {
	for i := range req.Topics {
		for j := range req.Topics[i].Partitions {
			t.add = append(t.add, extension.TopicPartition{Topic: req.Topics[i].TopicID, Partition: req.Topics[i].Partitions[j].Partition})
		}
	}
	for i := range req.ForgottenTopicsData {
		for _, p := range req.ForgottenTopicsData[i].Partitions {
			t.forget = append(t.forget, extension.TopicPartition{Topic: req.ForgottenTopicsData[i].TopicID, Partition: p})
		}
	}
	return t
}

// query is what a request asks to be dealt.
func (b *Broker) query(m shareMember, req *kmsg.ShareFetchRequest, targets []extension.TopicPartition, filter *dealer.Filter) *dealer.Query {
	records := int(req.MaxRecords)
	if req.MaxBytes <= 0 {
		records = 0
	}
	return &dealer.Query{
		Group: m.group, Member: m.member, Partitions: targets,
		MaxRecords: records, BatchSize: int(max(req.BatchSize, 0)),
		MaxBytes:     min(int(max(req.MaxBytes, 0)), b.limits.fetchMaxBytes),
		WholeBatches: req.ShareAcquireMode == batchOptimized,
		Filter:       filter,
		MaxWait:      maxWait(req),
	}
}

// maxWait is how long a fetch is to wait that has nothing to be answered with.
func maxWait(req *kmsg.ShareFetchRequest) time.Duration {
	return time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond
}

// pause waits until the time is over or ctx ends.
func pause(ctx context.Context, d time.Duration) {
	ctx, cancel := context.WithTimeout(ctx, d)
	defer cancel()
	<-ctx.Done()
}
