package broker_test

import (
	"fmt"
	"strings"
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// The kinds of resources.
const (
	topicKind   = kmsg.ConfigResourceTypeTopic
	brokerKind  = kmsg.ConfigResourceTypeBroker
	loggerKind  = kmsg.ConfigResourceTypeBrokerLogger
	metricsKind = kmsg.ConfigResourceTypeClientMetrics
	groupKind   = kmsg.ConfigResourceTypeGroupConfig
)

// change is a setting's incremental change: "name=value", "name" to reset it, "name+=x"
// and "name-=x" for lists.
func change(text string) kmsg.IncrementalAlterConfigsRequestResourceConfig {
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	name, value, found := strings.Cut(text, "=")
	c.Name, c.Value = name, &value
	switch {
	case !found:
		c.Op, c.Value = kmsg.IncrementalAlterConfigOpDelete, nil
	case strings.HasSuffix(name, "+"):
		c.Name, c.Op = name[:len(name)-1], kmsg.IncrementalAlterConfigOpAppend
	case strings.HasSuffix(name, "-"):
		c.Name, c.Op = name[:len(name)-1], kmsg.IncrementalAlterConfigOpSubtract
	}
	return c
}

// alter changes settings and returns "CODE message", or nothing when that went well.
func alter(t *testing.T, cl *kgo.Client, kind kmsg.ConfigResourceType, name string, changes ...string) string {
	t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, c := range changes {
		r.Configs = append(r.Configs, change(c))
	}
	req.Resources = append(req.Resources, r)
	at := ask[*kmsg.IncrementalAlterConfigsResponse](t, cl, req).Resources[0]
	require.Equal(t, kind, at.ResourceType)
	require.Equal(t, name, at.ResourceName)
	return outcome(at.ErrorCode, at.ErrorMessage)
}

func outcome(code int16, message *string) string {
	if code == 0 {
		return ""
	}
	return fmt.Sprintf("%s %s", kerr.ErrorForCode(code).(*kerr.Error).Message, text(message))
}

// described are settings as "name=value SOURCE", with their synonyms.
func described(t *testing.T, cl *kgo.Client, kind kmsg.ConfigResourceType, name string, names ...string) ([]string, string) {
	t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeSynonyms = true
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = kind, name, names
	req.Resources = append(req.Resources, r)
	at := ask[*kmsg.DescribeConfigsResponse](t, cl, req).Resources[0]
	var lines []string
	for _, c := range at.Configs {
		line := fmt.Sprintf("%s=%s %s", c.Name, text(c.Value), c.Source)
		for _, s := range c.ConfigSynonyms {
			line += fmt.Sprintf(" [%s:%s=%s]", s.Source, s.Name, text(s.Value))
		}
		lines = append(lines, line)
	}
	return lines, outcome(at.ErrorCode, at.ErrorMessage)
}

func requireDescribed(t *testing.T, cl *kgo.Client, kind kmsg.ConfigResourceType, name, setting, want string) {
	t.Helper()
	lines, refused := described(t, cl, kind, name, setting)
	require.Empty(t, refused)
	require.Equal(t, []string{want}, lines)
}

// The answers, down to the messages, are those of Apache Kafka 4.4.0.
func TestAlterConfigsOfATopic(t *testing.T) {
	cl := client(t, start(t, nil))
	create(t, cl, "t")
	require.Empty(t, alter(t, cl, topicKind, "t"))
	require.Empty(t, alter(t, cl, topicKind, "t", "retention.ms=5", "cleanup.policy+=compact"))
	requireDescribed(t, cl, topicKind, "t", "retention.ms", "retention.ms=5 DYNAMIC_TOPIC_CONFIG [DYNAMIC_TOPIC_CONFIG:retention.ms=5] [DEFAULT_CONFIG:log.retention.hours=168]")
	requireDescribed(t, cl, topicKind, "t", "cleanup.policy", "cleanup.policy=delete,compact DYNAMIC_TOPIC_CONFIG [DYNAMIC_TOPIC_CONFIG:cleanup.policy=delete,compact] [DEFAULT_CONFIG:log.cleanup.policy=delete]")
	require.Empty(t, alter(t, cl, topicKind, "t", "retention.ms", "cleanup.policy-=delete"))
	requireDescribed(t, cl, topicKind, "t", "retention.ms", "retention.ms=604800000 DEFAULT_CONFIG")
	requireDescribed(t, cl, topicKind, "t", "cleanup.policy", "cleanup.policy=compact DYNAMIC_TOPIC_CONFIG [DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact] [DEFAULT_CONFIG:log.cleanup.policy=delete]")

	for _, c := range []struct {
		name    string
		changes []string
		want    string
	}{
		{"t", []string{"foo=1"}, "INVALID_CONFIG Unknown topic config name: foo"},
		{"t", []string{"retention.ms+=1"}, "INVALID_CONFIG Can't APPEND to key retention.ms because its type is not LIST."},
		{"t", []string{"retention.ms=1", "retention.ms=2"}, "INVALID_REQUEST Error due to duplicate config keys"},
		{"t", []string{"retention.ms=x"}, "INVALID_CONFIG Invalid value x for configuration retention.ms: Not a number of type LONG"},
		{"t", []string{"min.compaction.lag.ms=10", "max.compaction.lag.ms=5"}, "INVALID_CONFIG conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)"},
		{"nope", []string{"retention.ms=1"}, "UNKNOWN_TOPIC_OR_PARTITION The topic 'nope' does not exist."},
		{"", []string{"retention.ms=1"}, "INVALID_REQUEST Default topic resources are not allowed."},
		{"a b", []string{"retention.ms=1"}, "INVALID_TOPIC_EXCEPTION Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"},
		{"__consumer_offsets", []string{"cleanup.policy=delete"}, "INVALID_CONFIG Topic '__consumer_offsets' is internal: other than compacted it would lose what it is there for."},
		{"__consumer_offsets", []string{"cleanup.policy"}, "INVALID_CONFIG Topic '__consumer_offsets' is internal: other than compacted it would lose what it is there for."},
		{"__consumer_offsets", []string{"segment.bytes=1048576"}, ""},
	} {
		require.Equal(t, c.want, alter(t, cl, topicKind, c.name, c.changes...), "%s %v", c.name, c.changes)
	}
}

func TestAlterConfigsOfOtherResources(t *testing.T) {
	cl := client(t, start(t, nil))
	for _, c := range []struct {
		kind    kmsg.ConfigResourceType
		name    string
		changes []string
		want    string
	}{
		{groupKind, "g", []string{"share.auto.offset.reset=earliest", "share.session.timeout.ms=50000"}, ""},
		{groupKind, "g", []string{"foo=1"}, "INVALID_CONFIG Unknown group config name: foo"},
		{groupKind, "", []string{"share.session.timeout.ms=45000"}, "INVALID_REQUEST Default group resources are not allowed."},
		{groupKind, "g", []string{"share.delivery.count.limit=100"}, "INVALID_CONFIG share.delivery.count.limit must be in the range 2 to 10 inclusive."},
		{brokerKind, "", []string{"log.retention.ms=100000"}, ""},
		{brokerKind, "1", []string{"message.max.bytes=2000"}, ""},
		{brokerKind, "", []string{"num.partitions=2"}, "INVALID_REQUEST Cannot update these configs dynamically: [num.partitions]"},
		{brokerKind, "1", []string{"log.segment.bytes=1"}, "INVALID_REQUEST Invalid value 1 for configuration log.segment.bytes: Value must be at least 1048576"},
		{brokerKind, "", []string{"leader.replication.throttled.rate=1"}, "INVALID_REQUEST Cannot update these configs at default cluster level, broker id must be specified: [leader.replication.throttled.rate]"},
		{brokerKind, "x", []string{"log.retention.ms=1"}, "INVALID_REQUEST Node id must be an integer, but it is: x"},
		{brokerKind, "2", []string{"log.retention.ms=1"}, "INVALID_REQUEST Unexpected broker id, expected 1 or empty string, but received 2"},
		{loggerKind, "1", []string{"root=DEBUG"}, "INVALID_REQUEST The level of the log is set when the broker is started."},
		{metricsKind, "m", []string{"interval.ms=1000"}, ""},
		{metricsKind, "m", []string{"foo=1000"}, "INVALID_REQUEST Unknown client metrics configuration: foo"},
		{metricsKind, "", []string{"interval.ms=1000"}, "INVALID_REQUEST Default client metrics resources are not allowed."},
		{99, "m", []string{"interval.ms=1"}, "INVALID_REQUEST Unknown resource type 99"},
		{kmsg.ConfigResourceTypeUnknown, "m", nil, "INVALID_REQUEST Unknown resource type 0"},
	} {
		require.Equal(t, c.want, alter(t, cl, c.kind, c.name, c.changes...), "%d %s %v", c.kind, c.name, c.changes)
	}
	requireDescribed(t, cl, groupKind, "g", "share.session.timeout.ms",
		"share.session.timeout.ms=50000 GROUP_CONFIG [GROUP_CONFIG:share.session.timeout.ms=50000] [DEFAULT_CONFIG:group.share.session.timeout.ms=45000]")
	requireDescribed(t, cl, metricsKind, "m", "interval.ms", "interval.ms=1000 CLIENT_METRICS_CONFIG [CLIENT_METRICS_CONFIG:interval.ms=1000]")
	requireDescribed(t, cl, brokerKind, "1", "log.retention.ms",
		"log.retention.ms=100000 DYNAMIC_DEFAULT_BROKER_CONFIG [DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=100000] [DEFAULT_CONFIG:log.retention.hours=168]")
	requireDescribed(t, cl, brokerKind, "1", "message.max.bytes",
		"message.max.bytes=2000 DYNAMIC_BROKER_CONFIG [DYNAMIC_BROKER_CONFIG:message.max.bytes=2000] [DEFAULT_CONFIG:message.max.bytes=1048588]")
	lines, refused := described(t, cl, brokerKind, "")
	require.Empty(t, refused)
	require.Equal(t, []string{"log.retention.ms=100000 DYNAMIC_DEFAULT_BROKER_CONFIG [DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=100000]"}, lines)
}

func TestDescribeConfigs(t *testing.T) {
	b := start(t, func(c *broker.Config) { c.Settings = map[string]string{"log.retention.hours": "2"} })
	cl := client(t, b)
	create(t, cl, "t")
	for _, c := range []struct {
		kind  kmsg.ConfigResourceType
		name  string
		count int
		want  string
	}{
		{topicKind, "t", 38, ""}, {topicKind, "__consumer_offsets", 38, ""},
		{topicKind, "nope", 0, "UNKNOWN_TOPIC_OR_PARTITION "}, {topicKind, "", 0, "INVALID_TOPIC_EXCEPTION Topic name is invalid: the empty string is not allowed"},
		{brokerKind, "", 0, ""}, {brokerKind, "2", 0, "INVALID_REQUEST Unexpected broker id, expected 1 or empty string, but received 2"},
		{brokerKind, "x", 0, "INVALID_REQUEST Broker id must be an integer, but it is: x"},
		{groupKind, "any", 19, ""}, {groupKind, "", 0, "INVALID_REQUEST Group name must not be empty"},
		{metricsKind, "any", 3, ""}, {metricsKind, "", 0, "INVALID_REQUEST Client metrics subscription name must not be empty"},
		{loggerKind, "1", 1, ""}, {loggerKind, "", 0, "INVALID_REQUEST Broker id must not be empty"},
		{99, "x", 0, "INVALID_REQUEST Unknown resource type 99"},
	} {
		lines, refused := described(t, cl, c.kind, c.name)
		require.Equal(t, c.want, refused, "%d %s", c.kind, c.name)
		require.Len(t, lines, c.count, "%d %s", c.kind, c.name)
	}
	requireDescribed(t, cl, topicKind, "t", "retention.ms", "retention.ms=7200000 STATIC_BROKER_CONFIG [STATIC_BROKER_CONFIG:log.retention.hours=2] [DEFAULT_CONFIG:log.retention.hours=168]")
	requireDescribed(t, cl, brokerKind, "1", "node.id", "node.id=1 DEFAULT_CONFIG [DEFAULT_CONFIG:node.id=1]")
	requireDescribed(t, cl, brokerKind, "1", "log.dirs", "log.dirs=data STATIC_BROKER_CONFIG [STATIC_BROKER_CONFIG:log.dirs=data] [DEFAULT_CONFIG:log.dirs=]")
	lines, _ := described(t, cl, brokerKind, "1", "listeners")
	require.Contains(t, lines[0], "listeners=PLAINTEXT://"+b.Addr())
	lines, _ = described(t, cl, loggerKind, "1", "root", "other")
	require.Equal(t, []string{"root=WARN DYNAMIC_BROKER_LOGGER_CONFIG"}, lines)
	lines, _ = described(t, cl, topicKind, "t", "nope")
	require.Empty(t, lines)

	req := kmsg.NewPtrDescribeConfigsRequest()
	req.IncludeDocumentation = true
	req.Resources = []kmsg.DescribeConfigsRequestResource{{ResourceType: brokerKind, ResourceName: "1"}}
	for _, c := range ask[*kmsg.DescribeConfigsResponse](t, cl, req).Resources[0].Configs {
		require.NotEmpty(t, text(c.Documentation), c.Name)
		require.NotZero(t, c.ConfigType, c.Name)
		require.Empty(t, c.ConfigSynonyms, "not asked for")
		require.False(t, c.IsSensitive)
		require.Equal(t, c.Name == "node.id" || c.Name == "num.partitions" || c.ReadOnly, c.ReadOnly, c.Name)
	}
}

func TestAlterConfigsReplacesAll(t *testing.T) {
	cl := client(t, start(t, nil))
	create(t, cl, "t")
	replace := func(validateOnly bool, resources ...kmsg.AlterConfigsRequestResource) []kmsg.AlterConfigsResponseResource {
		req := kmsg.NewPtrAlterConfigsRequest()
		req.ValidateOnly, req.Resources = validateOnly, resources
		return ask[*kmsg.AlterConfigsResponse](t, cl, req).Resources
	}
	to := func(name, setting, value string) kmsg.AlterConfigsRequestResource {
		return kmsg.AlterConfigsRequestResource{ResourceType: topicKind, ResourceName: name,
			Configs: []kmsg.AlterConfigsRequestResourceConfig{{Name: setting, Value: &value}}}
	}
	require.Zero(t, replace(false, to("t", "retention.ms", "5"))[0].ErrorCode)
	require.Zero(t, replace(true, to("t", "segment.ms", "6"))[0].ErrorCode)
	requireDescribed(t, cl, topicKind, "t", "segment.ms", "segment.ms=604800000 DEFAULT_CONFIG")
	require.Zero(t, replace(false, to("t", "segment.ms", "6"))[0].ErrorCode)
	requireDescribed(t, cl, topicKind, "t", "retention.ms", "retention.ms=604800000 DEFAULT_CONFIG")
	requireDescribed(t, cl, topicKind, "t", "segment.ms", "segment.ms=6 DYNAMIC_TOPIC_CONFIG [DYNAMIC_TOPIC_CONFIG:segment.ms=6] [DEFAULT_CONFIG:log.roll.hours=168]")

	require.Equal(t, kerr.InvalidConfig.Code, replace(false, to("t", "foo", "1"))[0].ErrorCode)
	null := to("t", "retention.ms", "")
	null.Configs[0].Value = nil
	require.Equal(t, kerr.InvalidRequest.Code, replace(false, null)[0].ErrorCode)
	for _, at := range replace(false, to("t", "retention.ms", "7"), to("t", "retention.ms", "8")) {
		require.Equal(t, kerr.InvalidRequest.Code, at.ErrorCode)
		require.Equal(t, "Each resource must appear at most once.", text(at.ErrorMessage))
	}
	requireDescribed(t, cl, topicKind, "t", "segment.ms", "segment.ms=6 DYNAMIC_TOPIC_CONFIG [DYNAMIC_TOPIC_CONFIG:segment.ms=6] [DEFAULT_CONFIG:log.roll.hours=168]")
}

// A setting takes effect at once, wherever it was set, and is there after a restart.
func TestSettingsTakeEffect(t *testing.T) {
	fs := vfs.NewMem()
	on := func(c *broker.Config) { c.FS = fs }
	b := start(t, on)
	cl := client(t, b, kgo.ProducerBatchCompression(kgo.NoCompression()))
	create(t, cl, "t", "u")
	produce := func(cl *kgo.Client, topic string) error {
		return cl.ProduceSync(t.Context(), &kgo.Record{Topic: topic, Value: make([]byte, 5000)}).FirstErr()
	}
	require.NoError(t, produce(cl, "t"))
	require.Empty(t, alter(t, cl, topicKind, "t", "max.message.bytes=1000"))
	require.ErrorIs(t, produce(cl, "t"), kerr.MessageTooLarge)
	require.NoError(t, produce(cl, "u"))

	require.Empty(t, alter(t, cl, topicKind, "t", "max.message.bytes"))
	require.Empty(t, alter(t, cl, brokerKind, "", "message.max.bytes=1000"))
	require.ErrorIs(t, produce(cl, "t"), kerr.MessageTooLarge)
	require.Empty(t, alter(t, cl, brokerKind, "1", "message.max.bytes=10000"))
	require.NoError(t, produce(cl, "t"), "what is set for the broker counts before what is set for all")
	require.Empty(t, alter(t, cl, brokerKind, "1", "message.max.bytes"))
	cl.Close()
	stop(t, b)

	b = start(t, on)
	cl = client(t, b, kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.ErrorIs(t, produce(cl, "t"), kerr.MessageTooLarge)
	create(t, cl, "new")
	require.ErrorIs(t, produce(cl, "new"), kerr.MessageTooLarge)
}

func TestStartRefusesWrongSettings(t *testing.T) {
	for settings, message := range map[[2]string]string{
		{"num.partition", "3"}:       "unknown setting num.partition; did you mean num.partitions?",
		{"num.partitions", "none"}:   "Invalid value none for configuration num.partitions: Not a number of type INT",
		{"log.dirs", "elsewhere"}:    "setting log.dirs cannot be given here",
		{"ssl.keystore.type", "JKS"}: "unknown setting ssl.keystore.type",
	} {
		_, err := broker.Start(t.Context(), broker.Config{
			Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem(), Settings: map[string]string{settings[0]: settings[1]},
		})
		require.ErrorContains(t, err, message)
	}
}

func TestSettingsOfTheStart(t *testing.T) {
	cl := client(t, start(t, func(c *broker.Config) {
		c.Settings = map[string]string{"num.partitions": "4", "auto.create.topics.enable": "false", "offsets.topic.num.partitions": "3", "offsets.topic.segment.bytes": "5000"}
	}))
	require.ErrorIs(t, cl.ProduceSync(t.Context(), &kgo.Record{Topic: "t", Value: []byte("x")}).FirstErr(), kerr.UnknownTopicOrPartition)
	require.EqualValues(t, 4, createTopics(t, cl, newTopic("t", nil))[0].NumPartitions)
	offsets := topics(t, cl)["__consumer_offsets"]
	require.Len(t, offsets.Partitions, 3)
	require.True(t, offsets.IsInternal)
	requireDescribed(t, cl, topicKind, "__consumer_offsets", "internal.segment.bytes",
		"internal.segment.bytes=5000 DYNAMIC_TOPIC_CONFIG [DYNAMIC_TOPIC_CONFIG:internal.segment.bytes=5000]")
}
