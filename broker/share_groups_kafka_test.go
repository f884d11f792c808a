package broker_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// TestShareGroupsAnswerAsKafkaDoes compares the answers of the APIs around share groups with
// those that Apache Kafka 4.4.0 gave. To record these anew, start a Kafka with
// group.share.assignment.interval.ms=0 and auto.create.topics.enable=false and run the test
// with LACUNA_RECORD_KAFKA=HOST:PORT.
func TestShareGroupsAnswerAsKafkaDoes(t *testing.T) {
	requireKafkasAnswers(t, "testdata/share_groups_kafka_4_4.txt", withoutAutoCreation, func(addr string) string {
		s := &shareScript{groupScript: *newGroupScript(t, addr)}
		s.run()
		return s.counted()
	})
}

// shareScript is a conversation about share groups, whose epochs are counted from the one
// at which the first member of g is settled.
type shareScript struct {
	groupScript
	first int32
}

var epochs = regexp.MustCompile(`("(?:Member|Group|Assignment)Epoch":)([0-9]+)`)

// counted is the conversation with the epochs from the first on counted from it.
func (s *shareScript) counted() string {
	return epochs.ReplaceAllStringFunc(s.out.String(), func(field string) string {
		name, value, _ := strings.Cut(field, ":")
		n, err := strconv.Atoi(value)
		require.NoError(s.t, err)
		if n >= int(s.first) {
			value = fmt.Sprintf("%q", fmt.Sprintf("first+%d", n-int(s.first)))
		}
		return name + ":" + value
	})
}

// createTopics makes topics of one partition: of more, Kafka gives each member a part.
func (s *shareScript) createTopics(names ...string) {
	req := kmsg.NewPtrCreateTopicsRequest()
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, 1
		req.Topics = append(req.Topics, t)
	}
	c := s.dial()
	req.TimeoutMillis = 10_000
	c.send(req, 7)
	c.receive(req)
}

func (s *shareScript) run() {
	s.createTopics("script", "other")
	for _, group := range []string{"g", "plain", "nobody", "made"} {
		s.until(heartbeatRequest(group, "x", 1), 24, 25) // a new Kafka takes its time
	}
	s.refused()
	s.members()
	s.otherKinds()
	s.offsets()
	s.resources()
}

func shareHeartbeat(group, member string, epoch int32, topics ...string) *kmsg.ShareGroupHeartbeatRequest {
	req := kmsg.NewPtrShareGroupHeartbeatRequest()
	req.GroupID, req.MemberID, req.MemberEpoch, req.SubscribedTopicNames = group, member, epoch, topics
	return req
}

// beat writes down the answer to a heartbeat.
func (s *shareScript) beat(title string, req *kmsg.ShareGroupHeartbeatRequest) *kmsg.ShareGroupHeartbeatResponse {
	return s.say(title, req, 1).(*kmsg.ShareGroupHeartbeatResponse)
}

func (s *shareScript) refused() {
	s.beat("no member id", shareHeartbeat("g", "", 0, "script"))
	s.beat("no group id", shareHeartbeat("", "m", 0, "script"))
	s.beat("no topics", shareHeartbeat("g", "m", 0))
	s.beat("an epoch that is none", shareHeartbeat("g", "m", -2, "script"))
	rack := shareHeartbeat("g", "m", 0, "script")
	rack.RackID = new(string)
	s.beat("a rack without a name", rack)
	s.beat("a group that nobody knows", shareHeartbeat("nobody", "m", 1))
	s.beat("leave a group that nobody knows", shareHeartbeat("nobody", "m", -1))
	s.say("nobody", describeShares("nobody", ""), 1)
}

func describeShares(groups ...string) *kmsg.ShareGroupDescribeRequest {
	req := kmsg.NewPtrShareGroupDescribeRequest()
	req.GroupIDs, req.IncludeAuthorizedOperations = groups, true
	return req
}

