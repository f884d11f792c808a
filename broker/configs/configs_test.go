package configs

import (
	"fmt"
	"testing"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
)

func mustBroker(t *testing.T, static map[string]string) *Broker {
	t.Helper()
	b, err := NewBroker(static)
	require.NoError(t, err)
	return b.WithDerived(map[string]string{"listeners": "PLAINTEXT://127.0.0.1:9092"})
}

func set(pairs ...string) map[string]string {
	m := map[string]string{}
	for i := 0; i < len(pairs); i += 2 {
		m[pairs[i]] = pairs[i+1]
	}
	return m
}

func requireRefused(t *testing.T, kind *kerr.Error, message string, err error) {
	t.Helper()
	require.EqualError(t, err, message)
	require.ErrorIs(t, err, kind)
}

// The values and messages are those that Apache Kafka 4.4.0 gave.
func TestTopicValues(t *testing.T) {
	b := mustBroker(t, nil)
	for _, ok := range []map[string]string{
		nil, set("cleanup.policy", ""), set("cleanup.policy", "delete, compact"), set("cleanup.policy", "compact,compact"),
		set("compression.gzip.level", "-1"), set("compression.zstd.level", "-3"), set("compression.lz4.level", "17"),
		set("compression.type", "zstd"), set("retention.ms", " 5000 "), set("retention.ms", "-1"), set("retention.bytes", "-3"),
		set("preallocate", "TRUE"), set("min.cleanable.dirty.ratio", "0.25"), set("leader.replication.throttled.replicas", "*"),
		set("leader.replication.throttled.replicas", "0:1,1:1"), set("segment.bytes", "1048576"), set("internal.segment.bytes", "1000"),
		set("individual.commit.enable", "false"), set("message.timestamp.type", "LogAppendTime"), set("flush.ms", "0"),
	} {
		require.NoError(t, b.ValidateTopic(ok), "%v", ok)
	}
	for value, message := range map[[2]string]string{
		{"foo", "1"}:                          "Unknown topic config name: foo",
		{"cleanup.policy", "-3"}:              "Invalid value -3 for configuration cleanup.policy: String must be one of: compact, delete",
		{"compression.gzip.level", "-3"}:      "Invalid value -3 for configuration compression.gzip.level: Value must be between 1 and 9 or equal to -1",
		{"compression.lz4.level", "100"}:      "Invalid value 100 for configuration compression.lz4.level: Value must be no more than 17",
		{"compression.lz4.level", "0"}:        "Invalid value 0 for configuration compression.lz4.level: Value must be at least 1",
		{"compression.type", "-3"}:            "Invalid value -3 for configuration compression.type: String must be one of: uncompressed, zstd, lz4, snappy, gzip, producer",
		{"delete.retention.ms", "x"}:          "Invalid value x for configuration delete.retention.ms: Not a number of type LONG",
		{"delete.retention.ms", ""}:           "Invalid value  for configuration delete.retention.ms: Not a number of type LONG",
		{"index.interval.bytes", maxLong}:     "Invalid value 9223372036854775807 for configuration index.interval.bytes: Not a number of type INT",
		{"min.cleanable.dirty.ratio", "-3"}:   "Invalid value -3.0 for configuration min.cleanable.dirty.ratio: Value must be at least 0",
		{"min.cleanable.dirty.ratio", "2"}:    "Invalid value 2.0 for configuration min.cleanable.dirty.ratio: Value must be no more than 1",
		{"min.cleanable.dirty.ratio", "x"}:    "Invalid value x for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
		{"min.cleanable.dirty.ratio", "NaN"}:  "Invalid value NaN for configuration min.cleanable.dirty.ratio: Not a number of type DOUBLE",
		{"message.timestamp.type", "-3"}:      "Invalid value -3 for configuration message.timestamp.type: String must be one of: CreateTime, LogAppendTime",
		{"preallocate", "1"}:                  "Invalid value 1 for configuration preallocate: Expected value to be either true or false",
		{"remote.storage.enable", "true"}:     "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.",
		{"retention.ms", "-3"}:                "Invalid value -3 for configuration retention.ms: Value must be at least -1",
		{"segment.bytes", "100000"}:           "Invalid value 100000 for configuration segment.bytes: Value must be at least 1048576",
		{"segment.ms", "0"}:                   "Invalid value 0 for configuration segment.ms: Value must be at least 1",
		{"individual.commit.enable", "maybe"}: "Invalid value maybe for configuration individual.commit.enable: Expected value to be either true or false",
	} {
		requireRefused(t, kerr.InvalidConfig, message, b.ValidateTopic(set(value[0], value[1])))
	}
	requireRefused(t, kerr.InvalidConfig, "conflict topic config setting min.compaction.lag.ms (10) > max.compaction.lag.ms (5)",
		b.ValidateTopic(set("min.compaction.lag.ms", "10", "max.compaction.lag.ms", "5")))
	require.ErrorContains(t, b.ValidateTopic(set("leader.replication.throttled.replicas", "0-1")), "must be the literal '*' or a list of replicas")
}

