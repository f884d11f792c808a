package broker

import (
	"fmt"
	"strconv"
	"time"

	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// brokerSettings are the settings of the broker that handlers act on and that may change
// while it runs.
type brokerSettings struct {
	AutoCreateTopics         bool  // auto.create.topics.enable
	NumPartitions            int32 // num.partitions
	OffsetsTopicPartitions   int32 // offsets.topic.num.partitions
	OffsetsTopicSegmentBytes int   // offsets.topic.segment.bytes
	DeleteTopics             bool  // delete.topic.enable
	DescribePartitionsMax    int32 // max.request.partition.size.limit
	FilterMaxScanBytes       int64 // fetch.filter.max.scan.bytes
	IndividualCommit         bool  // individual.commit.enable
}

// configure takes in the settings that the broker is started with.
func (b *Broker) configure(settings map[string]string) error {
	number := func(name string, def int64) (int64, error) {
		text, ok := settings[name]
		if !ok {
			return def, nil
		}
		n, err := strconv.ParseInt(text, 10, 64)
		if err != nil {
			return 0, fmt.Errorf("setting %s=%s: not a number", name, text)
		}
		return n, nil
	}
	b.limits = limits{
		maxRequestBytes: 100 << 20, memoryBytes: 256 << 20, maxInFlight: 64, maxConnections: 10_000,
		maxIdle: 10 * time.Minute, fetchMaxBytes: 55 << 20, fetchMemory: 256 << 20, fetchSessions: 1000,
	}
	id, err := number("node.id", 1)
	b.nodeID = int32(id)
	parts, err2 := number("num.partitions", 1)
	b.current = &brokerSettings{AutoCreateTopics: settings["auto.create.topics.enable"] != "false", NumPartitions: int32(parts), OffsetsTopicPartitions: 50, OffsetsTopicSegmentBytes: 100 << 20, IndividualCommit: true, DeleteTopics: true, FilterMaxScanBytes: 64 << 20, DescribePartitionsMax: 2000}
	b.upkeepEvery = upkeepIntervals{retention: 5 * time.Minute, cleaning: 15 * time.Second, checkpoint: checkpointEvery}
	b.flushInterval = 5 * time.Millisecond
	if err == nil {
		err = err2
	}
	return err
}

func (b *Broker) settings() *brokerSettings { return b.current }

func (b *Broker) individualCommitEnabled() bool { return b.settings().IndividualCommit }

// topicSettings are the effective settings of a topic.
func (b *Broker) topicSettings(_ *metadata.Image, t *metadata.Topic) *topicSettings {
	c := commitlog.DefaultConfig()
	if t.Config["cleanup.policy"] == "compact" {
		c.Delete, c.Compact = false, true
	}
	return &topicSettings{log: c, individualCommit: true}
}

// newTopicConfig checks the settings that a topic is to be made with.
func (b *Broker) newTopicConfig(req []kmsg.CreateTopicsRequestTopicConfig) (map[string]string, error) {
	config := make(map[string]string, len(req))
	for _, c := range req {
		if c.Value == nil {
			return nil, refusal(kerr.InvalidConfig, "setting %s has no value", c.Name)
		}
		config[c.Name] = *c.Value
	}
	return config, nil
}

// describeNewTopic lists the settings of a topic just made, as CreateTopics answers them.
func (b *Broker) describeNewTopic(*metadata.Topic) []kmsg.CreateTopicsResponseTopicConfig { return nil }
