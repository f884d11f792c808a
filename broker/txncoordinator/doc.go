// Package txncoordinator runs the transaction coordinator: the decisions of
// broker/transaction with a clock, the partitions of __transaction_state, and the markers
// that end transactions where they have written.
//
// Each partition of __transaction_state is a shard with a lock. What is decided under the
// lock takes effect at once and is appended before the lock is given up, so the order of
// the log is that of the decisions. A request is answered when all that the shard had
// appended by then is durable. When an append fails, or turns out not to be durable, the
// shard is loaded from its log again, and who waits is told NOT_COORDINATOR.
//
// # Ending a transaction
//
// One goroutine for each transactional id whose outcome is decided writes the markers,
// once the decision is durable, and then notes that they are there; after a restart it
// begins again. EndTxn is answered when the markers are durable, so that what a producer
// has committed can be read when it hears of it, and its next transaction does not meet
// the end of this one. A marker that cannot be written now (a full disk) does not hold up
// the answer: the outcome is decided. That the markers are there is logged without an fsync
// of its own, since a restart that does not find it writes them again, and what the producer
// does next is behind it in the log.
//
// # Writing in a transaction
//
// Whoever appends records or offsets in a transaction holds a Write from before it is
// known that the transaction is open and has the partition until the append has its
// place in the log. Markers wait for those, so that none is followed by records of its
// own transaction. (Kafka has its verification guard for this.)
//
// A partition is part of a transaction, durably, before anything is written to it. Where a
// producer commits offsets in each transaction, the first record of the next one has their
// partition already, so that records and offsets that come together wait for one fsync.
package txncoordinator