func TestGroupValues(t *testing.T) {
	b := mustBroker(t, nil)
	for _, ok := range []map[string]string{
		nil, set("share.auto.offset.reset", "earliest"), set("share.auto.offset.reset", "by_duration:PT1H30M"),
		set("share.auto.offset.reset", "by_duration:P1DT0.5S"), set("share.partition.max.record.locks", "10000000"),
		set("share.delivery.mode", "key-range", "share.key.range.initial", "1"), set("share.retry.backoff.ms", "90000", "share.retry.backoff.max.ms", "90000"),
		set("share.session.timeout.ms", "60000", "share.heartbeat.interval.ms", "15000"), set("errors.deadletterqueue.topic.name", "x"),
	} {
		require.NoError(t, b.ValidateGroup(ok), "%v", ok)
	}
	for value, message := range map[[2]string]string{
		{"foo", "1"}:                                 "Unknown group config name: foo",
		{"streams.num.standby.replicas", "1"}:        "Unknown group config name: streams.num.standby.replicas",
		{"consumer.heartbeat.interval.ms", "1"}:      "consumer.heartbeat.interval.ms must be in the range 5000 to 15000 inclusive.",
		{"consumer.heartbeat.interval.ms", "0"}:      "Invalid value 0 for configuration consumer.heartbeat.interval.ms: Value must be at least 1",
		{"consumer.session.timeout.ms", "100000"}:    "consumer.session.timeout.ms must be in the range 45000 to 60000 inclusive.",
		{"share.delivery.count.limit", "100"}:        "share.delivery.count.limit must be in the range 2 to 10 inclusive.",
		{"share.partition.max.record.locks", maxInt}: "share.partition.max.record.locks must be in the range 100 to 10000000 inclusive.",
		{"share.delivery.mode", "random"}:            "Invalid value random for configuration share.delivery.mode: String must be one of: round-robin, key-ordered, key-range",
		{"share.key.range.initial", "0"}:             "Invalid value 0 for configuration share.key.range.initial: Value must be at least 1",
		{"share.key.range.initial", "65537"}:         "Invalid value 65537 for configuration share.key.range.initial: Value must be no more than 65536",
		{"share.key.waiting.max.bytes", "1"}:         "Invalid value 1 for configuration share.key.waiting.max.bytes: Value must be at least 65536",
		{"share.retry.backoff.ms", "60001"}:          "share.retry.backoff.ms must not be greater than share.retry.backoff.max.ms, which is 60000",
		{"share.record.lock.duration.ms", "5000"}:    "share.record.lock.duration.ms must be in the range 15000 to 60000 inclusive.",
		{"share.isolation.level", "-3"}:              "Invalid value -3 for configuration share.isolation.level: String must be one of: read_committed, read_uncommitted",
	} {
		requireRefused(t, kerr.InvalidConfig, message, b.ValidateGroup(set(value[0], value[1])))
	}
	for _, bad := range []string{"-3", "by_duration:", "by_duration:P", "by_duration:PT", "by_duration:-PT1H", "by_duration:1h", "Earliest"} {
		require.ErrorIs(t, b.ValidateGroup(set("share.auto.offset.reset", bad)), kerr.InvalidConfig, bad)
	}

	wide := mustBroker(t, set("group.share.min.heartbeat.interval.ms", "1", "group.share.max.heartbeat.interval.ms", "50000"))
	requireRefused(t, kerr.InvalidConfig, "share.session.timeout.ms must be greater than share.heartbeat.interval.ms",
		wide.ValidateGroup(set("share.heartbeat.interval.ms", "45000")))
}

