package tests

import (
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// TestAskingForMuchManyTimes asks for the same large thing again and again in one
// request, whose answer would be thousands of times as large.
func TestAskingForMuchManyTimes(t *testing.T) {
	for _, req := range repeated("wide", "gaps", 4000) {
		t.Run(kmsg.NameForKey(req.Key()), func(t *testing.T) {
			p := startProcess(t, t.TempDir(), smallMemory...)
			c := dial(t, p.addr)
			require.NoError(t, c.CreateTopic("wide", 1000, nil))
			foundLedger(t, c, "gaps", "holes", 50_000)
			quiet := startCalm(t, p.addr, "calm")
			sendAtOnce(t, p.addr, 4, []kmsg.Request{req})
			p.running()
			quiet.undisturbed(t)
			peak := p.stop()
			t.Logf("memory: at most %d MiB", peak>>20)
			require.LessOrEqual(t, peak, int64(memoryLimit))
		})
	}
}

// foundLedger appends records to a topic and commits every second one for a group.
func foundLedger(t *testing.T, c *wire.Conn, group, topic string, gaps int) {
	t.Helper()
	_, err := c.MakeTopic(topic)
	require.NoError(t, err)
	values := make([][]byte, 1000)
	batch := batchOf(t, values...)
	for at := 0; at < 2*gaps; at += len(values) {
		resp, err := c.Do(wire.ProduceRequest(topic, 0, -1, batch))
		require.NoError(t, err)
		_, err = wire.ProducedAt(resp)
		require.NoError(t, err)
	}
	runs := make([]protocol.Run, gaps)
	for i := range runs {
		runs[i] = protocol.Run{Start: int64(2*i + 1), End: int64(2*i + 2)}
	}
	_, err = c.CommitIndividually(group, topic, 0, protocol.IndividualOffsets{Commit: runs, Origin: protocol.NoOrigin})
	require.NoError(t, err)
}

// repeated are requests that name one topic or group n times.
func repeated(topic, group string, n int) []kmsg.Request {
	topics := kmsg.NewPtrMetadataRequest()
	topics.SetVersion(12)
	partitions := kmsg.NewPtrDescribeTopicPartitionsRequest()
	partitions.ResponsePartitionLimit = 1 << 30
	settings := kmsg.NewPtrDescribeConfigsRequest()
	settings.SetVersion(4)
	settings.IncludeDocumentation, settings.IncludeSynonyms = true, true
	groups := kmsg.NewPtrDescribeGroupsRequest()
	groups.SetVersion(5)
	offsets := kmsg.NewPtrOffsetFetchRequest()
	offsets.SetVersion(9)
	dirs := kmsg.NewPtrDescribeLogDirsRequest()
	dirs.SetVersion(4)
	for range n {
		topics.Topics = append(topics.Topics, kmsg.MetadataRequestTopic{Topic: &topic})
		partitions.Topics = append(partitions.Topics, kmsg.DescribeTopicPartitionsRequestTopic{Topic: topic})
		settings.Resources = append(settings.Resources, kmsg.DescribeConfigsRequestResource{ResourceType: kmsg.ConfigResourceTypeTopic, ResourceName: topic})
		groups.Groups = append(groups.Groups, group)
		g := kmsg.NewOffsetFetchRequestGroup()
		g.Group = group
		g.UnknownTags.Set(protocol.ExtensionTag, (&protocol.GapsRequest{}).AppendTo(nil))
		offsets.Groups = append(offsets.Groups, g)
		dirs.Topics = append(dirs.Topics, kmsg.DescribeLogDirsRequestTopic{Topic: topic, Partitions: make([]int32, 10)})
	}
	return []kmsg.Request{topics, partitions, settings, groups, offsets, dirs}
}
