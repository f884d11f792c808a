package configs

// maxInt and maxLong are Java's.
const (
	maxInt  = "2147483647"
	maxLong = "9223372036854775807"
)

// from is the broker's setting that gives a topic's or group's default.
func from(name string) []Alias { return []Alias{{Name: name, Factor: 1}} }

// topicDefs are Kafka's settings of a topic.
var topicDefs = []Def{
	{Name: "cleanup.policy", Type: List, Default: "delete", Check: someOf("compact", "delete"), From: from("log.cleanup.policy"),
		Doc: "What happens to old segments: delete discards them by age and size, compact keeps the last record of each key. Both may be given; an empty list keeps everything."},
	{Name: "compression.type", Type: String, Default: "producer", Check: compressionType, From: from("compression.type"), Unused: true,
		Doc: "The codec that Kafka would recompress with. Batches are kept here as their producers sent them, whatever this says."},
	{Name: "compression.gzip.level", Type: Int, Default: "-1", Check: gzipLevel, From: from("compression.gzip.level"), Unused: true,
		Doc: "The level of gzip for recompression."},
	{Name: "compression.lz4.level", Type: Int, Default: "9", Check: between(1, 17), From: from("compression.lz4.level"), Unused: true,
		Doc: "The level of lz4 for recompression."},
	{Name: "compression.zstd.level", Type: Int, Default: "3", Check: between(-131072, 22), From: from("compression.zstd.level"), Unused: true,
		Doc: "The level of zstd for recompression."},
	{Name: "delete.retention.ms", Type: Long, Default: "86400000", Check: atLeast(0), From: from("log.cleaner.delete.retention.ms"),
		Doc: "How long tombstones stay in a compacted topic after their first cleaning, so that whoever reads it from the start sees them."},
	{Name: "errors.deadletterqueue.group.enable", Type: Boolean, Default: "false",
		Doc: "Whether share groups may use this topic as their dead-letter queue."},
	{Name: "file.delete.delay.ms", Type: Long, Default: "60000", Check: atLeast(0), From: from("log.segment.delete.delay.ms"), Unused: true,
		Doc: "How long a file stays after it was deleted. Files here go when their last reader is done."},
	{Name: "flush.messages", Type: Long, Default: maxLong, Check: atLeast(1),
		Doc: "After how many records at most an fsync is forced. Setting this or flush.ms on a topic answers acks=all after the write, not after an fsync; with neither, every answer waits for its fsync."},
	{Name: "flush.ms", Type: Long, Default: maxLong, Check: atLeast(0),
		Doc: "After how many ms at most an fsync is forced. See flush.messages."},
	{Name: "follower.replication.throttled.replicas", Type: List, Check: throttled("follower.replication.throttled.replicas"), Unused: true,
		Doc: "Replicas whose followers are throttled."},
	{Name: "index.interval.bytes", Type: Int, Default: "4096", Check: atLeast(0), From: from("log.index.interval.bytes"),
		Doc: "Bytes of records between two entries of the offset and time index."},
	{Name: "leader.replication.throttled.replicas", Type: List, Check: throttled("leader.replication.throttled.replicas"), Unused: true,
		Doc: "Replicas whose leaders are throttled."},
	{Name: "local.retention.bytes", Type: Long, Default: "-2", Check: atLeast(-2), From: from("log.local.retention.bytes"), Unused: true,
		Doc: "The size of local segments where there is remote storage."},
	{Name: "local.retention.ms", Type: Long, Default: "-2", Check: atLeast(-2), From: from("log.local.retention.ms"), Unused: true,
		Doc: "The age of local segments where there is remote storage."},
	{Name: "max.compaction.lag.ms", Type: Long, Default: maxLong, Check: atLeast(1), From: from("log.cleaner.max.compaction.lag.ms"),
		Doc: "The longest time that a record of a compacted topic stays uncompacted. It also bounds the age of the active segment."},
	{Name: "max.decompressed.message.bytes", Type: Int, Default: "2147483639", Check: atLeast(1), From: from("max.decompressed.message.bytes"), Unused: true,
		Doc: "The largest decompressed record. Here max.decoded.batch.bytes of the broker bounds what a whole batch may decompress to."},
	{Name: "max.message.bytes", Type: Int, Default: "1048588", Check: atLeast(0), From: from("message.max.bytes"),
		Doc: "The largest batch of records, after compression, in bytes."},
	{Name: "message.timestamp.after.max.ms", Type: Long, Default: "3600000", Check: atLeast(0), From: from("log.message.timestamp.after.max.ms"),
		Doc: "By how much a record's timestamp may be ahead of the broker's clock. Only with CreateTime."},
	{Name: "message.timestamp.before.max.ms", Type: Long, Default: maxLong, Check: atLeast(0), From: from("log.message.timestamp.before.max.ms"),
		Doc: "By how much a record's timestamp may be behind the broker's clock. Only with CreateTime."},
	{Name: "message.timestamp.type", Type: String, Default: "CreateTime", Check: oneOf("CreateTime", "LogAppendTime"), From: from("log.message.timestamp.type"),
		Doc: "Whether records keep their producer's time or get that of the append."},
	{Name: "min.cleanable.dirty.ratio", Type: Double, Default: "0.5", Check: ratio, From: from("log.cleaner.min.cleanable.ratio"),
		Doc: "The share of uncompacted bytes from which on a log is compacted."},
	{Name: "min.compaction.lag.ms", Type: Long, Default: "0", Check: atLeast(0), From: from("log.cleaner.min.compaction.lag.ms"),
		Doc: "The shortest time that a record of a compacted topic stays uncompacted."},
	{Name: "min.insync.replicas", Type: Int, Default: "1", Check: atLeast(1), From: from("min.insync.replicas"), Unused: true,
		Doc: "How many replicas must have a record for acks=all. There is one."},
	{Name: "preallocate", Type: Boolean, Default: "false", From: from("log.preallocate"), Unused: true,
		Doc: "Whether segment files are allocated in advance."},
	{Name: "remote.copy.lag.bytes", Type: Long, Default: "-1", Check: atLeast(-1), From: from("log.remote.copy.lag.bytes"), Unused: true,
		Doc: "When by size a segment is copied to remote storage."},
	{Name: "remote.copy.lag.ms", Type: Long, Default: "0", Check: atLeast(-1), From: from("log.remote.copy.lag.ms"), Unused: true,
		Doc: "When by age a segment is copied to remote storage."},
	{Name: "remote.log.copy.disable", Type: Boolean, Default: "false", Unused: true,
		Doc: "Whether nothing more is copied to remote storage."},
	{Name: "remote.log.delete.on.disable", Type: Boolean, Default: "false", Unused: true,
		Doc: "Whether remote data is deleted when remote storage is disabled."},
	{Name: "remote.storage.enable", Type: Boolean, Default: "false",
		Doc: "Whether segments are copied to remote storage. Lacuna has none, so true is refused."},
	{Name: "retention.bytes", Type: Long, Default: "-1", From: from("log.retention.bytes"),
		Doc: "The size of a partition past which old segments are deleted; -1: any. For cleanup.policy=delete."},
	{Name: "retention.ms", Type: Long, Default: "604800000", Check: atLeast(-1),
		From: []Alias{{"log.retention.ms", 1}, {"log.retention.minutes", 60_000}, {"log.retention.hours", 3_600_000}},
		Doc:  "The age of a segment past which it is deleted; -1: any. For cleanup.policy=delete."},
	{Name: "segment.bytes", Type: Int, Default: "1073741824", Check: atLeast(1 << 20), From: from("log.segment.bytes"),
		Doc: "The size of a segment file. Retention and compaction work on whole segments, and never on the active one."},
	{Name: "segment.index.bytes", Type: Int, Default: "10485760", Check: atLeast(4), From: from("log.index.size.max.bytes"), Unused: true,
		Doc: "The size to which an index file is allocated. Indexes here are as large as they need."},
	{Name: "segment.jitter.ms", Type: Long, Default: "0", Check: atLeast(0), Unused: true,
		From: []Alias{{"log.roll.jitter.ms", 1}, {"log.roll.jitter.hours", 3_600_000}},
		Doc:  "By how much at most a segment is rolled early, at random."},
	{Name: "segment.ms", Type: Long, Default: "604800000", Check: atLeast(1),
		From: []Alias{{"log.roll.ms", 1}, {"log.roll.hours", 3_600_000}},
		Doc:  "The span of time that one segment holds at most."},
	{Name: "unclean.leader.election.enable", Type: Boolean, Default: "false", From: from("unclean.leader.election.enable"), Unused: true,
		Doc: "Whether a replica that is behind may become the leader."},
	{Name: "internal.segment.bytes", Type: Int, Null: true, Check: atLeast(1), Hidden: true,
		Doc: "segment.bytes without its lower bound, for tests."},
}