func TestClientMetricsValues(t *testing.T) {
	require.NoError(t, ValidateClientMetrics(set("interval.ms", "1000", "match", "client_id=a", "metrics", "a,b")))
	requireRefused(t, kerr.InvalidRequest, "Unknown client metrics configuration: foo", ValidateClientMetrics(set("foo", "1")))
	requireRefused(t, kerr.InvalidRequest, "Invalid value 1 for interval.ms, interval must be between 100 and 3600000 (1 hour)",
		ValidateClientMetrics(set("interval.ms", "1")))
	require.ErrorIs(t, ValidateClientMetrics(set("interval.ms", "x")), kerr.InvalidRequest)
}

func TestBrokerValues(t *testing.T) {
	require.NoError(t, ValidateBroker(nil, set("log.retention.ms", "1", "individual.commit.enable", "false"), false))
	require.NoError(t, ValidateBroker(nil, set("leader.replication.throttled.rate", "1"), true))
	require.NoError(t, ValidateBroker(set("num.partitions", "3"), set("num.partitions", "3", "log.retention.ms", "1"), false), "as it was")
	for _, c := range []struct {
		before, set map[string]string
		message     string
	}{
		{nil, set("foo", "1"), "Unknown broker config name: foo"},
		{nil, set("node.id", "2", "broker.id", "2"), "Cannot update these configs dynamically: [broker.id, node.id]"},
		{set("num.partitions", "3"), nil, "Cannot update these configs dynamically: [num.partitions]"},
		{nil, set("leader.replication.throttled.rate", "1"),
			"Cannot update these configs at default cluster level, broker id must be specified: [leader.replication.throttled.rate]"},
		{nil, set("log.retention.ms", "0"), "Invalid value 0 for configuration log.retention.ms: Value must be unlimited (-1) or, greater than or equal to 1"},
		{nil, set("log.retention.ms", "x"), "Invalid value x for configuration log.retention.ms: Not a number of type LONG"},
	} {
		requireRefused(t, kerr.InvalidRequest, c.message, ValidateBroker(c.before, c.set, false))
	}
}

func TestStaticSettings(t *testing.T) {
	for name, c := range map[string]struct {
		set     map[string]string
		message string
	}{
		"typo":    {set("num.partition", "3"), "unknown setting num.partition; did you mean num.partitions?"},
		"foreign": {set("ssl.keystore.location", "x"), "unknown setting ssl.keystore.location"},
		"derived": {set("log.dirs", "/data"), "setting log.dirs cannot be given here: The data directory. Set by --data-dir."},
		"value":   {set("num.partitions", "0"), "Invalid value 0 for configuration num.partitions: Value must be at least 1"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := NewBroker(c.set)
			requireRefused(t, kerr.InvalidConfig, c.message, err)
		})
	}
}

func str(s string) *string { return &s }

func TestAlter(t *testing.T) {
	was := set("retention.ms", "5", "cleanup.policy", "compact")
	for name, c := range map[string]struct {
		changes []Change
		want    map[string]string
	}{
		"nothing":          {nil, was},
		"set":              {[]Change{{"segment.ms", OpSet, str("1")}, {"retention.ms", OpSet, str("6")}}, set("retention.ms", "6", "cleanup.policy", "compact", "segment.ms", "1")},
		"delete":           {[]Change{{"retention.ms", OpDelete, nil}, {"segment.ms", OpDelete, str("ignored")}}, set("cleanup.policy", "compact")},
		"append":           {[]Change{{"cleanup.policy", OpAppend, str("delete, compact")}}, set("retention.ms", "5", "cleanup.policy", "compact,delete")},
		"subtract":         {[]Change{{"cleanup.policy", OpSubtract, str("compact,delete")}}, set("retention.ms", "5", "cleanup.policy", "")},
		"append to an own": {[]Change{{"cleanup.policy", OpDelete, nil}}, set("retention.ms", "5")},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := Topics.Alter(was, c.changes)
			require.NoError(t, err)
			require.Equal(t, c.want, got)
			require.Equal(t, set("retention.ms", "5", "cleanup.policy", "compact"), was)
		})
	}
	got, err := Topics.Alter(nil, []Change{{"cleanup.policy", OpAppend, str("compact")}})
	require.NoError(t, err)
	require.Equal(t, set("cleanup.policy", "delete,compact"), got, "a list that is not set begins as its default")

	for _, c := range []struct {
		kind    *kerr.Error
		message string
		changes []Change
	}{
		{kerr.InvalidConfig, "Can't APPEND to key retention.ms because its type is not LIST.", []Change{{"retention.ms", OpAppend, str("1")}}},
		{kerr.InvalidConfig, "Can't SUBTRACT from key foo because its type is not LIST.", []Change{{"foo", OpSubtract, str("1")}}},
		{kerr.InvalidRequest, "Null value not supported for : retention.ms", []Change{{"retention.ms", OpSet, nil}}},
		{kerr.InvalidRequest, "Error due to duplicate config keys", []Change{{"a", OpSet, str("1")}, {"a", OpDelete, nil}}},
		{kerr.InvalidRequest, "Unknown operation 7 for configuration retention.ms", []Change{{"retention.ms", 7, str("1")}}},
	} {
		_, err := Topics.Alter(was, c.changes)
		requireRefused(t, c.kind, c.message, err)
	}
}

