package configs

// brokerOwnDefs are Lacuna's settings of a broker, and those that Kafka has without
// describing them.
var brokerOwnDefs = []Def{
	{Name: "fetch.filter.decoded.cache.bytes", Type: Long, Default: "33554432", Check: atLeast(1 << 20),
		Doc: "The memory for batches that key-filtered fetches have decoded and that other readers may want, in bytes."},
	{Name: "fetch.filter.index.cache.bytes", Type: Long, Default: "67108864", Check: atLeast(1 << 20),
		Doc: "The memory for slot indexes of segments, 2 bytes a record, in bytes. What does not fit is read from its file again."},
	{Name: "fetch.filter.max.scan.bytes", Type: Int, Default: "67108864", Check: atLeast(1 << 16), Scope: Dynamic,
		Doc: "How much of a partition one key-filtered fetch looks through, in bytes, before it answers how far it came."},
	{Name: "fetch.max.memory.bytes", Type: Long, Default: "268435456", Check: atLeast(1 << 20),
		Doc: "The memory that answers of fetches may take in all, in bytes; when it is taken, fetches wait."},
	{Name: "follower.replication.throttled.rate", Type: Long, Default: maxLong, Check: atLeast(0), Scope: PerBroker, Unused: true, Hidden: true,
		Doc: "The rate of replication to followers."},
	{Name: "individual.commit.enable", Type: Boolean, Default: "true", Scope: Dynamic,
		Doc: "Whether offsets may be committed one by one. Off, clients are not told that they may; share groups go on."},
	{Name: "individual.commit.max.memory.bytes", Type: Long, Default: "1073741824", Check: atLeast(1 << 20), Scope: Dynamic,
		Doc: "The memory that the gaps of all ledgers may take, in bytes. A commit that would pass it is POLICY_VIOLATION."},
	{Name: "leader.replication.throttled.rate", Type: Long, Default: maxLong, Check: atLeast(0), Scope: PerBroker, Unused: true, Hidden: true,
		Doc: "The rate of replication from leaders."},
	{Name: "max.decoded.batch.bytes", Type: Int, Default: "67108864", Check: atLeast(1 << 20),
		Doc: "The largest batch that the broker decompresses to look into, in bytes. A larger one is passed on whole."},
	{Name: "max.in.flight.requests", Type: Int, Default: "64", Check: between(1, 10_000),
		Doc: "How many requests of a connection are in progress at a time."},
}
