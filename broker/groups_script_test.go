package broker_test

import (
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// run is the conversation. Its parts build on each other.
func (s *groupScript) run() {
	topic := s.createTopic()
	s.find()
	s.strangers()
	s.simpleOffsets(topic)
	s.offsetVersions(topic)
	s.firstGeneration()
	s.staticMembers()
	s.describeAndDelete()
}

func (s *groupScript) createTopic() [16]byte {
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = "script", 2, 1
	req.Topics = append(req.Topics, t)
	c := s.dial()
	req.TimeoutMillis = 10_000
	c.send(req, 7)
	return c.receive(req).(*kmsg.CreateTopicsResponse).Topics[0].TopicID
}

func (s *groupScript) find() {
	for _, group := range []string{"g", "simple", "static", "strange", "nobody", ""} {
		s.until(heartbeatRequest(group, "x", 1), 24, 25) // a new Kafka takes its time
	}
	req := kmsg.NewPtrFindCoordinatorRequest()
	req.CoordinatorKey, req.CoordinatorKeys = "g", []string{"g", "h"}
	for _, v := range []int16{0, 1, 3, 4, 6} {
		s.say("of a group", req, v)
	}
	req.CoordinatorType = 2
	s.say("of a share group", req, 5)
	req.CoordinatorType = 9
	s.say("of something else", req, 1)
	s.say("of something else", req, 6)
}

func joinRequest(group, member string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Group, req.MemberID, req.ProtocolType = group, member, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 30_000, 60_000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", []byte{0, 0, 0, 0, 0, 1, 0, 6, 's', 'c', 'r', 'i', 'p', 't', 0xff, 0xff, 0xff, 0xff}
	req.Protocols = append(req.Protocols, p)
	return req
}

func syncRequest(group, member string, generation int32, assign ...string) *kmsg.SyncGroupRequest {
	req := kmsg.NewPtrSyncGroupRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	req.ProtocolType, req.Protocol = kmsg.StringPtr("consumer"), kmsg.StringPtr("range")
	for _, m := range assign {
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = m, []byte("assigned")
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	return req
}

func heartbeatRequest(group, member string, generation int32) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Group, req.MemberID, req.Generation = group, member, generation
	return req
}

func leaveRequest(group string, members ...string) *kmsg.LeaveGroupRequest {
	req := kmsg.NewPtrLeaveGroupRequest()
	req.Group, req.MemberID = group, members[0]
	for _, m := range members {
		l := kmsg.NewLeaveGroupRequestMember()
		l.MemberID = m
		req.Members = append(req.Members, l)
	}
	return req
}

// strangers are requests of members that nobody knows.
func (s *groupScript) strangers() {
	for _, v := range []int16{0, 4, 5, 6, 7, 9} {
		s.say("a member that nobody knows", joinRequest("strange", "x"), v)
	}
	bad := joinRequest("", "")
	s.say("a group without a name", bad, 0)
	s.say("a group without a name", bad, 9)
	bad = joinRequest("strange", "")
	bad.SessionTimeoutMillis = 1
	s.say("a session that is too short", bad, 0)
	s.say("a session that is too short", bad, 9)
	bad = joinRequest("strange", "")
	bad.Protocols = nil
	s.say("no protocols", bad, 9)
	bad = joinRequest("strange", "")
	bad.ProtocolType = ""
	s.say("no protocol type", bad, 9)
	for _, v := range []int16{0, 4, 5} {
		s.say("a member that nobody knows", syncRequest("nobody", "x", 1), v)
		s.say("a group without a name", syncRequest("", "x", 1), v)
	}
	nameless := syncRequest("nobody", "x", 1)
	nameless.Protocol = nil
	s.say("without a protocol", nameless, 5)
	for _, v := range []int16{0, 3, 4} {
		s.say("a member that nobody knows", heartbeatRequest("nobody", "x", 1), v)
		s.say("a group without a name", heartbeatRequest("", "x", 1), v)
	}
	for _, v := range []int16{0, 2, 3, 5} {
		s.say("a member that nobody knows", leaveRequest("nobody", "x"), v)
		s.say("a group without a name", leaveRequest("", "x"), v)
	}
}

func offsetCommitRequest(group string, topic [16]byte, offsets ...int64) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Group = group
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic, t.TopicID = "script", topic
	for i, offset := range offsets {
		p := kmsg.NewOffsetCommitRequestTopicPartition()
		p.Partition, p.Offset, p.Metadata = int32(i), offset, kmsg.StringPtr("m")
		t.Partitions = append(t.Partitions, p)
	}
	req.Topics = append(req.Topics, t)
	return req
}