func TestTheNearestSettingCounts(t *testing.T) {
	b := mustBroker(t, set("log.retention.hours", "2", "message.max.bytes", "100"))
	require.EqualValues(t, 7_200_000, b.Topic(nil).Int("retention.ms"))
	require.EqualValues(t, 100, b.Topic(nil).Int("max.message.bytes"))
	cluster := b.WithDynamic(set("message.max.bytes", "200", "log.retention.ms", "300", "num.partitions", "7", "foo", "1", "log.segment.bytes", "x"), nil)
	require.EqualValues(t, 200, cluster.Topic(nil).Int("max.message.bytes"))
	require.EqualValues(t, 300, cluster.Topic(nil).Int("retention.ms"))
	require.EqualValues(t, 1, cluster.Values().Int("num.partitions"), "it cannot change while the broker runs")
	require.EqualValues(t, 1<<30, cluster.Topic(nil).Int("segment.bytes"), "what is not valid any more is ignored")
	node := b.WithDynamic(set("message.max.bytes", "200"), set("message.max.bytes", "250"))
	require.EqualValues(t, 250, node.Topic(nil).Int("max.message.bytes"))
	topic := node.Topic(set("max.message.bytes", "50"))
	require.EqualValues(t, 50, topic.Int("max.message.bytes"))
	require.True(t, topic.Set("max.message.bytes"))
	require.False(t, topic.Set("retention.ms"))
	require.EqualValues(t, 100, b.Topic(nil).Int("max.message.bytes"), "settings never change")

	minutes := mustBroker(t, set("log.retention.hours", "2", "log.retention.minutes", "1"))
	require.EqualValues(t, 60_000, minutes.Topic(nil).Int("retention.ms"))
	require.EqualValues(t, -1, mustBroker(t, set("log.retention.minutes", "-1")).Topic(nil).Int("retention.ms"))
	require.Equal(t, int64(1<<31-1)*3_600_000, mustBroker(t, set("log.retention.hours", maxInt)).Topic(nil).Int("retention.ms"))

	group := mustBroker(t, set("group.share.session.timeout.ms", "50000")).Group(set("share.isolation.level", "read_committed"))
	require.EqualValues(t, 50000, group.Int("share.session.timeout.ms"))
	require.Equal(t, "read_committed", group.Text("share.isolation.level"))
}

func TestWrongNamesAndTypesPanic(t *testing.T) {
	v := mustBroker(t, nil).Topic(nil)
	require.Panics(t, func() { v.Int("nope") })
	require.Panics(t, func() { v.Bool("retention.ms") })
	require.NotPanics(t, func() { v.List("cleanup.policy") })
}

func TestLogConfig(t *testing.T) {
	b := mustBroker(t, nil)
	require.Equal(t, commitlog.DefaultConfig(), b.LogConfig(b.Topic(nil)))

	c := b.LogConfig(b.Topic(set("cleanup.policy", "compact", "retention.bytes", "-3", "message.timestamp.type", "LogAppendTime",
		"flush.ms", "7", "internal.segment.bytes", "900", "min.cleanable.dirty.ratio", "0.25")))
	want := commitlog.DefaultConfig()
	want.Delete, want.Compact, want.LogAppendTime = false, true, true
	want.FlushMs, want.SegmentBytes, want.MinCleanableRatio = 7, 900, 0.25
	require.Equal(t, want, c)

	none := b.LogConfig(b.Topic(set("cleanup.policy", "", "flush.messages", maxLong)))
	require.False(t, none.Delete || none.Compact)
	require.EqualValues(t, int64(1<<63-1), none.FlushMessages, "the topic says so itself")
}

