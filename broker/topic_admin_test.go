package broker_test

import (
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ask sends a request as it is and returns its answer.
func ask[R kmsg.Response](t *testing.T, cl *kgo.Client, req kmsg.Request) R {
	t.Helper()
	resp, err := cl.SeedBrokers()[0].Request(t.Context(), req)
	require.NoError(t, err)
	return resp.(R)
}

// topics lists what there is, internal topics too.
func topics(t *testing.T, cl *kgo.Client) map[string]kmsg.MetadataResponseTopic {
	t.Helper()
	all := map[string]kmsg.MetadataResponseTopic{}
	for _, topic := range ask[*kmsg.MetadataResponse](t, cl, kmsg.NewPtrMetadataRequest()).Topics {
		require.Zero(t, topic.ErrorCode)
		all[*topic.Topic] = topic
	}
	return all
}

// requireTopics checks which topics there are beside the internal ones.
func requireTopics(t *testing.T, cl *kgo.Client, names ...string) {
	t.Helper()
	var got []string
	for name, topic := range topics(t, cl) {
		if !topic.IsInternal {
			got = append(got, name)
		}
	}
	require.ElementsMatch(t, names, got)
}

func text(s *string) string {
	if s == nil {
		return ""
	}
	return *s
}

// newTopic is a topic to create with defaults, and with what change asks for.
func newTopic(name string, change func(*kmsg.CreateTopicsRequestTopic)) kmsg.CreateTopicsRequestTopic {
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, -1, -1
	if change != nil {
		change(&t)
	}
	return t
}

func createTopics(t *testing.T, cl *kgo.Client, topics ...kmsg.CreateTopicsRequestTopic) []kmsg.CreateTopicsResponseTopic {
	t.Helper()
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Topics = topics
	return ask[*kmsg.CreateTopicsResponse](t, cl, req).Topics
}

// create creates topics with three partitions each.
func create(t *testing.T, cl *kgo.Client, names ...string) {
	t.Helper()
	for _, name := range names {
		resp := createTopics(t, cl, newTopic(name, func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 3 }))
		require.Zero(t, resp[0].ErrorCode, text(resp[0].ErrorMessage))
	}
}

func withConfig(name, value string) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = name, &value
		t.Configs = append(t.Configs, c)
	}
}

// assigned gives each partition its replicas.
func assigned(replicas ...[]int32) func(*kmsg.CreateTopicsRequestTopic) {
	return func(t *kmsg.CreateTopicsRequestTopic) {
		for i, r := range replicas {
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(i), r
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		}
	}
}

func TestCreateTopicAnswersWhatWasMade(t *testing.T) {
	cl := client(t, start(t, nil))
	made := createTopics(t, cl, newTopic("orders", withConfig("retention.ms", "5")))[0]
	require.Zero(t, made.ErrorCode)
	require.EqualValues(t, 1, made.NumPartitions)
	require.EqualValues(t, 1, made.ReplicationFactor)
	require.NotZero(t, made.TopicID)
	described := map[string]kmsg.CreateTopicsResponseTopicConfig{}
	for _, c := range made.Configs {
		described[c.Name] = c
	}
	require.Equal(t, "5", text(described["retention.ms"].Value))
	require.EqualValues(t, kmsg.ConfigSourceDynamicTopicConfig, described["retention.ms"].Source)
	require.Equal(t, "delete", text(described["cleanup.policy"].Value))
	require.EqualValues(t, kmsg.ConfigSourceDefaultConfig, described["cleanup.policy"].Source)

	requireTopics(t, cl, "orders")
	require.Equal(t, made.TopicID, topics(t, cl)["orders"].TopicID)
}