// settled joins, or says again that it has joined, until the member is assigned something:
// Kafka begins the state of a partition meanwhile. In between it keeps the session of a
// member while a slow Kafka is recorded.
func (s *shareScript) settled(req *kmsg.ShareGroupHeartbeatRequest) *kmsg.ShareGroupHeartbeatResponse {
	deadline := time.Now().Add(20 * time.Second)
	for {
		c := s.dial()
		c.send(req, 1)
		resp := c.receive(req).(*kmsg.ShareGroupHeartbeatResponse)
		c.nc.Close()
		if resp.Assignment != nil && len(resp.Assignment.TopicPartitions) > 0 {
			return resp
		}
		require.True(s.t, time.Now().Before(deadline), "no assignment")
		<-time.After(100 * time.Millisecond)
	}
}

func (s *shareScript) members() {
	first := s.settled(shareHeartbeat("g", "a", 0, "script"))
	s.first = first.MemberEpoch
	s.beat("again", shareHeartbeat("g", "a", first.MemberEpoch, "script"))
	s.beat("nothing new", shareHeartbeat("g", "a", first.MemberEpoch))
	s.beat("an epoch of tomorrow", shareHeartbeat("g", "a", first.MemberEpoch+1))
	s.beat("a stranger", shareHeartbeat("g", "x", first.MemberEpoch))
	s.say("one member", describeShares("g"), 1)
	second := s.beat("a second member", shareHeartbeat("g", "b", 0, "script", "missing", "script"))
	s.beat("the first hears of it", shareHeartbeat("g", "a", first.MemberEpoch))
	s.beat("joins again", shareHeartbeat("g", "b", 0, "script", "missing"))
	s.beat("subscribes to less", shareHeartbeat("g", "b", second.MemberEpoch, "script"))
	s.beat("leaves", shareHeartbeat("g", "b", -1))
	s.beat("is gone", shareHeartbeat("g", "b", second.MemberEpoch))
}

func (s *shareScript) otherKinds() {
	s.settled(shareHeartbeat("g", "a", 0, "script"))
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Group, commit.Generation = "plain", -1
	topic := kmsg.NewOffsetCommitRequestTopic()
	topic.Topic = "script"
	p := kmsg.NewOffsetCommitRequestTopicPartition()
	p.Offset = 0
	topic.Partitions = append(topic.Partitions, p)
	commit.Topics = append(commit.Topics, topic)
	s.say("a classic group", commit, 9)
	s.beat("to a classic group", shareHeartbeat("plain", "m", 0, "script"))
	s.say("of a classic group", describeShares("plain"), 1)

	commit.Group = "g"
	s.say("to a share group", commit, 9)
	s.say("to a share group", commit, 8)
	s.say("to a share group", joinRequest("g", ""), 9)
	s.say("to a share group", heartbeatRequest("g", "a", 1), 4)
	describe := kmsg.NewPtrDescribeGroupsRequest()
	describe.Groups = []string{"g"}
	s.say("a share group", describe, 5)
	s.say("a share group", describe, 6)

	s.settled(shareHeartbeat("g", "a", 0, "script"))
	list := kmsg.NewPtrListGroupsRequest()
	s.say("all", list, 5)
	list.TypesFilter = []string{"share"}
	s.say("share groups", list, 5)
	list.StatesFilter = []string{"Empty"}
	s.say("empty share groups", list, 5)
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"g"}
	s.say("a share group with a member", remove, 2)

	s.settled(shareHeartbeat("g", "a", 0, "script"))
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.CoordinatorType = 2
	for _, key := range []string{"g", "g:AAAAAAAAAAAAAAAAAAAAAQ:0", "g:x:0", ":AAAAAAAAAAAAAAAAAAAAAQ:0", "g:AAAAAAAAAAAAAAAAAAAAAQ:x", ""} {
		find.CoordinatorKeys = []string{key}
		s.say("of share partition "+key, find, 6)
	}
}