// lines writes entries as "name=value SOURCE [SOURCE:name=value]" for those that are
// asked for.
func lines(entries []Entry) []string {
	text := map[Source]string{0: "NONE", 1: "TOPIC", 2: "BROKER", 3: "DEFAULT_BROKER", 4: "STATIC", 5: "DEFAULT", 7: "METRICS", 8: "GROUP"}
	var all []string
	for _, e := range entries {
		value := "null"
		if e.Value != nil {
			value = *e.Value
		}
		line := e.Def.Name + "=" + value + " " + text[e.Source]
		for _, s := range e.Synonyms {
			line += fmt.Sprintf(" [%s:%s=%s]", text[s.Source], s.Name, s.Value)
		}
		all = append(all, line)
	}
	return all
}

// The answers are those of Apache Kafka 4.4.0.
func TestDescribe(t *testing.T) {
	b := mustBroker(t, nil)
	require.Equal(t, []string{
		"retention.ms=604800000 DEFAULT",
		"segment.ms=604800000 DEFAULT",
		"flush.ms=9223372036854775807 DEFAULT",
		"max.message.bytes=1048588 DEFAULT [DEFAULT:message.max.bytes=1048588]",
	}, lines(b.Topic(nil).Describe([]string{"retention.ms", "segment.ms", "flush.ms", "nope", "max.message.bytes"})))

	dynamic := b.WithDynamic(set("log.cleanup.policy", "compact"), set("log.retention.ms", "100000"))
	require.Equal(t, []string{
		"retention.ms=100000 BROKER [BROKER:log.retention.ms=100000] [DEFAULT:log.retention.hours=168]",
		"cleanup.policy=delete TOPIC [TOPIC:cleanup.policy=delete] [DEFAULT_BROKER:log.cleanup.policy=compact] [DEFAULT:log.cleanup.policy=delete]",
	}, lines(dynamic.Topic(set("cleanup.policy", "delete")).Describe([]string{"retention.ms", "cleanup.policy"})))
	require.Equal(t, []string{
		"log.retention.ms=100000 BROKER [BROKER:log.retention.ms=100000] [DEFAULT:log.retention.hours=168]",
		"log.roll.ms=null DEFAULT",
		"log.retention.hours=168 DEFAULT [DEFAULT:log.retention.hours=168]",
		"listeners=PLAINTEXT://127.0.0.1:9092 STATIC [STATIC:listeners=PLAINTEXT://127.0.0.1:9092] [DEFAULT:listeners=]",
	}, lines(dynamic.Values().Describe([]string{"log.retention.ms", "log.roll.ms", "log.retention.hours", "listeners"})))
	require.Equal(t, []string{"log.cleanup.policy=compact DEFAULT_BROKER [DEFAULT_BROKER:log.cleanup.policy=compact]"},
		lines(dynamic.DescribeCluster(nil)))

	require.Equal(t, []string{
		"share.session.timeout.ms=50000 GROUP [GROUP:share.session.timeout.ms=50000] [DEFAULT:group.share.session.timeout.ms=45000]",
		"share.auto.offset.reset=latest DEFAULT [DEFAULT:share.auto.offset.reset=latest]",
	}, lines(b.Group(set("share.session.timeout.ms", "50000")).Describe([]string{"share.session.timeout.ms", "share.auto.offset.reset"})))

	require.Equal(t, []string{"interval.ms=1000 METRICS [METRICS:interval.ms=1000]", "match= DEFAULT", "metrics= DEFAULT"},
		lines(DescribeClientMetrics(set("interval.ms", "1000"), nil)))
}

func TestDescribeAll(t *testing.T) {
	b := mustBroker(t, nil)
	entries := b.Topic(nil).Describe(nil)
	require.Len(t, entries, len(topicDefs)+len(topicOwnDefs)-1, "all but the hidden one")
	for _, e := range entries {
		require.False(t, e.ReadOnly)
		require.NotNil(t, e.Value)
	}
	require.Len(t, b.Topic(set("internal.segment.bytes", "100")).Describe(nil), len(entries)+1)
	readOnly := 0
	for _, e := range b.Values().Describe(nil) {
		if e.ReadOnly {
			readOnly++
		}
		if e.Def.Unused {
			require.Contains(t, e.Def.Documentation(), "no effect")
		}
	}
	require.Greater(t, readOnly, 50)
}