func offsetFetchRequest(group string, topic [16]byte, partitions ...int32) *kmsg.OffsetFetchRequest {
	req := kmsg.NewPtrOffsetFetchRequest()
	req.Group = group
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = group
	if partitions != nil {
		req.Topics = append(req.Topics, kmsg.OffsetFetchRequestTopic{Topic: "script", Partitions: partitions})
		g.Topics = append(g.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: "script", TopicID: topic, Partitions: partitions})
	}
	req.Groups = append(req.Groups, g)
	return req
}

// simpleOffsets commits without a group's members.
func (s *groupScript) simpleOffsets(topic [16]byte) {
	for _, v := range []int16{1, 2, 5, 7, 8, 9, 10} {
		s.say("of a group that is not there", offsetFetchRequest("simple", topic, 0, 5), v)
	}
	for _, v := range []int16{2, 7, 8, 9, 10} {
		s.say("all of a group that is not there", offsetFetchRequest("simple", topic), v)
	}
	member := offsetCommitRequest("simple", topic, 1)
	member.MemberID, member.Generation = "x", 1
	for _, v := range []int16{2, 8, 9, 10} {
		s.say("by a member of a group that is not there", member, v)
	}
	for _, v := range []int16{2, 5, 7, 9, 10} {
		s.say("and of a partition that is not there", offsetCommitRequest("simple", topic, int64(v), 100, 100), v)
		s.say("what was committed", offsetFetchRequest("simple", topic, 0, 1, 2), 9)
	}
	s.say("by a member of a group without any", member, 9)
	null := offsetCommitRequest("simple", topic, 7)
	null.Topics[0].Partitions[0].Metadata = nil
	s.say("without metadata", null, 9)
	s.say("without metadata", offsetFetchRequest("simple", topic, 0), 9)
	long := offsetCommitRequest("simple", topic, 8)
	long.Topics[0].Partitions[0].Metadata = kmsg.StringPtr(string(make([]byte, 4097)))
	s.say("with more metadata than is allowed", long, 9)
	unknown := offsetCommitRequest("simple", [16]byte{1, 2, 3}, 8)
	s.say("of a topic id that is not there", unknown, 10)
	unknown.Topics[0].Topic = "no-such-topic"
	s.say("of a topic that is not there", unknown, 9)
	unknown.Topics[0].Topic = "no such name"
	s.say("of a topic with a bad name", unknown, 9)
	s.say("of a group without a name", offsetCommitRequest("", topic, 3), 9)
	s.say("of a group without a name", offsetFetchRequest("", topic, 0), 9)
	s.say("nothing", &kmsg.OffsetCommitRequest{Group: "simple", Generation: -1}, 9)
}

// offsetVersions reads what was committed in every way there is.
func (s *groupScript) offsetVersions(topic [16]byte) {
	for v := int16(1); v <= 10; v++ {
		s.say("what was committed", offsetFetchRequest("simple", topic, 0, 1, 9), v)
	}
	for v := int16(2); v <= 10; v++ {
		s.say("all that was committed", offsetFetchRequest("simple", topic), v)
	}
	none := offsetFetchRequest("simple", topic)
	none.Topics, none.Groups[0].Topics = []kmsg.OffsetFetchRequestTopic{}, []kmsg.OffsetFetchRequestGroupTopic{}
	s.say("of no topics", none, 5)
	s.say("of no topics", none, 9)
	unknown := offsetFetchRequest("simple", [16]byte{1, 2, 3}, 0)
	s.say("of a topic id that is not there", unknown, 10)
	unknown = offsetFetchRequest("simple", topic, 0)
	unknown.Groups[0].Topics[0].Topic = "no-such-topic"
	s.say("of a topic that is not there", unknown, 9)
	two := offsetFetchRequest("simple", topic, 0)
	two.Groups = append(two.Groups, offsetFetchRequest("nobody", topic, 1).Groups[0])
	two.RequireStable = true
	s.say("of two groups", two, 8)
	member := offsetFetchRequest("simple", topic, 0)
	member.Groups[0].MemberID, member.Groups[0].MemberEpoch = kmsg.StringPtr("x"), 3
	s.say("by a member of another kind of group", member, 9)
	del := kmsg.NewPtrOffsetDeleteRequest()
	del.Group = "simple"
	del.Topics = []kmsg.OffsetDeleteRequestTopic{
		{Topic: "script", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 1}, {Partition: 7}}},
		{Topic: "no-such-topic", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}},
	}
	s.say("one of them is there", del, 0)
	del.Group = "nobody"
	s.say("of a group that is not there", del, 0)
	del.Group = ""
	s.say("of a group without a name", del, 0)
}