// topicOwnDefs are Lacuna's.
var topicOwnDefs = []Def{
	{Name: "individual.commit.enable", Type: Boolean, Default: "true",
		Doc: "Whether offsets of this topic may be committed one by one. Share groups go on either way."},
}

var compressionType = oneOf("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")

// groupDefs are Kafka's settings of consumer and share groups.
var groupDefs = []Def{
	{Name: "consumer.assignment.interval.ms", Type: Int, Default: "1000", Check: atLeast(0), From: from("group.consumer.assignment.interval.ms"),
		Doc: "The time between two assignments of a consumer group."},
	{Name: "consumer.heartbeat.interval.ms", Type: Int, Default: "5000", Check: atLeast(1), From: from("group.consumer.heartbeat.interval.ms"),
		Doc: "The time between two heartbeats of a member of a consumer group."},
	{Name: "consumer.session.timeout.ms", Type: Int, Default: "45000", Check: atLeast(1), From: from("group.consumer.session.timeout.ms"),
		Doc: "The time without a heartbeat after which a member of a consumer group is gone."},
	{Name: "errors.deadletterqueue.copy.record.enable", Type: Boolean, Default: "false",
		Doc: "Whether a dead letter holds the record itself, or only headers about it."},
	{Name: "errors.deadletterqueue.topic.name", Type: String,
		Doc: "The topic that a share group's dead letters go to. Empty: none."},
	{Name: "share.assignment.interval.ms", Type: Int, Default: "1000", Check: atLeast(0), From: from("group.share.assignment.interval.ms"), Unused: true,
		Doc: "The time between two assignments of a share group. They are made at once."},
	{Name: "share.auto.offset.reset", Type: String, Default: "latest", Check: offsetReset,
		Doc: "Where a share group starts in a topic: earliest, latest, or by_duration:DURATION before now, an ISO 8601 duration. Partitions that the topic gains later are read from their first record."},
	{Name: "share.delivery.count.limit", Type: Int, Default: "5", Check: atLeast(2), From: from("group.share.delivery.count.limit"),
		Doc: "How often a record is delivered at most."},
	{Name: "share.heartbeat.interval.ms", Type: Int, Default: "5000", Check: atLeast(1), From: from("group.share.heartbeat.interval.ms"),
		Doc: "The time between two heartbeats of a member of a share group."},
	{Name: "share.isolation.level", Type: String, Default: "read_uncommitted", Check: oneOf("read_committed", "read_uncommitted"),
		Doc: "Whether a share group is delivered records of open and aborted transactions."},
	{Name: "share.partition.max.record.locks", Type: Int, Default: "100000", Check: atLeast(100), From: from("group.share.partition.max.record.locks"),
		Doc: "How many records of a partition may be acquired at a time."},
	{Name: "share.record.lock.duration.ms", Type: Int, Default: "30000", Check: atLeast(1000), From: from("group.share.record.lock.duration.ms"),
		Doc: "How long a record stays acquired."},
	{Name: "share.renew.acknowledge.enable", Type: Boolean, Default: "true",
		Doc: "Whether a member may renew its acquisition of a record."},
	{Name: "share.session.timeout.ms", Type: Int, Default: "45000", Check: atLeast(1), From: from("group.share.session.timeout.ms"),
		Doc: "The time without a heartbeat after which a member of a share group is gone."},
}

