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

// stageRuns commits single offsets of partition 0 of a topic in the transaction.
func (x *transactional) stageRuns(l ledger, runs ...protocol.Run) {
	x.t.Helper()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = x.id, l.group, x.ProducerID, x.ProducerEpoch, -1
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Offset = -1
	p.UnknownTags.Set(protocol.ExtensionTag, (&protocol.IndividualOffsets{Commit: runs, Origin: protocol.NoOrigin}).AppendTo(nil))
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: l.topic, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{p}}}
	l.send(l.frame(req, 5))
	resp := kmsg.TxnOffsetCommitResponse{Version: 5}
	l.receive(&resp)
	require.NoError(x.t, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

// TestGapsTellWhatIsPending asks for what open transactions hold, all at once and in pages.
func TestGapsTellWhatIsPending(t *testing.T) {
	b := start(t, nil)
	l := ledgerOf(t, b, "input", 12)
	none := &protocol.Pending{CompleteTo: protocol.GapsComplete}
	_, gaps := l.gapsAsked(protocol.GapsRequest{MaxPending: 10})
	require.Equal(t, none, gaps.Pending, "there is no ledger yet")
	_, err := l.commit(-1, runs(protocol.Run{Start: 5, End: 6}))
	require.NoError(t, err)
	_, gaps = l.gapsAsked(protocol.GapsRequest{MaxPending: 10})
	require.Equal(t, none, gaps.Pending)

	x, y := newTransactional(t, b, "x"), newTransactional(t, b, "y")
	x.stageRuns(l, protocol.Run{Start: 3, End: 5}, protocol.Run{Start: 8, End: 9})
	y.stageRuns(l, protocol.Run{Start: 9, End: 11})
	y.stage(l.group, l.topic, 2)
	ofX := protocol.PendingCommit{ProducerID: x.ProducerID, ProducerEpoch: x.ProducerEpoch, Offset: protocol.NoOffset,
		Runs: []protocol.Run{{Start: 3, End: 5}, {Start: 8, End: 9}}}
	ofY := protocol.PendingCommit{ProducerID: y.ProducerID, ProducerEpoch: y.ProducerEpoch, Offset: 2, Runs: []protocol.Run{{Start: 9, End: 11}}}
	_, gaps = l.gapsAsked(protocol.GapsRequest{MaxPending: 10})
	require.Equal(t, []protocol.Run{{Start: 0, End: 5}}, gaps.Gaps, "what is pending is not committed")
	require.Equal(t, &protocol.Pending{CompleteTo: protocol.GapsComplete, Transactions: []protocol.PendingCommit{ofX, ofY}}, gaps.Pending)
	_, gaps = l.gaps()
	require.Nil(t, gaps.Pending, "nobody asked")

	_, gaps = l.gapsAsked(protocol.GapsRequest{From: 4, MaxPending: 1})
	require.EqualValues(t, 8, gaps.Pending.CompleteTo)
	require.Equal(t, []protocol.Run{{Start: 4, End: 5}}, gaps.Pending.Transactions[0].Runs)
	x.end(true)
	y.end(false)
	_, gaps = l.gapsAsked(protocol.GapsRequest{MaxPending: 10})
	require.Equal(t, none, gaps.Pending)
	require.Equal(t, []protocol.Run{{Start: 0, End: 3}, {Start: 6, End: 8}}, gaps.Gaps)
}