// firstGeneration is the life of a group of two dynamic members.
func (s *groupScript) firstGeneration() {
	given := s.say("a dynamic member is given its id first", joinRequest("g", ""), 9).(*kmsg.JoinGroupResponse).MemberID
	s.say("a group whose only member has not joined", describeRequest("g"), 5)
	other := joinRequest("g", given)
	other.Protocols[0].Name = "other"
	first := s.say("and joins with it", joinRequest("g", given), 9).(*kmsg.JoinGroupResponse)
	s.say("before the leader has assigned", heartbeatRequest("g", given, 1), 4)
	s.say("before the leader has assigned", describeRequest("g"), 6)
	s.say("of another protocol", other, 9)
	wrong := syncRequest("g", given, 1)
	wrong.Protocol = kmsg.StringPtr("other")
	s.say("of another protocol", wrong, 5)
	s.say("of another generation", syncRequest("g", given, 7), 5)
	commit := offsetCommitRequest("g", [16]byte{}, 1)
	commit.MemberID, commit.Generation = given, first.Generation
	s.say("before the leader has assigned", commit, 9)
	s.say("the leader assigns", syncRequest("g", given, 1, given), 5)
	s.say("once more", syncRequest("g", given, 1), 0)
	s.say("by the member", commit, 9)
	commit.Generation = 7
	s.say("in another generation", commit, 9)
	s.say("by nobody, while there are members", offsetCommitRequest("g", [16]byte{}, 1), 9)
	s.say("in another generation", heartbeatRequest("g", given, 7), 4)
	s.say("a stable group", describeRequest("g"), 6)

	second := s.begin(joinRequest("g", ""), 3)
	s.until(heartbeatRequest("g", given, 1), 27)
	s.say("a rebalance", heartbeatRequest("g", given, 1), 4)
	s.say("a rebalance", syncRequest("g", given, 1), 5)
	commit.Generation = 1
	s.say("a rebalance", commit, 9)
	s.say("a rebalance", describeRequest("g"), 6)
	del := kmsg.NewPtrOffsetDeleteRequest()
	del.Group = "g"
	del.Topics = []kmsg.OffsetDeleteRequestTopic{{Topic: "script", Partitions: []kmsg.OffsetDeleteRequestTopicPartition{{Partition: 0}}}}
	s.say("of a topic that members read", del, 0)
	s.say("a group with members", deleteRequest("g", "g", "nobody"), 2)
	s.say("a group with members", deleteRequest("g", "nobody"), 3)
	rejoined := s.say("the first rejoins", joinRequest("g", given), 9).(*kmsg.JoinGroupResponse)
	follower := second.end("the second, with an older version").(*kmsg.JoinGroupResponse).MemberID
	waits := s.begin(syncRequest("g", follower, rejoined.Generation), 2)
	s.say("a member and another", leaveRequest("g", "x", given), 5)
	waits.end("the leader left meanwhile")
	s.say("the member that is left", joinRequest("g", follower), 4)
	s.say("the member that is left", leaveRequest("g", follower), 1)
	s.say("the group is empty", describeRequest("g"), 6)
	s.say("the group is empty", heartbeatRequest("g", follower, 3), 4)
	s.say("the group is empty", offsetCommitRequest("g", [16]byte{}, 5), 9)
}