// groupOwnDefs are Lacuna's settings of share groups.
var groupOwnDefs = []Def{
	{Name: "share.delivery.mode", Type: String, Default: "round-robin", Check: oneOf("round-robin", "key-ordered", "key-range"),
		Doc: "How records are dealt to the members of a share group: round-robin, key-ordered (while a member has acquired records of a key, " +
			"it alone gets more of them, in order) or key-range (each member holds ranges of keys)."},
	{Name: "share.key.range.initial", Type: Int, Default: "16", Check: between(1, 65536),
		Doc: "How many ranges of keys a share group begins with in the mode key-range. The group remembers it; with more members there are more ranges."},
	{Name: "share.key.waiting.max.bytes", Type: Long, Default: "16777216", Check: between(1<<16, 1<<26),
		Doc: "How much memory a partition's records may take that wait for others of their key, in bytes. More of them are read again when it is their turn. At most 67108864."},
	{Name: "share.retry.backoff.max.ms", Type: Long, Default: "60000", Check: atLeast(0),
		Doc: "The longest time before a released record is dealt again."},
	{Name: "share.retry.backoff.ms", Type: Long, Default: "0", Check: atLeast(0),
		Doc: "The time before a released record is dealt again. It doubles with each delivery."},
}

// clientMetricsDefs are Kafka's settings of a subscription to client metrics.
var clientMetricsDefs = []Def{
	{Name: "interval.ms", Type: Int, Default: "300000", Unused: true, Doc: "How often clients push their metrics."},
	{Name: "match", Type: List, Unused: true, Doc: "Which clients push metrics."},
	{Name: "metrics", Type: List, Unused: true, Doc: "Which metrics clients push."},
}
