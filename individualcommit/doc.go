// Package individualcommit keeps what a group has committed of a topic partition when any
// offset can be committed on its own, and gaps may stay behind. It is pure: no I/O, no
// clock, no goroutine; its values are not safe for concurrent use.
//
// A Ledger is what one group has committed of one partition. Every offset below its
// stable offset is committed; the gaps lie between that and the max commit offset. It is
// made of OffsetSets, which cost little for long runs and for dense gaps alike, and in
// which nothing but a listing takes time in proportion to the gaps.
//
// A State is the ledgers of one partition of the internal log, the compacted topic
// __individual_commit_offsets. What changes a ledger gives the record that says so; the
// records make the same ledgers again. Their format is with Key and in value.go and
// pack.go.
//
// # The log
//
// A ledger is written as a snapshot now and then, and as deltas in between. The key of a
// delta carries a position in a ring, which starts again after each snapshot, so that
// compaction keeps at most one snapshot and a ring of deltas. A delta names the
// generation of the snapshot it extends, and counts only with it: what is left of
// the round before is of a lower generation. Founding a ledger is a snapshot.
//
// Three things make that safe with a cleaner that may take any superseded record at any
// time. A snapshot is superseded only by a later one, and the deltas of the last
// generation by nothing, so what counts is always there; a missing position or snapshot
// is therefore a loss, which shows as Entry.Trouble. A ledger that is founded again after
// it was deleted, or found in trouble, gets a generation above all that were seen in
// the partition. And what a transaction holds is never in the ring but has keys of its
// own, since a transaction may outlive any number of snapshots.
//
// How often a share group was given the records that it has not done with is logged by
// blocks of offsets, each with a key of its own. The State keeps these counts with their
// ledger and does not look at them. Counts that are left when their ledger was lost are
// buried before one is founded again, which inherits nothing.
//
// A transaction may end while its ledger is in trouble, of which a later version has written
// a record. Aborted, it leaves nothing pending; committed, an outcome stays with what is
// pending, and is settled by who can read the ledger again.
//
// What follows from the log of the data is not logged at once: where that log starts, and
// which offsets at the stable offset hold no record. It is told again after a replay; the
// next delta only says how far it had moved the stable offset (its floor), so that what
// comes later is applied to the same ledger.
package individualcommit