func describeOffsets(group string, topics ...string) *kmsg.DescribeShareGroupOffsetsRequest {
	req := kmsg.NewPtrDescribeShareGroupOffsetsRequest()
	g := kmsg.NewDescribeShareGroupOffsetsRequestGroup()
	g.GroupID = group
	for _, name := range topics {
		t := kmsg.NewDescribeShareGroupOffsetsRequestGroupTopic()
		t.Topic, t.Partitions = name, []int32{0, 1}
		g.Topics = append(g.Topics, t)
	}
	req.Groups = append(req.Groups, g)
	return req
}

func alterOffsets(group, topic string, partition int32, offset int64) *kmsg.AlterShareGroupOffsetsRequest {
	req := kmsg.NewPtrAlterShareGroupOffsetsRequest()
	req.GroupID = group
	t := kmsg.NewAlterShareGroupOffsetsRequestTopic()
	t.Topic = topic
	p := kmsg.NewAlterShareGroupOffsetsRequestTopicPartition()
	p.Partition, p.StartOffset = partition, offset
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	return req
}

func deleteOffsets(group string, topics ...string) *kmsg.DeleteShareGroupOffsetsRequest {
	req := kmsg.NewPtrDeleteShareGroupOffsetsRequest()
	req.GroupID = group
	for _, name := range topics {
		t := kmsg.NewDeleteShareGroupOffsetsRequestTopic()
		t.Topic = name
		req.Topics = append(req.Topics, t)
	}
	return req
}

func (s *shareScript) offsets() {
	s.settled(shareHeartbeat("g", "a", 0, "script"))
	s.say("of nobody", describeOffsets("nobody", "script"), 1)
	s.say("of nobody", describeOffsets("nobody"), 1)
	s.say("of a classic group", describeOffsets("plain", "script"), 1)
	s.say("of a topic that is not there", describeOffsets("g", "missing"), 1)
	s.settled(shareHeartbeat("g", "a", 0, "script"))
	s.say("with a member", alterOffsets("g", "script", 0, 0), 0)
	s.say("with a member", deleteOffsets("g", "script"), 0)
	s.beat("leaves", shareHeartbeat("g", "a", -1))
	s.say("an empty group", describeShares("g"), 1)
	s.say("of a classic group", alterOffsets("plain", "script", 0, 0), 0)
	s.say("of a classic group", deleteOffsets("plain", "script"), 0)
	s.say("of nobody", deleteOffsets("nobody", "script"), 0)
	s.say("of no group", alterOffsets("", "script", 0, 0), 0)
	s.say("of no group", deleteOffsets("", "script"), 0)
	s.say("a topic that is not there", alterOffsets("g", "missing", 0, 0), 0)
	s.say("a partition that is not there", alterOffsets("g", "script", 9, 0), 0)
	s.say("a partition", alterOffsets("g", "script", 0, 0), 0)
	s.say("of a group", describeOffsets("g", "script"), 0)
	s.say("a new group", alterOffsets("made", "script", 0, 0), 0)
	s.say("of a new group", describeOffsets("made"), 1)
	s.say("a new group", describeShares("made"), 1)
	s.say("of nothing, of a new group", alterOffsets("nobody", "missing", 0, 0), 0)
	s.say("a group of which nothing was set", describeShares("nobody"), 1)
	s.say("topics", deleteOffsets("made", "script", "missing", "other"), 0)
	s.say("of nothing", describeOffsets("made"), 1)
	remove := kmsg.NewPtrDeleteGroupsRequest()
	remove.Groups = []string{"g", "made"}
	s.say("share groups", remove, 2)
	s.say("deleted", describeShares("g"), 1)
}

func (s *shareScript) resources() {
	alter := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, "g"
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	value := "earliest"
	c.Name, c.Value = "share.auto.offset.reset", &value
	r.Configs = append(r.Configs, c)
	alter.Resources = append(alter.Resources, r)
	s.say("a group", alter, 1)
	req := kmsg.NewPtrListConfigResourcesRequest()
	s.say("client metrics", req, 0)
	for _, kinds := range [][]int8{{16}, {32}, {32, 16}, {4, 8}, {99}} {
		req.ResourceTypes = kinds
		s.say("types", req, 1)
	}
}
