package client

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/protocol"
)

// SlotRange is the key slots from Lo to Hi, both included. The slot of a record is the
// top 16 bits of the xxHash64 of its key, or for a null key of its offset.
type SlotRange = protocol.SlotRange

// maxRunsPerCommit is how many runs one request carries at most: a tenth of what a broker
// admits, and less than a megabyte, so that a huge commit does not hold up others.
const maxRunsPerCommit = 100_000

// maxDecompressBytes is how large a batch may be once decompressed, unless
// kgo.MaxDecompressBatchBytes among KafkaOpts says otherwise.
const maxDecompressBytes = 128 << 20

// ReaderOpt is an option of [OpenReader].
type ReaderOpt interface{ applyReader(*readerConfig) }

type readerOpt func(*readerConfig)

func (o readerOpt) applyReader(cfg *readerConfig) { o(cfg) }

type readerConfig struct {
	consumeConfig
	partitions map[string][]int32
	positions  map[TopicPartition]int64
	ends       map[TopicPartition]int64 // of StopAt

	readCommitted    bool
	deliverCommitted bool
	stableLedger     bool
	reset            Position
	commitLinger     time.Duration
	maxQueuedRuns    int

	as          *membership // who commits; nil: an operator
	groupTopics []string    // that the members of its group read together
	member      memberConfig
}

func defaultReaderConfig() readerConfig {
	return readerConfig{
		consumeConfig: defaultConsumeConfig(),
		partitions:    make(map[string][]int32),
		positions:     make(map[TopicPartition]int64),
		ends:          make(map[TopicPartition]int64),
		maxQueuedRuns: 1_000_000,
	}
}

// defaultBackoff doubles from 100 ms to 5 s, less up to a quarter so that clients of a
// broker that comes back do not come all at once.
func defaultBackoff(tries int) time.Duration {
	d := 5 * time.Second
	if tries < 7 {
		d = min(d, 100*time.Millisecond<<max(tries-1, 0))
	}
	return d - rand.N(d/4)
}

// Group names the group whose ledger the Reader reads from and commits to. Without it
// the Reader starts where [ResetPosition] says, or at the offsets of [StartAt], and cannot
// commit.
func Group(name string) ConsumeOpt { return consumeOpt(func(cfg *consumeConfig) { cfg.group = name }) }

// Topics are read with all their partitions, also those added later.
func Topics(names ...string) ConsumeOpt {
	return consumeOpt(func(cfg *consumeConfig) { cfg.topics = append(cfg.topics, names...) })
}

// Partitions are read of a topic, and no others.
func Partitions(topic string, partitions ...int32) ReaderOpt {
	return readerOpt(func(cfg *readerConfig) {
		cfg.partitions[topic] = append(cfg.partitions[topic], partitions...)
	})
}

// StartAt begins a partition at an offset, whatever the group has committed. With a group
// the Reader still skips what is committed from there on, and leaves alone what is open
// below. The partition is read as if it was named by [Partitions].
func StartAt(topic string, partition int32, offset int64) ReaderOpt {
	return readerOpt(func(cfg *readerConfig) {
		cfg.partitions[topic] = append(cfg.partitions[topic], partition)
		cfg.positions[TopicPartition{topic, partition}] = offset
	})
}

// StopAt ends a partition at an offset: it is read up to there and no further, and
// [PartitionStatus].Past tells when that is done. The partition must be named by [Partitions]
// or [StartAt].
func StopAt(topic string, partition int32, end int64) ReaderOpt {
	return readerOpt(func(cfg *readerConfig) { cfg.ends[TopicPartition{topic, partition}] = end })
}

// Slots limits the Reader to the records whose key slot is in one of the ranges, or whose
// key is one of [Keys]. Readers that share a partition take disjoint ranges that together
// cover 0 to 65535.
func Slots(ranges ...SlotRange) ConsumeOpt {
	return consumeOpt(func(cfg *consumeConfig) { cfg.filter.Ranges = append(cfg.filter.Ranges, ranges...) })
}