// until repeats a request until its error code is one of those wanted.
func (s *groupScript) until(req *kmsg.HeartbeatRequest, codes ...int16) {
	for {
		find, c := kmsg.NewPtrFindCoordinatorRequest(), s.dial()
		find.CoordinatorKey = req.Group
		c.send(find, 0)
		c.receive(find)
		c.send(req, 4)
		if slices.Contains(codes, c.receive(req).(*kmsg.HeartbeatResponse).ErrorCode) {
			return
		}
	}
}

// staticMembers lets a static member come back, and its former self be fenced.
func (s *groupScript) staticMembers() {
	join := joinRequest("static", "")
	join.InstanceID = kmsg.StringPtr("i")
	first := s.say("a static member", join, 9).(*kmsg.JoinGroupResponse)
	sync := syncRequest("static", first.MemberID, 1, first.MemberID)
	sync.InstanceID = kmsg.StringPtr("i")
	s.say("a static member", sync, 5)
	again := s.say("it comes back", join, 9).(*kmsg.JoinGroupResponse)
	s.say("it comes back, with an older version", join, 8)
	former := heartbeatRequest("static", again.MemberID, 1)
	former.InstanceID = kmsg.StringPtr("i")
	s.say("its former self", former, 4)
	sync.MemberID = again.MemberID
	s.say("its former self", sync, 5)
	known := joinRequest("static", again.MemberID)
	known.InstanceID = kmsg.StringPtr("i")
	s.say("its former self", known, 9)
	known.InstanceID = kmsg.StringPtr("j")
	s.say("an instance that is not there", known, 9)
	commit := offsetCommitRequest("static", [16]byte{}, 1)
	commit.MemberID, commit.Generation, commit.InstanceID = again.MemberID, 1, kmsg.StringPtr("i")
	s.say("its former self", commit, 9)
	s.say("the group", describeRequest("static"), 6)
	leave := leaveRequest("static", "")
	leave.Members[0].InstanceID = kmsg.StringPtr("j")
	s.say("an instance that is not there", leave, 5)
	leave.Members[0].MemberID, leave.Members[0].InstanceID = again.MemberID, kmsg.StringPtr("i")
	s.say("its former self", leave, 5)
	leave.Members[0].MemberID = ""
	s.say("an operator removes it", leave, 5)
}

func describeRequest(groups ...string) *kmsg.DescribeGroupsRequest {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Groups = groups
	return req
}

func deleteRequest(groups ...string) *kmsg.DeleteGroupsRequest {
	req := kmsg.NewPtrDeleteGroupsRequest()
	req.Groups = groups
	return req
}

func (s *groupScript) describeAndDelete() {
	for _, v := range []int16{0, 2, 3, 4, 5, 6} {
		s.say("a group that is not there", describeRequest("nobody"), v)
		s.say("a group of offsets only", describeRequest("simple"), v)
	}
	allowed := describeRequest("simple", "nobody")
	allowed.IncludeAuthorizedOperations = true
	s.say("with what one may do", allowed, 5)
	s.say("with what one may do", allowed, 6)
	list := kmsg.NewPtrListGroupsRequest()
	list.StatesFilter = []string{"nosuchstate"}
	s.say("of a state that is not there", list, 5)
	list.StatesFilter, list.TypesFilter = nil, []string{"share"}
	s.say("of another type", list, 5)
	list.TypesFilter = []string{"nosuchtype"}
	s.say("of a type that is not there", list, 5)
	for _, v := range []int16{0, 1, 2, 3} {
		s.say("what is there, and what is not", deleteRequest("static", "nobody", ""), v)
		c := s.dial() // so that it is there for the next
		commit := offsetCommitRequest("static", [16]byte{}, 1)
		c.send(commit, 9)
		c.receive(commit)
	}
	s.say("the last of them", deleteRequest("static", "simple", "g", ""), 3)
	// Kafka keeps a group that nobody could join for want of a protocol.
	c, strange := s.dial(), deleteRequest("strange")
	c.send(strange, 2)
	c.receive(strange)
	for _, v := range []int16{0, 3, 4, 5} {
		s.say("nothing is left", kmsg.NewPtrListGroupsRequest(), v)
	}
}
