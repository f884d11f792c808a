package broker_test

import (
	"testing"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestStableOffsetsOfALedger holds what TestStableOffsets does where a ledger stands behind
// the group: also a stock consumer's plain offset in a transaction is not to be seen.
func TestStableOffsetsOfALedger(t *testing.T) {
	b := start(t, nil)
	l := ledgerOf(t, b, "input", 8)
	_, err := l.commit(-1, runs(protocol.Run{Start: 5, End: 6}))
	require.NoError(t, err)
	requireStable := func(committed int64, want error) {
		t.Helper()
		req := kmsg.NewPtrOffsetFetchRequest()
		req.RequireStable = true
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group, g.Topics = l.group, []kmsg.OffsetFetchRequestGroupTopic{{Topic: l.topic, Partitions: []int32{0}}}
		req.Groups = append(req.Groups, g)
		l.send(l.frame(req, 9))
		resp := kmsg.OffsetFetchResponse{Version: 9}
		l.receive(&resp)
		at := &resp.Groups[0].Topics[0].Partitions[0]
		err := kerr.ErrorForCode(at.ErrorCode)
		if want != nil {
			require.ErrorIs(t, err, want)
			return
		}
		require.NoError(t, err)
		require.Equal(t, committed, at.Offset)
	}
	x := newTransactional(t, b, "x")
	requireStable(0, nil)
	x.stage(l.group, l.topic, 3)
	requireStable(0, kerr.UnstableOffsetCommit)
	x.end(true)
	requireStable(3, nil)
	x.stage(l.group, l.topic, 4)
	requireStable(0, kerr.UnstableOffsetCommit)
	x.end(false)
	requireStable(3, nil)
}
