package broker_test

import (
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// sendNoMore has the broker see the end of what a client sends while a fetch of an empty
// topic waits, and only then carry out what was sent behind that.
func sendNoMore(t *testing.T, c *wire, behind []byte) {
	t.Helper()
	c.send(c.frame(fetchRequest("empty", 0, time.Minute), 12), behind)
	require.NoError(t, c.conn.(*net.TCPConn).CloseWrite())
	resp := kmsg.FetchResponse{Version: 12}
	c.receive(&resp)
	require.Zero(t, resp.Topics[0].Partitions[0].ErrorCode)
}

// receiveShare is what a share fetch was answered of partition 0.
func (w *wire) receiveShare() kmsg.ShareFetchResponseTopicPartition {
	w.t.Helper()
	resp := kmsg.ShareFetchResponse{Version: 2}
	w.receive(&resp)
	require.NoError(w.t, kerr.ErrorForCode(resp.ErrorCode))
	require.Len(w.t, resp.Topics, 1)
	p := resp.Topics[0].Partitions[0]
	require.NoError(w.t, kerr.ErrorForCode(p.ErrorCode))
	require.NoError(w.t, kerr.ErrorForCode(p.AcknowledgeErrorCode))
	return p
}

// TestAClientThatSendsNoMoreIsAnswered without records, which it could not acknowledge.
func TestAClientThatSendsNoMoreIsAnswered(t *testing.T) {
	b := start(t, nil)
	shareTopic(t, b)
	c := dial(t, b)
	makeTopic(t, c, "empty")
	one := joinShare(t, b, "g", "one", "jobs")
	c.send(c.frame(one.request(1), 2))
	require.Len(t, c.receiveShare().AcquiredRecords, 1)
	sendNoMore(t, c, c.frame(one.request(1, ack(0, 0, 1)), 2))
	require.Empty(t, c.receiveShare().AcquiredRecords)
	c.requireClosed()

	c = dial(t, b)
	two := joinShare(t, b, "g", "two", "jobs")
	sendNoMore(t, c, c.frame(two.request(1), 2))
	require.Empty(t, c.receiveShare().AcquiredRecords)
	c.requireClosed()
	joinShare(t, b, "g", "three", "jobs").requireDealt("1-2")
}

// TestAnAcknowledgementOnAHalfClosedConnectionIsAnswered when it is durable.
func TestAnAcknowledgementOnAHalfClosedConnectionIsAnswered(t *testing.T) {
	b := start(t, nil)
	shareTopic(t, b)
	one := joinShare(t, b, "g", "one", "jobs")
	half := dial(t, b)
	half.send(half.frame(one.request(1), 2))
	require.Len(t, half.receiveShare().AcquiredRecords, 1)
	req := kmsg.NewPtrShareAcknowledgeRequest()
	req.GroupID, req.MemberID, req.ShareSessionEpoch = &one.group, &one.member, one.epoch
	req.Topics = []kmsg.ShareAcknowledgeRequestTopic{{TopicID: one.topic, Partitions: []kmsg.ShareAcknowledgeRequestTopicPartition{{
		AcknowledgementBatches: []kmsg.ShareAcknowledgeRequestTopicPartitionAcknowledgementBatch{{LastOffset: 0, AcknowledgeTypes: []int8{1}}},
	}}}}
	half.send(half.frame(req, 2))
	require.NoError(t, half.conn.(*net.TCPConn).CloseWrite())
	resp := kmsg.ShareAcknowledgeResponse{Version: 2}
	half.receive(&resp)
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	require.NoError(t, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
	half.requireClosed()
	joinShare(t, b, "g", "other", "jobs").requireDealt("1-2")
}
