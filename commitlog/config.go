package commitlog

import (
	"math"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"go.uber.org/zap"
)

// Config is what a topic can set, with Kafka's meaning of the setting in brackets.
type Config struct {
	SegmentBytes int64 // [segment.bytes] a segment ends before it grows past this; at most 2^31-1
	SegmentMs    int64 // [segment.ms] ... or holds a longer span of record time

	RetentionBytes int64 // [retention.bytes] -1: none
	RetentionMs    int64 // [retention.ms] -1: none

	MaxMessageBytes int32 // [max.message.bytes] of one batch

	Delete  bool // [cleanup.policy] holds delete: retention by time and size applies
	Compact bool // [cleanup.policy] holds compact

	DeleteRetentionMs  int64   // [delete.retention.ms] how long a tombstone stays after its first cleaning
	MinCompactionLagMs int64   // [min.compaction.lag.ms] younger records are not cleaned
	MaxCompactionLagMs int64   // [max.compaction.lag.ms] older ones are, whatever the dirty ratio
	MinCleanableRatio  float64 // [min.cleanable.dirty.ratio] dirty bytes in all bytes, from 0 to 1

	FlushMs       int64 // [flush.ms] -1: unset
	FlushMessages int64 // [flush.messages] -1: unset; with both unset an append is fsynced before its answer

	LogAppendTime        bool  // [message.timestamp.type] the broker's clock, not the producer's
	TimestampBeforeMaxMs int64 // [message.timestamp.before.max.ms]
	TimestampAfterMaxMs  int64 // [message.timestamp.after.max.ms]

	IndexIntervalBytes     int32 // [index.interval.bytes] of data between two index entries
	ProducerIDExpirationMs int64 // [producer.id.expiration.ms] an idle producer is forgotten after this
}

// DefaultConfig is Kafka's defaults.
func DefaultConfig() Config {
	day := (24 * time.Hour).Milliseconds()
	return Config{
		SegmentBytes:           1 << 30,
		SegmentMs:              7 * day,
		RetentionBytes:         -1,
		RetentionMs:            7 * day,
		MaxMessageBytes:        1048588,
		Delete:                 true,
		DeleteRetentionMs:      day,
		MaxCompactionLagMs:     math.MaxInt64,
		MinCleanableRatio:      0.5,
		FlushMs:                -1,
		FlushMessages:          -1,
		TimestampBeforeMaxMs:   math.MaxInt64,
		TimestampAfterMaxMs:    time.Hour.Milliseconds(),
		IndexIntervalBytes:     4096,
		ProducerIDExpirationMs: day,
	}
}

// flushesItself tells that the topic chose when it is fsynced, so that answers do not
// wait for it.
func (c *Config) flushesItself() bool { return c.FlushMs >= 0 || c.FlushMessages >= 0 }

// rollAgeMs is the span of time that a segment may hold.
func (c *Config) rollAgeMs() int64 {
	if c.Compact && c.MaxCompactionLagMs > 0 {
		return min(c.SegmentMs, c.MaxCompactionLagMs) // the active segment is never cleaned
	}
	return c.SegmentMs
}

// maxSegmentBytes bounds what positions in an index can name.
const maxSegmentBytes = math.MaxInt32

func (c *Config) segmentBytes() int64 {
	if c.SegmentBytes <= 0 || c.SegmentBytes > maxSegmentBytes {
		return maxSegmentBytes
	}
	return c.SegmentBytes
}

// Options is what a Log needs of its surroundings.
type Options struct {
	FS   vfs.FS
	Dir  string // the log's own; made if it is missing, in a directory that exists
	Name string // for errors and logs, such as "orders-3"

	// Fsync is off for brokers that leave durability to the operating system. Files that
	// tell recovery what to trust are synced all the same.
	Fsync bool

	Config Config
	Now    func() time.Time // nil: time.Now

	// Syncs caps the fsyncs that run at once on a device; logs share it. nil: no cap.
	Syncs *SyncLimiter

	// Reserve is space for what has to be written before a full disk gets room; logs share
	// it. nil: none.
	Reserve *Reserve

	// FlushInterval bounds how long an append that nobody waits for stays unsynced, and
	// with it unseen. Kafka's log.flush.interval.ms; 0: 5 ms.
	FlushInterval time.Duration

	// Unclean tells that the process that last had this log open did not end with a
	// Close that succeeded. What no index file vouches for is checked, and the leader
	// epoch rises before the first append.
	Unclean bool

	// CleanUpTo, if set, is asked for an offset that compaction must not pass: what reads
	// this log to build a view of it has not seen the records above it.
	CleanUpTo func() int64

	// MaxProducers bounds the idempotent producers that are remembered; past it those
	// idle for longest are forgotten, but none in a transaction. 0: 100,000, of about 200
	// bytes each.
	MaxProducers int

	// CleanerMemory bounds the bytes of the table of keys that a compaction builds. 0: 16 MiB,
	// 700,000 keys; with more keys a pass cleans a part.
	CleanerMemory int

	// Decoding bounds the batches that are decompressed for lookups by time, for
	// message.timestamp.before.max.ms and for compaction. What would be larger stays as it
	// is, and its time is that of the whole batch. nil: one of the log's own, of
	// protocol.DefaultMaxDecodedBytes.
	Decoding *DecodeLimiter

	Logger *zap.Logger // nil: none

	checkpointBytes int64 // 0: defaultCheckpointBytes; tests want more
}

// defaultCheckpointBytes is how much is appended to a segment between two index files that
// vouch for its beginning; it bounds what recovery has to read.
const defaultCheckpointBytes = 64 << 20

func (o Options) withDefaults() Options {
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.FlushInterval <= 0 {
		o.FlushInterval = 5 * time.Millisecond
	}
	if o.MaxProducers <= 0 {
		o.MaxProducers = 100_000
	}
	if o.CleanerMemory <= 0 {
		o.CleanerMemory = 16 << 20
	}
	if o.Decoding == nil {
		o.Decoding = decodeLimiterByDefault()
	}
	if o.checkpointBytes <= 0 {
		o.checkpointBytes = defaultCheckpointBytes
	}
	if o.Logger == nil {
		o.Logger = zap.NewNop()
	}
	return o
}

// SyncLimiter caps how many fsyncs run at once.
type SyncLimiter struct{ slots chan struct{} }

// NewSyncLimiter makes a limiter for n fsyncs at once, n at least 1.
func NewSyncLimiter(n int) *SyncLimiter {
	return &SyncLimiter{slots: make(chan struct{}, max(n, 1))}
}

// run calls f when a slot is free; a nil limiter has no bound.
func (s *SyncLimiter) run(f func() error) error {
	if s == nil {
		return f()
	}
	s.slots <- struct{}{}
	defer func() { <-s.slots }()
	return f()
}
