package broker_test

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// quickShares lets members of share groups fall silent soon.
func quickShares(c *broker.Config) {
	c.Settings = map[string]string{
		"group.share.min.session.timeout.ms": "100", "group.share.min.heartbeat.interval.ms": "10",
		"group.share.session.timeout.ms": "60000", "group.share.heartbeat.interval.ms": "5000",
	}
}

// setGroup sets settings of a group.
func setGroup(t *testing.T, cl *kgo.Client, group string, settings ...string) {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for i := 0; i < len(settings); i += 2 {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = settings[i], &settings[i+1]
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.Resources[0].ErrorCode))
}

func beat(t *testing.T, cl *kgo.Client, group, member string, epoch int32, topics ...string) (*kmsg.ShareGroupHeartbeatResponse, error) {
	t.Helper()
	req := shareHeartbeat(group, member, epoch, topics...)
	req.Version = 1
	resp, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	return resp, kerr.ErrorForCode(resp.ErrorCode)
}

// partitionsOf counts the partitions that an answer assigns, -1 if it assigns none anew.
func partitionsOf(resp *kmsg.ShareGroupHeartbeatResponse) int {
	if resp.Assignment == nil {
		return -1
	}
	n := 0
	for _, t := range resp.Assignment.TopicPartitions {
		n += len(t.Partitions)
	}
	return n
}

func createTopic(t *testing.T, adm *kadm.Client, partitions int32, topic string) {
	t.Helper()
	_, err := adm.CreateTopic(t.Context(), partitions, 1, nil, topic)
	require.NoError(t, err)
}

// TestShareMembersWorkOnAllPartitions follows members through topics that come, grow and go.
func TestShareMembersWorkOnAllPartitions(t *testing.T) {
	b := start(t, quickShares)
	cl := client(t, b)
	adm := kadm.NewClient(cl)
	a, err := beat(t, cl, "g", "a", 0, "t", "later")
	require.NoError(t, err)
	require.Zero(t, partitionsOf(a), "none of its topics exists")
	require.EqualValues(t, 5000, a.HeartbeatIntervalMillis)

	createTopic(t, adm, 4, "t")
	a, err = beat(t, cl, "g", "a", a.MemberEpoch)
	require.NoError(t, err)
	require.Equal(t, 4, partitionsOf(a))
	for _, m := range []string{"b", "c"} {
		resp, err := beat(t, cl, "g", m, 0, "t")
		require.NoError(t, err)
		require.Equal(t, 4, partitionsOf(resp), "the assignment comes with the first answer")
	}
	_, err = adm.UpdatePartitions(t.Context(), 6, "t")
	require.NoError(t, err)
	createTopic(t, adm, 1, "later")
	a, err = beat(t, cl, "g", "a", a.MemberEpoch)
	require.NoError(t, err)
	require.Equal(t, 7, partitionsOf(a))

	d, err := adm.DescribeTopicConfigs(t.Context(), "t") // the topic is as usual for others
	require.NoError(t, err)
	require.NoError(t, d[0].Err)
	_, err = adm.DeleteTopics(t.Context(), "t")
	require.NoError(t, err)
	a, err = beat(t, cl, "g", "a", a.MemberEpoch)
	require.NoError(t, err)
	require.Equal(t, 1, partitionsOf(a))
	// The broker's own topics are for nobody.
	own, err := beat(t, cl, "h", "a", 0, "__consumer_offsets")
	require.NoError(t, err)
	require.Zero(t, partitionsOf(own))
}