// Keys limits the Reader to the records with one of these keys, byte for byte, or whose
// slot is in [Slots].
func Keys(keys ...[]byte) ConsumeOpt {
	return consumeOpt(func(cfg *consumeConfig) {
		for _, key := range keys {
			cfg.filter.Keys = append(cfg.filter.Keys, append([]byte{}, key...))
		}
	})
}

// ReadCommitted delivers no record of a transaction that was aborted or is still open.
// The default is to deliver all.
func ReadCommitted() ReaderOpt {
	return readerOpt(func(cfg *readerConfig) { cfg.readCommitted = true })
}

// DeliverCommitted delivers records that the ledger calls committed too, in offset order with
// the others: for a caller who keeps state made of them. [Reader.IsCommitted] tells them
// apart. What is delivered once more is open all the same.
//
// Every partition must be given where to start by [StartAt], and the Reader needs a group.
// With [ReadCommitted], records of transactions that were aborted are not delivered, although
// the ledger has them as committed.
func DeliverCommitted() ReaderOpt {
	return readerOpt(func(cfg *readerConfig) { cfg.deliverCommitted = true })
}

// StableLedger makes a Reader wait, when it opens and in [Reader.Refresh] and
// [Reader.RedeliverOpen], until the transactions have ended that had acknowledged records of
// its partitions by then: so an offset that it then calls open is not about to be committed by
// whoever read the partition before. Transactions that begin later are not waited for.
func StableLedger() ReaderOpt {
	return readerOpt(func(cfg *readerConfig) { cfg.stableLedger = true })
}

// ResetPosition is where a partition begins of which the group has committed nothing. It
// is founded there: what is below counts as committed. The default is [Earliest].
//
// Partitions that one of the [Topics] has gained since the group began with it are read from
// their first record all the same, also if nobody of the group ran then: what is written to
// them is for the group, like what is written to the others.
//
// A Reader whose position has left the log goes on at the nearer end of the log, since
// what is between is gone; under [NoReset] it reports [ErrNoPosition] instead.
func ResetPosition(p Position) ReaderOpt {
	return readerOpt(func(cfg *readerConfig) { cfg.reset = p })
}

// RefreshInterval is how often the Reader reads its ledger and the topics' metadata again:
// so it learns what others have committed or an operator has reopened, and of partitions
// that were added. The default is 10 s.
func RefreshInterval(d time.Duration) ConsumeOpt {
	return consumeOpt(func(cfg *consumeConfig) { cfg.refreshInterval = d })
}

// CommitLinger is how long a commit waits for others to travel with it. By default it does
// not: commits travel together that come while another is on its way.
func CommitLinger(d time.Duration) ReaderOpt {
	return readerOpt(func(cfg *readerConfig) { cfg.commitLinger = d })
}

// MaxQueuedRuns bounds the runs of commits that wait for the broker, after which
// committing blocks. The default is 1,000,000.
func MaxQueuedRuns(n int) ReaderOpt {
	return readerOpt(func(cfg *readerConfig) { cfg.maxQueuedRuns = n })
}

// RetryBackoff is how long to wait before a request is tried again, by the number of times
// that it failed. The default doubles from 100 ms to 5 s.
func RetryBackoff(fn func(tries int) time.Duration) ConsumeOpt {
	return consumeOpt(func(cfg *consumeConfig) { cfg.backoff = fn })
}

// FetchMaxWait is how long a broker may wait for data before it answers a fetch. The
// default is 500 ms.
func FetchMaxWait(d time.Duration) ConsumeOpt {
	return consumeOpt(func(cfg *consumeConfig) { cfg.fetchMaxWait = d })
}

// FetchMinBytes is how much (matching) data a broker collects before it answers, within
// FetchMaxWait. The default is 1.
func FetchMinBytes(n int32) ConsumeOpt {
	return consumeOpt(func(cfg *consumeConfig) { cfg.fetchMinBytes = n })
}