// The codes, and most messages, are those of Apache Kafka 4.4.0.
func TestCreateTopicRefusals(t *testing.T) {
	cl := client(t, start(t, nil))
	create(t, cl, "a.b")
	for _, c := range []struct {
		topic   kmsg.CreateTopicsRequestTopic
		kind    *kerr.Error
		message string
	}{
		{newTopic("a.b", nil), kerr.TopicAlreadyExists, "Topic 'a.b' already exists."},
		{newTopic("a_b", nil), kerr.InvalidTopicException, "Topic 'a_b' collides with existing topic: a.b"},
		{newTopic("", nil), kerr.InvalidTopicException, "Topic name is invalid: the empty string is not allowed"},
		{newTopic("__cluster_metadata", nil), kerr.InvalidRequest, "Creation of internal topic __cluster_metadata is prohibited."},
		{newTopic("__consumer_offsets", nil), kerr.TopicAlreadyExists, "Topic '__consumer_offsets' already exists."},
		{newTopic("x", func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 0 }), kerr.InvalidPartitions,
			"Number of partitions was set to an invalid non-positive value."},
		{newTopic("x", func(t *kmsg.CreateTopicsRequestTopic) { t.NumPartitions = 10_001 }), kerr.PolicyViolation,
			"Excessively large number of partitions per request."},
		{newTopic("x", func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 3 }), kerr.InvalidReplicationFactor, "--accept-replication-factor"},
		{newTopic("x", func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 0 }), kerr.InvalidReplicationFactor, ""},
		{newTopic("x", withConfig("foo", "1")), kerr.InvalidConfig, "Unknown topic config name: foo"},
		{newTopic("x", withConfig("retention.ms", "x")), kerr.InvalidConfig, "Invalid value x for configuration retention.ms: Not a number of type LONG"},
		{newTopic("x", func(t *kmsg.CreateTopicsRequestTopic) {
			t.Configs = []kmsg.CreateTopicsRequestTopicConfig{{Name: "retention.ms"}}
		}), kerr.InvalidConfig, "Null value not supported for topic configs: retention.ms"},
		{newTopic("x", assigned([]int32{7})), kerr.InvalidReplicaAssignment, ""},
		{newTopic("x", assigned([]int32{})), kerr.InvalidReplicaAssignment, ""},
		{newTopic("x", assigned([]int32{1, 1})), kerr.InvalidReplicaAssignment, ""},
		{newTopic("x", func(t *kmsg.CreateTopicsRequestTopic) {
			assigned([]int32{1}, []int32{1})(t)
			t.ReplicaAssignment[1].Partition = 2
		}), kerr.InvalidReplicaAssignment, ""},
		{newTopic("x", func(t *kmsg.CreateTopicsRequestTopic) {
			assigned([]int32{1})(t)
			t.NumPartitions = 1
		}), kerr.InvalidRequest, ""},
	} {
		at := createTopics(t, cl, c.topic)[0]
		require.Equal(t, c.kind.Code, at.ErrorCode, "%+v: %s", c.topic, text(at.ErrorMessage))
		require.Contains(t, text(at.ErrorMessage), c.message)
		require.NotEmpty(t, text(at.ErrorMessage))
		require.EqualValues(t, -1, at.NumPartitions)
		require.Zero(t, at.TopicID)
	}
	twice := createTopics(t, cl, newTopic("twice", nil), newTopic("once", nil), newTopic("twice", nil))
	require.Len(t, twice, 2)
	require.Equal(t, kerr.InvalidRequest.Code, twice[0].ErrorCode)
	require.Zero(t, twice[1].ErrorCode)
	requireTopics(t, cl, "a.b", "once")
}

func TestCreateTopicWithAssignment(t *testing.T) {
	cl := client(t, start(t, nil))
	at := createTopics(t, cl, newTopic("t", assigned([]int32{1}, []int32{1})))[0]
	require.Zero(t, at.ErrorCode, text(at.ErrorMessage))
	require.EqualValues(t, 2, at.NumPartitions)
}

func TestReplicationFactorIsIgnoredOnRequest(t *testing.T) {
	cl := client(t, start(t, func(c *broker.Config) { c.AcceptReplicationFactor = true }))
	for _, topic := range []kmsg.CreateTopicsRequestTopic{
		newTopic("a", func(t *kmsg.CreateTopicsRequestTopic) { t.ReplicationFactor = 3 }),
		newTopic("b", assigned([]int32{1, 2, 3})),
	} {
		at := createTopics(t, cl, topic)[0]
		require.Zero(t, at.ErrorCode, text(at.ErrorMessage))
		require.EqualValues(t, 1, at.ReplicationFactor, "what there is, not what was asked for")
	}
}

func TestValidateOnlyChangesNothing(t *testing.T) {
	cl := client(t, start(t, nil))
	create(t, cl, "there")
	req := kmsg.NewPtrCreateTopicsRequest()
	req.ValidateOnly = true
	req.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("new", nil), newTopic("there", nil)}
	resp := ask[*kmsg.CreateTopicsResponse](t, cl, req).Topics
	require.Zero(t, resp[0].ErrorCode)
	require.NotEmpty(t, resp[0].Configs)
	require.Equal(t, kerr.TopicAlreadyExists.Code, resp[1].ErrorCode)

	grow := kmsg.NewPtrCreatePartitionsRequest()
	grow.ValidateOnly = true
	topic := kmsg.NewCreatePartitionsRequestTopic()
	topic.Topic, topic.Count = "there", 5
	grow.Topics = append(grow.Topics, topic)
	require.Zero(t, ask[*kmsg.CreatePartitionsResponse](t, cl, grow).Topics[0].ErrorCode)

	requireTopics(t, cl, "there")
	require.Len(t, topics(t, cl)["there"].Partitions, 3)
}

