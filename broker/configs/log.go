package configs

import (
	"slices"

	"github.com/lacunamq/lacuna/commitlog"
)

// LogConfig is what a topic's logs are kept by. The values are those of a topic.
func (b *Broker) LogConfig(topic Values) commitlog.Config {
	policy := topic.List("cleanup.policy")
	c := commitlog.Config{
		SegmentBytes:           topic.Int("segment.bytes"),
		SegmentMs:              topic.Int("segment.ms"),
		RetentionBytes:         topic.Int("retention.bytes"),
		RetentionMs:            topic.Int("retention.ms"),
		MaxMessageBytes:        int32(topic.Int("max.message.bytes")),
		Delete:                 slices.Contains(policy, "delete"),
		Compact:                slices.Contains(policy, "compact"),
		DeleteRetentionMs:      topic.Int("delete.retention.ms"),
		MinCompactionLagMs:     topic.Int("min.compaction.lag.ms"),
		MaxCompactionLagMs:     topic.Int("max.compaction.lag.ms"),
		MinCleanableRatio:      topic.Float("min.cleanable.dirty.ratio"),
		FlushMs:                -1,
		FlushMessages:          -1,
		LogAppendTime:          topic.Text("message.timestamp.type") == "LogAppendTime",
		TimestampBeforeMaxMs:   topic.Int("message.timestamp.before.max.ms"),
		TimestampAfterMaxMs:    topic.Int("message.timestamp.after.max.ms"),
		IndexIntervalBytes:     int32(topic.Int("index.interval.bytes")),
		ProducerIDExpirationMs: b.Values().Int("producer.id.expiration.ms"),
	}
	if topic.Set("internal.segment.bytes") {
		c.SegmentBytes = topic.Int("internal.segment.bytes")
	}
	// Only what is set on the topic itself trades the fsync before an answer away.
	if topic.Set("flush.ms") {
		c.FlushMs = topic.Int("flush.ms")
	}
	if topic.Set("flush.messages") {
		c.FlushMessages = topic.Int("flush.messages")
	}
	c.RetentionBytes, c.RetentionMs = orNone(c.RetentionBytes), orNone(c.RetentionMs)
	return c
}

// orNone is -1 for each negative bound: Kafka takes them all for none.
func orNone(n int64) int64 { return max(n, -1) }