// TestSettingsOfShareGroupsCountAtOnce sets what a group's members are told and held to.
func TestSettingsOfShareGroupsCountAtOnce(t *testing.T) {
	b := start(t, quickShares)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "t")
	a, err := beat(t, cl, "g", "a", 0, "t")
	require.NoError(t, err)
	setGroup(t, cl, "g", "share.heartbeat.interval.ms", "50", "share.session.timeout.ms", "100", "share.delivery.mode", "key-range")
	a, err = beat(t, cl, "g", "a", a.MemberEpoch)
	require.NoError(t, err)
	require.EqualValues(t, 50, a.HeartbeatIntervalMillis)

	describe := describeShares("g")
	describe.Version = 1
	resp, err := describe.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.Equal(t, "key-range", resp.Groups[0].Assignor)
	require.Eventually(t, func() bool {
		resp, err := describe.RequestWith(t.Context(), cl)
		return err == nil && resp.Groups[0].GroupState == "Empty"
	}, 10*time.Second, 20*time.Millisecond, "a member that is silent for 100 ms is gone")
	_, err = beat(t, cl, "g", "a", a.MemberEpoch)
	require.ErrorIs(t, err, kerr.UnknownMemberID)
}

func TestShareGroupsOutliveTheBroker(t *testing.T) {
	fs := vfs.NewMem()
	onDisk := func(c *broker.Config) { quickShares(c); c.FS = fs }
	b := start(t, onDisk)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 2, "t")
	setGroup(t, cl, "g", "share.delivery.mode", "key-range", "share.key.range.initial", "2")
	var epochs []int32
	for i, m := range []string{"a", "b", "c"} {
		resp, err := beat(t, cl, "g", m, 0, "t")
		require.NoError(t, err)
		require.Equal(t, []int{2, 1, 1}[i], partitionsOf(resp), "the first holds all, each other one bucket of one partition")
		epochs = append(epochs, resp.MemberEpoch)
	}
	cl.Close()
	stop(t, b)

	b = start(t, onDisk)
	cl = client(t, b)
	resp, err := beat(t, cl, "g", "c", epochs[2])
	require.NoError(t, err)
	require.Equal(t, -1, partitionsOf(resp), "nothing is new to it")
	resp, err = beat(t, cl, "g", "a", 0, "t")
	require.NoError(t, err)
	require.Equal(t, epochs[2], resp.MemberEpoch, "it comes back to what it had, and nothing moves")
	require.Equal(t, 1, partitionsOf(resp))
}

// shareOffsets asks for start offset and lag of partition 0.
func shareOffsets(t *testing.T, cl *kgo.Client, group, topic string) (start, lag int64) {
	t.Helper()
	req := describeOffsets(group, topic)
	req.Version = 1
	resp, err := req.RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.Groups[0].ErrorCode))
	p := resp.Groups[0].Topics[0].Partitions[0]
	require.NoError(t, kerr.ErrorForCode(p.ErrorCode))
	return p.StartOffset, p.Lag
}

// TestOffsetsOfShareGroups sets, moves, reads and deletes where a group goes on, across
// restarts.
func TestOffsetsOfShareGroups(t *testing.T) {
	fs := vfs.NewMem()
	onDisk := func(c *broker.Config) { quickShares(c); c.FS = fs }
	b := start(t, onDisk)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "t")
	for i := range 100 {
		cl.Produce(t.Context(), &kgo.Record{Topic: "t", Value: fmt.Appendf(nil, "%d", i)}, nil)
	}
	require.NoError(t, cl.Flush(t.Context()))

	alter := func(offset int64) {
		t.Helper()
		resp, err := alterOffsets("g", "t", 0, offset).RequestWith(t.Context(), cl)
		require.NoError(t, err)
		require.NoError(t, kerr.ErrorForCode(resp.ErrorCode))
		require.NoError(t, kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode))
	}
	requireOffsets := func(start, lag int64) {
		t.Helper()
		gotStart, gotLag := shareOffsets(t, cl, "g", "t")
		require.Equal(t, start, gotStart)
		require.Equal(t, lag, gotLag)
	}
	requireOffsets(-1, -1)
	alter(60)
	requireOffsets(60, 40)
	alter(20)
	requireOffsets(20, 80)
	reopen(t, cl, "g", 5)
	requireOffsets(5, 81)
	_, err := beat(t, cl, "g", "a", 0, "t")
	require.NoError(t, err)
	resp, err := alterOffsets("g", "t", 0, 1).RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.ErrorIs(t, kerr.ErrorForCode(resp.ErrorCode), kerr.NonEmptyGroup)

	cl.Close()
	stop(t, b)
	b = start(t, onDisk)
	cl = client(t, b)
	requireOffsets(5, 81)
	_, err = beat(t, cl, "g", "a", -1)
	require.NoError(t, err)
	deleted, err := deleteOffsets("g", "t").RequestWith(t.Context(), cl)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(deleted.Topics[0].ErrorCode))
	requireOffsets(-1, -1)
	alter(30)
	requireOffsets(30, 70)
	_, err = kadm.NewClient(cl).DeleteGroup(t.Context(), "g")
	require.NoError(t, err)
	requireOffsets(-1, -1)
	alter(0)
	requireOffsets(0, 100)
}

