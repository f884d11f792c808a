package broker_test

import (
	"testing"

	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// transactional sends what a transactional producer sends, request by request.
type transactional struct {
	t  *testing.T
	cl *kgo.Client
	id string
	kmsg.InitProducerIDResponse
}

func newTransactional(t *testing.T, b *broker.Broker, id string) *transactional {
	x := &transactional{t: t, cl: client(t, b), id: id}
	init := kmsg.NewPtrInitProducerIDRequest()
	init.TransactionalID, init.TransactionTimeoutMillis = &id, 60_000
	resp, err := init.RequestWith(t.Context(), x.cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
	x.InitProducerIDResponse = *resp
	return x
}

// stage commits an offset of partition 0 of a topic in the transaction.
func (x *transactional) stage(group, topic string, offset int64) {
	x.t.Helper()
	req := kmsg.NewPtrTxnOffsetCommitRequest()
	req.TransactionalID, req.Group, req.ProducerID, req.ProducerEpoch, req.Generation = x.id, group, x.ProducerID, x.ProducerEpoch, -1
	p := kmsg.NewTxnOffsetCommitRequestTopicPartition()
	p.Offset = offset
	topics, err := kadm.NewClient(x.cl).ListTopics(x.t.Context(), topic)
	require.NoError(x.t, err)
	req.Topics = []kmsg.TxnOffsetCommitRequestTopic{{Topic: topic, TopicID: topics[topic].ID, Partitions: []kmsg.TxnOffsetCommitRequestTopicPartition{p}}}
	add := kmsg.NewPtrAddOffsetsToTxnRequest()
	add.TransactionalID, add.Group, add.ProducerID, add.ProducerEpoch = x.id, group, x.ProducerID, x.ProducerEpoch
	added, err := add.RequestWith(x.t.Context(), x.cl)
	require.NoError(x.t, err)
	require.NoError(x.t, kerr.ErrorForCode(added.ErrorCode))
	resp, err := req.RequestWith(x.t.Context(), x.cl)
	require.NoError(x.t, err)
	require.NoError(x.t, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
}

func (x *transactional) end(commit bool) {
	x.t.Helper()
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = x.id, x.ProducerID, x.ProducerEpoch, commit
	resp, err := req.RequestWith(x.t.Context(), x.cl)
	require.NoError(x.t, err)
	require.NoError(x.t, kerr.ErrorForCode(resp.ErrorCode))
	if resp.ProducerID >= 0 {
		x.ProducerID, x.ProducerEpoch = resp.ProducerID, resp.ProducerEpoch
	}
}

// TestStableOffsets holds that an offset which a transaction may change is shown to nobody
// who asks for stable ones, and that others see what is committed.
func TestStableOffsets(t *testing.T) {
	b := start(t, nil)
	w := dial(t, b)
	makeTopic(t, w, "input")
	fetch := func(version int16, stable bool) (int64, error) {
		t.Helper()
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Group, req.RequireStable = "g", stable
		req.Topics = []kmsg.OffsetFetchRequestTopic{{Topic: "input", Partitions: []int32{0, 1}}}
		req.Groups = []kmsg.OffsetFetchRequestGroup{{Group: "g", MemberEpoch: -1, Topics: []kmsg.OffsetFetchRequestGroupTopic{
			{Topic: "input", Partitions: []int32{0, 1}},
		}}}
		w.send(w.frame(req, version))
		resp := kmsg.OffsetFetchResponse{Version: version}
		w.receive(&resp)
		if version < 8 {
			require.Zero(t, resp.ErrorCode)
			require.Zero(t, resp.Topics[0].Partitions[1].ErrorCode, "nothing happens to it")
			at := resp.Topics[0].Partitions[0]
			return at.Offset, kerr.ErrorForCode(at.ErrorCode)
		}
		require.Zero(t, resp.Groups[0].ErrorCode)
		require.Zero(t, resp.Groups[0].Topics[0].Partitions[1].ErrorCode, "nothing happens to it")
		at := resp.Groups[0].Topics[0].Partitions[0]
		return at.Offset, kerr.ErrorForCode(at.ErrorCode)
	}
	requireOffset := func(committed int64, open bool) {
		t.Helper()
		for _, version := range []int16{2, 6, 7, 8, 9} {
			for _, stable := range []bool{false, true} {
				offset, err := fetch(version, stable)
				if open && stable && version >= 7 {
					require.ErrorIs(t, err, kerr.UnstableOffsetCommit, "version %d", version)
					require.EqualValues(t, -1, offset)
					continue
				}
				require.NoError(t, err)
				require.Equal(t, committed, offset, "version %d", version)
			}
		}
	}
	x := newTransactional(t, b, "x")
	requireOffset(-1, false)
	x.stage("g", "input", 3)
	requireOffset(-1, true)
	x.end(true)
	requireOffset(3, false)
	x.stage("g", "input", 5)
	requireOffset(3, true)
	x.end(false)
	requireOffset(3, false)
}