func TestDeleteTopics(t *testing.T) {
	b := start(t, nil)
	cl := client(t, b)
	create(t, cl, "a", "b", "c")
	listed := topics(t, cl)
	old := listed["a"].TopicID

	named := func(name string) kmsg.DeleteTopicsRequestTopic { return kmsg.DeleteTopicsRequestTopic{Topic: &name} }
	withID := func(id [16]byte) kmsg.DeleteTopicsRequestTopic { return kmsg.DeleteTopicsRequestTopic{TopicID: id} }
	del := func(topics ...kmsg.DeleteTopicsRequestTopic) []kmsg.DeleteTopicsResponseTopic {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.Topics = topics
		return ask[*kmsg.DeleteTopicsResponse](t, cl, req).Topics
	}
	both := named("a")
	both.TopicID = old
	for _, c := range []struct {
		topic kmsg.DeleteTopicsRequestTopic
		kind  *kerr.Error
	}{
		{named("nope"), kerr.UnknownTopicOrPartition}, {named("a b"), kerr.UnknownTopicOrPartition},
		{withID([16]byte{1}), kerr.UnknownTopicID}, {withID([16]byte{}), kerr.InvalidRequest}, {both, kerr.InvalidRequest},
		{named("__consumer_offsets"), kerr.InvalidTopicException},
	} {
		require.Equal(t, c.kind.Code, del(c.topic)[0].ErrorCode, "%+v", c.topic)
	}
	twice := del(named("a"), named("a"))
	require.Len(t, twice, 1)
	require.Equal(t, kerr.InvalidRequest.Code, twice[0].ErrorCode)

	gone := del(withID(old), named("b"))
	require.Zero(t, gone[0].ErrorCode)
	require.Equal(t, "a", text(gone[0].Topic))
	require.Zero(t, gone[1].ErrorCode)
	require.Equal(t, listed["b"].TopicID, gone[1].TopicID)

	create(t, cl, "a")
	requireTopics(t, cl, "a", "c")
	require.NotEqual(t, old, topics(t, cl)["a"].TopicID, "made anew it is another topic")
}

func TestDeletionCanBeForbidden(t *testing.T) {
	cl := client(t, start(t, func(c *broker.Config) { c.Settings = map[string]string{"delete.topic.enable": "false"} }))
	create(t, cl, "t")
	resp, err := kadm.NewClient(cl).DeleteTopics(t.Context(), "t")
	require.NoError(t, err)
	require.ErrorIs(t, resp["t"].Err, kerr.TopicDeletionDisabled)
}

func TestCreatePartitions(t *testing.T) {
	cl := client(t, start(t, nil))
	create(t, cl, "t")
	grow := func(name string, count int32, replicas ...[]int32) kmsg.CreatePartitionsResponseTopic {
		req := kmsg.NewPtrCreatePartitionsRequest()
		topic := kmsg.NewCreatePartitionsRequestTopic()
		topic.Topic, topic.Count = name, count
		for _, r := range replicas {
			topic.Assignment = append(topic.Assignment, kmsg.CreatePartitionsRequestTopicAssignment{Replicas: r})
		}
		req.Topics = append(req.Topics, topic)
		return ask[*kmsg.CreatePartitionsResponse](t, cl, req).Topics[0]
	}
	for _, c := range []struct {
		at      kmsg.CreatePartitionsResponseTopic
		kind    *kerr.Error
		message string
	}{
		{grow("t", 3), kerr.InvalidPartitions, "Topic already has 3 partition(s)."},
		{grow("t", 2), kerr.InvalidPartitions, "The topic t currently has 3 partition(s); 2 would not be an increase."},
		{grow("t", -1), kerr.InvalidPartitions, "would not be an increase"},
		{grow("nope", 2), kerr.UnknownTopicOrPartition, ""},
		{grow("t", 20_000), kerr.PolicyViolation, "Excessively large number of additional partitions per request."},
		{grow("t", 5, []int32{1}), kerr.InvalidReplicaAssignment, ""},
		{grow("t", 5, []int32{1}, []int32{9}), kerr.InvalidReplicaAssignment, ""},
		{grow("__consumer_offsets", 60), kerr.InvalidTopicException, "internal"},
	} {
		require.Equal(t, c.kind.Code, c.at.ErrorCode, "%+v", c.at)
		require.Contains(t, text(c.at.ErrorMessage), c.message)
	}
	require.Zero(t, grow("t", 4).ErrorCode)
	require.Zero(t, grow("t", 6, []int32{1}, []int32{1}).ErrorCode)

	// The new partitions take records at once.
	cl = client(t, start(t, nil), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	create(t, cl, "t")
	require.Zero(t, grow("t", 5).ErrorCode)
	require.NoError(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Partition: 4, Value: []byte("x")}).FirstErr())
}

