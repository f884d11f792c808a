package broker

import (
	"maps"
	"strconv"
	"time"

	"github.com/lacunamq/lacuna/broker/configs"
	"github.com/lacunamq/lacuna/broker/filter"
	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/metadata"
	"github.com/lacunamq/lacuna/broker/transaction"
)

// brokerSettings are the settings of the broker that handlers act on and that may change
// while it runs. They are replaced, never changed.
type brokerSettings struct {
	configs *configs.Broker
	// What the broker's own settings come from in the metadata. Maps of an image never
	// change, so that these tell whether there is anything new.
	cluster, node map[string]string

	AutoCreateTopics         bool  // auto.create.topics.enable
	NumPartitions            int32 // num.partitions
	OffsetsTopicPartitions   int32 // offsets.topic.num.partitions
	OffsetsTopicSegmentBytes int   // offsets.topic.segment.bytes
	DeleteTopics             bool  // delete.topic.enable
	DescribePartitionsMax    int32 // max.request.partition.size.limit
	FilterMaxScanBytes       int64 // fetch.filter.max.scan.bytes
	MaxConnections           int   // max.connections
	IndividualCommit         bool  // individual.commit.enable
	IndividualMaxMemoryBytes int64 // individual.commit.max.memory.bytes
	Groups                   group.Config
	Transactions             transaction.Config

	TransactionsTopicPartitions   int32 // transaction.state.log.num.partitions
	TransactionsTopicSegmentBytes int   // transaction.state.log.segment.bytes

	CleanerBackoff        time.Duration // log.cleaner.backoff.ms
	OffsetsRetentionCheck time.Duration // offsets.retention.check.interval.ms
}

func newBrokerSettings(c *configs.Broker) *brokerSettings {
	v := c.Values()
	return &brokerSettings{
		configs:                  c,
		AutoCreateTopics:         v.Bool("auto.create.topics.enable"),
		NumPartitions:            int32(v.Int("num.partitions")),
		OffsetsTopicPartitions:   int32(v.Int("offsets.topic.num.partitions")),
		OffsetsTopicSegmentBytes: int(v.Int("offsets.topic.segment.bytes")),
		DeleteTopics:             v.Bool("delete.topic.enable"),
		DescribePartitionsMax:    int32(v.Int("max.request.partition.size.limit")),
		FilterMaxScanBytes:       v.Int("fetch.filter.max.scan.bytes"),
		MaxConnections:           int(v.Int("max.connections")),
		IndividualCommit:         v.Bool("individual.commit.enable"),
		IndividualMaxMemoryBytes: v.Int("individual.commit.max.memory.bytes"),
		Groups:                   groupSettings(func(name string, _ int64) int64 { return v.Int(name) }),
		Transactions: transaction.Config{
			MaxTimeout: millis(v, "transaction.max.timeout.ms"), IDExpiration: millis(v, "transactional.id.expiration.ms"),
		},
		TransactionsTopicPartitions:   int32(v.Int("transaction.state.log.num.partitions")),
		TransactionsTopicSegmentBytes: int(v.Int("transaction.state.log.segment.bytes")),
		CleanerBackoff:                millis(v, "log.cleaner.backoff.ms"),
		OffsetsRetentionCheck:         millis(v, "offsets.retention.check.interval.ms"),
	}
}

func millis(v configs.Values, name string) time.Duration {
	return time.Duration(v.Int(name)) * time.Millisecond
}

// configure takes in the settings that the broker is started with.
func (b *Broker) configure(static map[string]string) error {
	c, err := configs.NewBroker(static)
	if err != nil {
		return err
	}
	v := c.Values()
	b.current.Store(newBrokerSettings(c))
	b.nodeID = int32(v.Int("node.id"))
	b.limits = limits{
		maxRequestBytes: int(v.Int("socket.request.max.bytes")),
		memoryBytes:     v.Int("queued.max.request.bytes"),
		maxInFlight:     int(v.Int("max.in.flight.requests")),
		maxIdle:         millis(v, "connections.max.idle.ms"),
		fetchMaxBytes:   int(v.Int("fetch.max.bytes")),
		fetchMemory:     v.Int("fetch.max.memory.bytes"),
		fetchSessions:   int(v.Int("max.incremental.fetch.session.cache.slots")),
		shareSessions:   int(v.Int("group.share.max.share.sessions")),
		cleanerMemory:   int(v.Int("log.cleaner.dedupe.buffer.size")),
		maxDecoded:      int(v.Int("max.decoded.batch.bytes")),
	}
	b.upkeepEvery = upkeepIntervals{
		retention:  millis(v, "log.retention.check.interval.ms"),
		checkpoint: millis(v, "log.flush.offset.checkpoint.interval.ms"),
	}
	b.flushInterval = millis(v, "log.flush.interval.ms")
	return nil
}

func (b *Broker) settings() *brokerSettings { return b.current.Load() }

func (b *Broker) individualCommitEnabled() bool { return b.settings().IndividualCommit }

// refreshSettings takes in what the metadata says of this broker and of all.
func (b *Broker) refreshSettings(image *metadata.Image) {
	cluster, node := image.Config(metadata.Resource{Kind: metadata.Broker}), image.Config(b.resource())
	old := b.settings()
	if maps.Equal(cluster, old.cluster) && maps.Equal(node, old.node) {
		return
	}
	s := newBrokerSettings(old.configs.WithDynamic(cluster, node))
	s.cluster, s.node = cluster, node
	b.current.Store(s)
	if b.groups != nil {
		b.groups.SetConfig(s.Groups)
	}
	if b.transactions != nil {
		b.transactions.SetConfig(s.Transactions)
	}
}

// resource is this broker among those that have settings.
func (b *Broker) resource() metadata.Resource {
	return metadata.Resource{Kind: metadata.Broker, Name: strconv.Itoa(int(b.nodeID))}
}

// topic are the effective settings of a topic.
func (s *brokerSettings) topic(t *metadata.Topic) *topicSettings {
	v := s.configs.Topic(t.Config)
	return &topicSettings{log: s.configs.LogConfig(v), individualCommit: v.Bool("individual.commit.enable")}
}

// filterConfig bounds what filtered fetches hold.
func (b *Broker) filterConfig() filter.Config {
	v := b.settings().configs.Values()
	return filter.Config{
		DecodedCacheBytes: v.Int("fetch.filter.decoded.cache.bytes"),
		IndexCacheBytes:   v.Int("fetch.filter.index.cache.bytes"),
		Decoding:          b.decoding,
		Logger:            b.log,
	}
}