// FetchMaxBytes bounds the answer to one fetch, compressed, except that one batch always
// fits. A Reader holds up to two answers of each broker: one that Poll returned from and
// the next. The default is 50 MB.
func FetchMaxBytes(n int32) ConsumeOpt {
	return consumeOpt(func(cfg *consumeConfig) { cfg.fetchMaxBytes = n })
}

// FetchMaxPartitionBytes bounds each partition's part of an answer. The default is 1 MB.
func FetchMaxPartitionBytes(n int32) ConsumeOpt {
	return consumeOpt(func(cfg *consumeConfig) { cfg.fetchMaxPartitionBytes = n })
}

// features are those that the broker must have.
func (cfg *readerConfig) features() (names []string) {
	if cfg.group != "" {
		names = append(names, protocol.FeatureIndividualCommit)
	}
	if cfg.filtered() {
		names = append(names, protocol.FeatureKeyFilter)
	}
	return names
}

// topicNames are all topics that are read, once each.
func (cfg *readerConfig) topicNames() []string {
	names := slices.Concat(cfg.topics, slices.Collect(maps.Keys(cfg.partitions)))
	slices.Sort(names)
	return slices.Compact(names)
}

// readWholly names the topics of which the Reader, or the members of its group together,
// read all partitions.
func (cfg *readerConfig) readWholly() []string {
	if cfg.as != nil {
		return cfg.groupTopics
	}
	return cfg.topics
}

// validate checks the options against each other.
func (cfg *readerConfig) validate() error {
	if cfg.member.given {
		return errors.New("options of a member of a group: use client.OpenGroupReader")
	}
	if len(cfg.topics)+len(cfg.partitions) == 0 {
		return errors.New("nothing to read: name topics with client.Topics or client.Partitions")
	}
	for _, topic := range cfg.topics {
		if _, both := cfg.partitions[topic]; both {
			return fmt.Errorf("topic %s is given whole (client.Topics) and by partition (client.Partitions or client.StartAt)", topic)
		}
	}
	for tp, offset := range cfg.positions {
		if offset < 0 {
			return fmt.Errorf("start offset %d of %v is negative", offset, tp)
		}
	}
	for tp, end := range cfg.ends {
		switch {
		case !slices.Contains(cfg.partitions[tp.Topic], tp.Partition):
			return fmt.Errorf("client.StopAt of %v, which is named neither by client.Partitions nor by client.StartAt", tp)
		case end < 0:
			return fmt.Errorf("end offset %d of %v is negative", end, tp)
		}
	}
	if err := cfg.validateCommitted(); err != nil {
		return err
	}
	if err := cfg.validateFilter(); err != nil {
		return err
	}
	return cfg.validateLimits()
}

func (cfg *readerConfig) validateCommitted() error {
	switch {
	case cfg.group == "" && cfg.stableLedger:
		return errors.New("client.StableLedger without a group: name one with client.Group")
	case !cfg.deliverCommitted:
		return nil
	case cfg.group == "":
		return errors.New("client.DeliverCommitted without a group: name one with client.Group")
	case len(cfg.topics) > 0:
		return errors.New("client.DeliverCommitted needs to know where every partition starts: name each with client.StartAt, not client.Topics")
	}
	for topic, numbers := range cfg.partitions {
		for _, n := range numbers {
			if _, ok := cfg.positions[TopicPartition{topic, n}]; !ok {
				return fmt.Errorf("client.DeliverCommitted needs to know where %s[%d] starts: name it with client.StartAt", topic, n)
			}
		}
	}
	return nil
}

func (cfg *readerConfig) validateLimits() error {
	switch {
	case cfg.commitLinger < 0:
		return fmt.Errorf("commit linger %v is negative", cfg.commitLinger)
	case cfg.maxQueuedRuns <= 0:
		return fmt.Errorf("max queued runs %d is not positive", cfg.maxQueuedRuns)
	}
	return cfg.consumeConfig.validateLimits()
}