func TestDeleteRecords(t *testing.T) {
	cl := client(t, start(t, nil))
	create(t, cl, "t")
	require.Zero(t, createTopics(t, cl, newTopic("compacted", withConfig("cleanup.policy", "compact")))[0].ErrorCode)
	for range 4 {
		r := &kgo.Record{Topic: "t", Key: []byte("k"), Value: []byte("v")}
		require.NoError(t, cl.ProduceSync(t.Context(), r).FirstErr())
	}
	ends, err := kadm.NewClient(cl).ListEndOffsets(t.Context(), "t")
	require.NoError(t, err)
	partition := int32(-1)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset == 4 {
			partition = o.Partition
		}
	})
	del := func(topic string, partition int32, offset int64) kmsg.DeleteRecordsResponseTopicPartition {
		req := kmsg.NewPtrDeleteRecordsRequest()
		rt, rp := kmsg.NewDeleteRecordsRequestTopic(), kmsg.NewDeleteRecordsRequestTopicPartition()
		rt.Topic, rp.Partition, rp.Offset = topic, partition, offset
		rt.Partitions = append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return ask[*kmsg.DeleteRecordsResponse](t, cl, req).Topics[0].Partitions[0]
	}
	for _, c := range []struct {
		topic     string
		partition int32
		offset    int64
		code      int16
		low       int64
	}{
		{"t", partition, 1, 0, 1}, {"t", partition, 0, 0, 1},
		{"t", partition, 10, kerr.OffsetOutOfRange.Code, -1}, {"t", partition, -2, kerr.OffsetOutOfRange.Code, -1},
		{"t", 9, 1, kerr.UnknownTopicOrPartition.Code, -1}, {"t", -1, 1, kerr.UnknownTopicOrPartition.Code, -1},
		{"nope", 0, 1, kerr.UnknownTopicOrPartition.Code, -1}, {"compacted", 0, -1, kerr.PolicyViolation.Code, -1},
		{"t", partition, -1, 0, 4},
	} {
		at := del(c.topic, c.partition, c.offset)
		require.Equal(t, [2]int64{int64(c.code), c.low}, [2]int64{int64(at.ErrorCode), at.LowWatermark}, "%+v", c)
	}
}

func TestTopicsSurviveRestartsAndCrashes(t *testing.T) {
	mem := vfs.NewCrashableMem()
	var fs vfs.FS = mem
	on := func(c *broker.Config) { c.FS = fs }
	b := start(t, on)
	cl := client(t, b)
	create(t, cl, "kept", "gone")
	_, err := kadm.NewClient(cl).DeleteTopics(t.Context(), "gone")
	require.NoError(t, err)
	before := topics(t, cl)
	crashed := mem.CrashClone(vfs.CrashCloneCfg{})
	cl.Close()
	stop(t, b)

	for name, state := range map[string]vfs.FS{"clean stop": mem, "crash": crashed} {
		t.Run(name, func(t *testing.T) {
			fs = state
			after := topics(t, client(t, start(t, on)))
			require.Len(t, after, 4)
			for name := range before {
				require.Equal(t, before[name].TopicID, after[name].TopicID)
				require.Len(t, after[name].Partitions, len(before[name].Partitions))
			}
		})
	}
}

// Whoever creates topics at the same time gets one of them.
func TestConcurrentCreation(t *testing.T) {
	cl := client(t, start(t, nil))
	codes := make(chan int16, 8)
	for range cap(codes) {
		go func() {
			req := kmsg.NewPtrCreateTopicsRequest()
			req.Topics = []kmsg.CreateTopicsRequestTopic{newTopic("t", nil)}
			resp, err := cl.Request(t.Context(), req)
			if err != nil {
				codes <- -1
				return
			}
			codes <- resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode
		}()
	}
	counts := map[int16]int{}
	for range cap(codes) {
		select {
		case code := <-codes:
			counts[code]++
		case <-time.After(20 * time.Second):
			t.Fatal("no answer")
		}
	}
	require.Equal(t, map[int16]int{0: 1, kerr.TopicAlreadyExists.Code: 7}, counts)
}