// reopen makes an offset uncommitted again, by the extension's field.
func reopen(t *testing.T, cl *kgo.Client, group string, offset int64) {
	t.Helper()
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group, req.Generation = group, -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "t"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = -1
	field := protocol.IndividualOffsets{Reopen: []protocol.Run{{Start: offset, End: offset + 1}}, Origin: protocol.NoOrigin}
	p.UnknownTags.Set(protocol.ExtensionTag, field.AppendTo(nil))
	topic.Partitions = append(topic.Partitions, p)
	req.Topics = append(req.Topics, topic)
	resp, err := sendAt(t, cl, req, 9)
	require.NoError(t, err)
	require.NoError(t, kerr.ErrorForCode(resp.(*kmsg.OffsetCommitResponse).Topics[0].Partitions[0].ErrorCode))
}

// sendAt sends a request by a connection of its own.
func sendAt(t *testing.T, cl *kgo.Client, req kmsg.Request, version int16) (kmsg.Response, error) {
	t.Helper()
	s := &groupScript{t: t, addr: cl.OptValue(kgo.SeedBrokers).([]string)[0]}
	c := s.dial()
	defer c.nc.Close()
	c.send(req, version)
	return c.receive(req), nil
}

// TestPlainClientsAndShareGroups holds that plain commits and fetches of offsets are refused,
// and that the gaps of a share group can be read by the extension's field.
func TestPlainClientsAndShareGroups(t *testing.T) {
	b := start(t, quickShares)
	cl := client(t, b)
	createTopic(t, kadm.NewClient(cl), 1, "t")
	_, err := alterOffsets("g", "t", 0, 0).RequestWith(t.Context(), cl)
	require.NoError(t, err)
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"g", "nobody"}
	described, err := sendAt(t, cl, describe, 6)
	require.NoError(t, err)
	for i, message := range []string{"Group g is not a classic group.", "Group nobody not found."} {
		require.Equal(t, message, *described.(*kmsg.DescribeGroupsResponse).Groups[i].ErrorMessage)
	}
	_, err = kadm.NewClient(cl).FetchOffsets(context.Background(), "g")
	require.ErrorIs(t, err, kerr.GroupIDNotFound)

	fetch := kmsg.NewPtrOffsetFetchRequest()
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = "g"
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.Partitions = "t", []int32{0}
	g.Topics = append(g.Topics, topic)
	gaps := protocol.GapsRequest{}
	g.UnknownTags.Set(protocol.ExtensionTag, gaps.AppendTo(nil))
	fetch.Groups = append(fetch.Groups, g)
	resp, err := sendAt(t, cl, fetch, 9)
	require.NoError(t, err)
	answer := resp.(*kmsg.OffsetFetchResponse).Groups[0]
	require.NoError(t, kerr.ErrorForCode(answer.ErrorCode))
	require.Zero(t, answer.Topics[0].Partitions[0].Offset)

	groups, err := kadm.NewClient(cl).ListGroups(t.Context())
	require.NoError(t, err)
	require.Equal(t, "share", groups["g"].ProtocolType)
	require.Equal(t, "Empty", groups["g"].State)
}
