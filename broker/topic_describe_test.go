package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func TestDescribeCluster(t *testing.T) {
	b := start(t, func(c *broker.Config) { c.Settings = map[string]string{"node.id": "7"} })
	cl := client(t, b)
	resp := ask[*kmsg.DescribeClusterResponse](t, cl, kmsg.NewPtrDescribeClusterRequest())
	require.Zero(t, resp.ErrorCode)
	require.EqualValues(t, 7, resp.ControllerID)
	require.Len(t, resp.ClusterID, 22)
	require.Len(t, resp.Brokers, 1)
	require.Equal(t, b.Addr(), fmt.Sprintf("%s:%d", resp.Brokers[0].Host, resp.Brokers[0].Port))
	require.EqualValues(t, -1<<31, resp.ClusterAuthorizedOperations)
	for endpoint, kind := range map[int8]*kerr.Error{2: kerr.MismatchedEndpointType, 3: kerr.UnsupportedEndpointType} {
		req := kmsg.NewPtrDescribeClusterRequest()
		req.EndpointType = endpoint
		require.Equal(t, kind.Code, ask[*kmsg.DescribeClusterResponse](t, cl, req).ErrorCode)
	}
}

func TestDescribeTopicPartitionsInPages(t *testing.T) {
	cl := client(t, start(t, nil))
	create(t, cl, "d1", "d2")
	describe := func(limit int32, cursor string, from int32, names ...string) string {
		req := kmsg.NewPtrDescribeTopicPartitionsRequest()
		req.ResponsePartitionLimit = limit
		for _, name := range names {
			req.Topics = append(req.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: name})
		}
		if cursor != "" {
			req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: cursor, Partition: from}
		}
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](t, cl, req)
		var parts []string
		for _, topic := range resp.Topics {
			var numbers []string
			for _, p := range topic.Partitions {
				numbers = append(numbers, fmt.Sprint(p.Partition))
			}
			parts = append(parts, fmt.Sprintf("%s %d [%s]", text(topic.Topic), topic.ErrorCode, strings.Join(numbers, " ")))
		}
		if c := resp.NextCursor; c != nil {
			parts = append(parts, fmt.Sprintf("next %s %d", c.Topic, c.Partition))
		}
		return strings.Join(parts, ", ")
	}
	require.Equal(t, "d1 0 [0 1 2], d2 0 [0 1 2]", describe(2000, "", 0, "d2", "d1"))
	require.Equal(t, "d1 0 [0 1], next d1 2", describe(2, "", 0, "d1", "d2"))
	require.Equal(t, "d1 0 [0 1 2], next d2 0", describe(3, "", 0, "d1", "d2"))
	require.Equal(t, "d1 0 [2], d2 0 [0], next d2 1", describe(2, "d1", 2, "d1", "d2"))
	require.Equal(t, "d1 0 [], d2 0 [0 1 2]", describe(5, "d1", 9, "d1", "d2"))
	require.Equal(t, "d1 0 [0], next d1 1", describe(0, "", 0, "d1"))
	require.Equal(t, "d1 0 [0 1 2], nope 3 []", describe(10, "", 0, "nope", "d1"))
	require.Equal(t, "a b 17 []", describe(10, "", 0, "a b"))

	// All topics, page by page, each partition once.
	seen := map[string]int{}
	req := kmsg.NewPtrDescribeTopicPartitionsRequest()
	req.ResponsePartitionLimit = 7
	for range 100 {
		resp := ask[*kmsg.DescribeTopicPartitionsResponse](t, cl, req)
		for _, topic := range resp.Topics {
			seen[text(topic.Topic)] += len(topic.Partitions)
		}
		if resp.NextCursor == nil {
			break
		}
		req.Cursor = &kmsg.DescribeTopicPartitionsRequestCursor{Topic: resp.NextCursor.Topic, Partition: resp.NextCursor.Partition}
	}
	require.Equal(t, map[string]int{"d1": 3, "d2": 3, "__consumer_offsets": 50, "__individual_commit_offsets": 50, "__transaction_state": 50}, seen)
}

func TestDescribeLogDirs(t *testing.T) {
	cl := client(t, start(t, nil), kgo.RecordPartitioner(kgo.ManualPartitioner()), kgo.ProducerBatchCompression(kgo.NoCompression()))
	create(t, cl, "t", "u")
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: 1, Value: make([]byte, 5000)}).FirstErr())
	describe := func(topics []kmsg.DescribeLogDirsRequestTopic) map[string]map[int32]int64 {
		req := kmsg.NewPtrDescribeLogDirsRequest()
		req.Topics = topics
		resp := ask[*kmsg.DescribeLogDirsResponse](t, cl, req)
		require.Len(t, resp.Dirs, 1)
		require.Zero(t, resp.Dirs[0].ErrorCode)
		sizes := map[string]map[int32]int64{}
		for _, topic := range resp.Dirs[0].Topics {
			sizes[topic.Topic] = map[int32]int64{}
			for _, p := range topic.Partitions {
				sizes[topic.Topic][p.Partition] = p.Size
			}
		}
		return sizes
	}
	all := describe(nil)
	require.Len(t, all, 5)
	require.Greater(t, all["t"][1], int64(5000))
	require.Equal(t, map[int32]int64{0: 0, 1: 0, 2: 0}, all["u"])
	some := describe([]kmsg.DescribeLogDirsRequestTopic{{Topic: "t", Partitions: []int32{1, 9}}, {Topic: "nope", Partitions: []int32{0}}, {Topic: "u"}})
	require.Equal(t, map[string]map[int32]int64{"t": {1: all["t"][1]}}, some)
	require.Empty(t, describe([]kmsg.DescribeLogDirsRequestTopic{}))
}
