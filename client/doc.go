// Package client is Lacuna's client for Go: what a Kafka client has no words for,
// on top of one that has all the rest ([kgo]).
//
// A stock Kafka client works with Lacuna as it is. This package is for what it cannot ask
// for:
//
//   - Individual commits. A [Reader] commits any record on its own, in any order. What
//     was not committed is a gap in the group's ledger; it is delivered again when a
//     Reader of the group starts, or when asked for with [Reader.RedeliverOpen].
//
//   - Key-filtered fetches. A Reader may ask for ranges of key slots or for given keys,
//     and the broker sends only those records. So many Readers share one partition, each
//     with slots of its own, and order per key holds.
//
//   - Work that takes its time. A [Worker] is a member of a share group (KIP-932) that calls
//     a function per record, many at a time, and keeps each record for as long as its handler
//     is at work, which a consumer that polls cannot.
//
//   - Members of a consumer group that share partitions. A [GroupReader] joins a group, whose
//     balancer splits the key slots of partitions between members when there are more
//     members than partitions ([SplitBalancer]), and reads what it is assigned with Readers.
//     A [Member] is one that leaves to its owner what is assigned and read.
//
//   - State made of records. A Reader may deliver what is committed too and tell it apart
//     ([DeliverCommitted]), so that state is brought up to where the group is.
//
//   - Exactly once, out of order. A [Transactor] runs units of work, of Workers and Readers,
//     as transactions: what a unit produces and what it acknowledges become visible together
//     or not at all.
//
// [Admin] looks at ledgers and changes them: it describes them, lists their gaps, commits
// and reopens single offsets, and resets a group.
//
// # Groups
//
// A Reader is not a member of its group: it commits as Kafka's tools do to a group that
// has no members (generation -1). So several Readers may share a group, they divide the
// work themselves (by slots, by partitions), and there is no rebalance. While the group
// has members, a stock consumer say, the broker refuses the commits of Readers. When the
// Readers have stopped, a stock consumer that joins starts at the stable offset, below
// which everything is committed.
//
// A GroupReader is a member of a consumer group, of Kafka's classic protocol, and may share it
// with stock consumers that have the same balancer: they get whole partitions. Its commits
// count as those of that member in that generation. A stock consumer that takes a partition over
// begins at the stable offset, so it is given again what was committed above, and its commits
// below that open again what it has not come to.
//
// A topic that gains partitions has its keys go elsewhere, with a partitioner that goes by
// their hash. No record is missed: added partitions are read from their first record on, also
// if nobody of the group ran then. But nothing orders what a key has in its new partition
// behind what it still has in the old one. Who needs that lets the group read to the end before
// producers hear of the new partitions, or uses a topic of one partition, which any number of
// members share.
//
// A Worker is a member of its group too. Groups of Workers are share groups, and the two kinds
// do not mix.
//
// # Delivery
//
// A Reader delivers every record of its slots until it is committed: at least once.
// Within one Reader, records of a partition come in offset order, except that open gaps
// come again from the lowest on when they are asked for. A record whose offset is known
// to be committed, by this Reader or by another one since the last refresh of the ledger,
// is not delivered, unless the Reader was told to ([DeliverCommitted]).
//
// Under [ReadCommitted] the records of aborted transactions are not delivered, and
// since they would stay gaps for ever, the Reader commits those of its slots itself.
//
// A GroupReader gives its ranges up only after its handlers have returned and their commits
// are answered, so within a group a record is handled by one member at a time. What a handler
// left uncommitted comes again when the group has rebalanced.
//
// A Worker gets each record of its group that no other member has, and says what became of
// it: accepted, rejected, or released to be delivered again. An outcome counts when the broker
// has answered; until then the record may be delivered again, and [WorkerHooks] tell which
// outcomes were recorded and which were lost. Where the group keeps the order of keys
// (share.delivery.mode), a record is handled only after those of its key before it, also
// after a failure.
//
// In a transaction a record is acknowledged when that commits. Until the outcome is known it
// is with nobody: its lock does not run out, and no Reader of this process delivers it. If the
// transaction is aborted, also because its process is gone, it is delivered again.
//
// # Connections
//
// Brokers, TLS, SASL, dialers and loggers are kgo's, given with [KafkaOpts]. Every Reader
// has a kgo client of its own, because all fetches of a client to one broker share one
// connection, and a long poll of one Reader would make the others wait. A Worker has two, one
// to fetch and one for all else; a Member has one, besides those of its Readers; a GroupReader
// has one to be a member, and one for each different range of slots that it holds, or for the
// partitions that it began to read whole in the same generation. A Transactor has one for each
// transaction that it may have on its way.
//
// # Errors
//
// Errors carry what they are about: [FeatureError], [PartitionError], [GroupError],
// [TransactionError]; they unwrap to Kafka's errors (package kerr) or to the sentinels of this package. Network
// failures are not errors of a Reader: it retries until the context of the call ends, and
// then says what it was waiting for.
package client
