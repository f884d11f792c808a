package protocol

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func drawTags(t *rapid.T, what string) (tags kmsg.Tags) {
	for range rapid.IntRange(0, 2).Draw(t, what+" tags") {
		tags.Set(rapid.Uint32Range(3, 20000).Draw(t, what+" tag"), rapid.SliceOfN(rapid.Byte(), 1, 5).Draw(t, what+" value"))
	}
	return tags
}

func drawFetchPartition(t *rapid.T) kmsg.FetchResponseTopicPartition {
	p := kmsg.NewFetchResponseTopicPartition()
	p.Partition = rapid.Int32().Draw(t, "partition")
	p.ErrorCode = rapid.Int16().Draw(t, "error")
	p.HighWatermark = rapid.Int64().Draw(t, "high watermark")
	p.LastStableOffset = rapid.Int64().Draw(t, "last stable offset")
	p.LogStartOffset = rapid.Int64().Draw(t, "log start")
	p.PreferredReadReplica = rapid.Int32().Draw(t, "replica")
	p.RecordBatches = rapid.SliceOfN(rapid.Byte(), 0, 200).Draw(t, "records")
	if rapid.Bool().Draw(t, "aborted") {
		p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
		for range rapid.IntRange(0, 3).Draw(t, "aborted") {
			txn := kmsg.NewFetchResponseTopicPartitionAbortedTransaction()
			txn.ProducerID = rapid.Int64().Draw(t, "producer")
			txn.FirstOffset = rapid.Int64().Draw(t, "first offset")
			txn.UnknownTags = drawTags(t, "aborted")
			p.AbortedTransactions = append(p.AbortedTransactions, txn)
		}
	}
	if rapid.Bool().Draw(t, "diverging") {
		p.DivergingEpoch.Epoch = rapid.Int32().Draw(t, "diverging epoch")
		p.DivergingEpoch.EndOffset = rapid.Int64().Draw(t, "diverging end")
	}
	if rapid.Bool().Draw(t, "leader") {
		p.CurrentLeader.LeaderID = rapid.Int32().Draw(t, "leader id")
		p.CurrentLeader.LeaderEpoch = rapid.Int32().Draw(t, "leader epoch")
	}
	if rapid.Bool().Draw(t, "snapshot") {
		p.SnapshotID.EndOffset = rapid.Int64().Draw(t, "snapshot end")
		p.SnapshotID.Epoch = rapid.Int32().Draw(t, "snapshot epoch")
	}
	p.UnknownTags = drawTags(t, "partition")
	return p
}

func drawFetchResponse(t *rapid.T, version int16) *kmsg.FetchResponse {
	resp := kmsg.NewPtrFetchResponse()
	resp.Version = version
	resp.ThrottleMillis = rapid.Int32().Draw(t, "throttle")
	resp.ErrorCode = rapid.Int16().Draw(t, "error")
	resp.SessionID = rapid.Int32().Draw(t, "session")
	resp.UnknownTags = drawTags(t, "response")
	for range rapid.IntRange(0, 3).Draw(t, "topics") {
		topic := kmsg.NewFetchResponseTopic()
		topic.Topic = rapid.StringN(0, 200, -1).Draw(t, "topic")
		copy(topic.TopicID[:], rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "id"))
		topic.UnknownTags = drawTags(t, "topic")
		for range rapid.IntRange(0, 3).Draw(t, "partitions") {
			topic.Partitions = append(topic.Partitions, drawFetchPartition(t))
		}
		resp.Topics = append(resp.Topics, topic)
	}
	for range rapid.IntRange(0, 2).Draw(t, "brokers") {
		b := kmsg.NewFetchResponseBroker()
		b.NodeID = rapid.Int32().Draw(t, "node")
		b.Host = rapid.StringN(0, 20, -1).Draw(t, "host")
		b.Port = rapid.Int32().Draw(t, "port")
		if rapid.Bool().Draw(t, "rack") {
			b.Rack = kmsg.StringPtr(rapid.StringN(0, 5, -1).Draw(t, "rack name"))
		}
		b.UnknownTags = drawTags(t, "broker")
		resp.Brokers = append(resp.Brokers, b)
	}
	return resp
}

// TestFetchResponse compares with kmsg's encoder and decoder, for every version.
func TestFetchResponse(t *testing.T) {
	for version := int16(0); version <= kmsg.NewPtrFetchResponse().MaxVersion(); version++ {
		rapid.Check(t, func(t *rapid.T) {
			resp := drawFetchResponse(t, version)
			const prefix = "kept"
			head, parts := AppendFetchResponse([]byte(prefix), nil, resp)
			var whole []byte
			at := 0
			for _, p := range parts {
				require.NotEmpty(t, p.Bytes)
				require.GreaterOrEqual(t, p.At, at)
				whole = append(append(whole, head[at:p.At]...), p.Bytes...)
				at = p.At
			}
			whole = append(whole, head[at:]...)
			require.Equal(t, prefix, string(whole[:len(prefix)]))
			whole = whole[len(prefix):]
			require.Equal(t, resp.AppendTo(nil), whole)

			decoded := kmsg.NewPtrFetchResponse()
			decoded.Version = version
			require.NoError(t, decoded.ReadFrom(whole))
			require.Equal(t, whole, decoded.AppendTo(nil))
		})
	}
}

func TestFetchResponseWithoutRecords(t *testing.T) {
	for version := int16(4); version <= 18; version++ {
		resp := kmsg.NewPtrFetchResponse()
		resp.Version = version
		topic := kmsg.NewFetchResponseTopic()
		topic.Partitions = append(topic.Partitions, kmsg.NewFetchResponseTopicPartition())
		resp.Topics = append(resp.Topics, topic)
		b, parts := AppendFetchResponse(nil, nil, resp)
		require.Empty(t, parts)
		decoded := kmsg.NewPtrFetchResponse()
		decoded.Version = version
		require.NoError(t, decoded.ReadFrom(b))
		require.NotNil(t, decoded.Topics[0].Partitions[0].RecordBatches, "empty rather than null")
		require.Nil(t, decoded.Topics[0].Partitions[0].AbortedTransactions)
	}
}
