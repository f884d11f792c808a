package broker

import (
	"testing"
	"unsafe"

	"github.com/lacunamq/lacuna/broker/dealer"
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Names in a decoded request alias its frame, which is used again as soon as an
// acknowledgement has begun. Who sent it is needed once more for the answer.
func TestShareMemberOutlivesItsFrame(t *testing.T) {
	frame := []byte("group,member")
	group, member := unsafe.String(&frame[0], 5), unsafe.String(&frame[6], 6)
	m, err := memberOf(&group, &member)
	require.NoError(t, err)
	copy(frame, "other bytes now")
	require.Equal(t, shareMember{"group", "member"}, m)
}

// A log that is being closed has no leader to go to, and least of all broker 0.
func TestNoLeaderIsNamed(t *testing.T) {
	var resp kmsg.ShareAcknowledgeResponse
	(&Broker{}).answerAcks(&resp, []shareAck{{err: commitlog.ErrClosed}})
	p := resp.Topics[0].Partitions[0]
	require.Equal(t, kerr.NotLeaderForPartition.Code, p.ErrorCode)
	require.EqualValues(t, -1, p.CurrentLeader.LeaderID)

	var fetched kmsg.ShareFetchResponse
	r := shareRead{b: &Broker{}, targets: make([]extension.TopicPartition, 1), dealt: []dealer.Dealt{{Err: commitlog.ErrClosed}}}
	r.answer(t.Context(), &fetched, nil)
	at := fetched.Topics[0].Partitions[0]
	require.Equal(t, kerr.NotLeaderForPartition.Code, at.ErrorCode)
	require.EqualValues(t, -1, at.CurrentLeader.LeaderID)
}
