// Package transaction is the state machine behind Kafka's transaction coordinator: which
// producer id and epoch a transactional id has, which partitions its transaction has
// touched, and whether that was committed or aborted.
//
// A State holds the transactional ids of one partition of __transaction_state. It is a
// plain value: requests and the time go in; records to log, answers, and the transactions
// whose markers are to be written come out. It has no goroutine, lock, clock or I/O, and
// its behaviour does not depend on the order of Go's maps.
//
// # Records first
//
// All of the state is in the records, in Kafka's own format of __transaction_state. An
// operation emits its record into the Output and it counts at once, through the same
// assignment that recovery ends in. The caller appends the records in order and sends no
// answer of that operation, nor of a later one, before they are durable. When an append
// fails the State is thrown away and loaded from the log again; nothing is undone by hand.
// Kafka's transitions that are pending until they are logged do not exist therefore.
//
// # A transactional id
//
//	 InitProducerId          partitions added         commit, or abort, timeout, fencing
//	---------------> Empty -------------------> Ongoing -------------------+
//	                   ^                           ^                       v
//	                   |                           | partitions    PrepareCommit, PrepareAbort
//	                   |                           | added                 |
//	                   | InitProducerId            |                       | all markers
//	                   +-------------------- CompleteCommit, <-------------+ are durable
//	                                         CompleteAbort
//
// From the decision until all markers are written the id is busy: what might change it is
// answered CONCURRENT_TRANSACTIONS, and clients come again. A client of version 2 of the
// protocol may abort a transaction without partitions, which goes from Empty or Complete to
// PrepareAbort.
//
// # Two versions
//
// In version 1 partitions are added before they are written to, and the epoch changes with
// InitProducerId only. In version 2 (KIP-890) the end of each transaction gives the producer
// the next epoch, so that what comes late for one transaction never joins the next. Each
// request says which version it is of. What the coordinator aborts by itself, because of a
// timeout or a new producer, is ended by version 2.
//
// A producer that did not hear an answer repeats its request, with the epoch it had. In
// version 2 such a retry is known by that epoch, which is the current one less one, and by
// the previous producer id where the epochs of that had run out.
//
// The rules are those of Apache Kafka 4.4 (KIP-98, KIP-360, KIP-890, KIP-994). Where it
// differs, a retry is known in more cases, and a fenced producer can do less:
//
//   - The epoch before the last InitProducerId is logged, in a tagged field that Kafka
//     skips, so that a retry is known after a restart too. With a new producer id it is
//     known more than once.
//   - InitProducerId from a producer with another epoch than that of the ongoing
//     transaction is fenced; Kafka would abort the transaction of the current producer.
//   - EndTxn of version 2 is no retry of what version 1 ended. Kafka takes it for one, and
//     hands the current epoch to the producer before.
//   - When epochs run out in an abort by the coordinator, the new producer id is taken when
//     a producer comes next. Until then the id has the last epoch, which no producer is
//     ever given.
package transaction
