// Package cooperative decides who gets which record of a share partition next. It is
// pure: no I/O, no clock, no goroutine; its values are not safe for concurrent use.
//
// A Dispatcher deals the records of one partition to the members of one share group. A
// record is Available until it is Acquired, and ends Settled: accepted, rejected or
// archived; state.go says which changes there are. What is settled is the business of the
// group's ledger (package individualcommit), which the dispatcher reads.
//
// # Driving it
//
// Whoever runs a dispatcher calls Feed with what it reads of the log while WantsRecords,
// and FeedAgain while NextAgain; Acquire for each fetch, and Wait if that got nothing;
// Expire at NextDeadline. After every call, whatever it was, it asks Ready which of the
// waiting fetches can be served, serves them in that order, and asks again until there
// are none. Ready is derived from what there is, so no kind of change can miss a wake-up.
//
// Nothing grows with the distance between the oldest and the newest open record: the
// limit on acquired records counts just those.
//
// # Order
//
// In the modes with an order, a key has a list of its records that were looked at and are
// not done. A record is looked at when its turn comes in the log, once: if others of its
// key are before it in the hands of another member, or are waiting, it goes behind them,
// and is not touched again until the key is free. So neither a backlog nor a hot key
// makes other records more expensive. When an acquired record comes back, those of its
// key that were acquired after it come back with it, and only the first counts a
// delivery.
//
// More than Limits.WaitingMaxBytes of waiting records are not kept. The key (or in
// KeyRange the bucket) then remembers between which offsets its further records are, and
// they are read again (NextAgain) when those before them are nearly dealt.
//
// In KeyRange a bucket is a lane of its own, from which only its holder is dealt, and
// nothing while another member still has records of it. The lanes of a member are dealt as
// if they were one, in the order of the offsets.
//
// # Filters
//
// A fetch that wants some keys only is served by AcquireOnly with what its caller found in
// the log, whatever of that was fed. So a filter needs no record to be read or kept that it
// does not match, and what it passes over stays for others.
//
// # What to log
//
// A call appends to Changes what has to be durable before its effects may be told:
//
//   - Commit: offsets for the ledger, as the commit of an individualcommit.Request. The
//     ledger itself must have them before the dispatcher is fed again.
//   - Counts: the blocks of BlockOffsets offsets whose delivery counts changed since a
//     delivery ended. For each, a record is written whose key is that of the ledger with a
//     kind of its own and the number of the block, INT64, in the place of a pending
//     record's producer id and counter; and whose value is the usual version and owner
//     epoch followed by what AppendCounts gives, or a tombstone if that is nothing. A
//     record replaces that of the block before, so compaction keeps one for each block
//     that has an unsettled record with a count. It goes in one batch with the commit, or
//     after it: a crash between them leaves counts of committed offsets, which are passed
//     over.
//   - DeadLetters: records whose dead letters are to be written; their count record says
//     that they wait for them. When they are durable, DeadLettered gives the Commit.
//
// Acquisitions are not logged. What is applied here is not undone: if the log fails, a
// new dispatcher is made from what the log says, and members find their records gone.
//
// To recover: New with the recovered ledger, RestoreCounts for every block that has a
// record, RestorePending with what transactions hold, then Feed. Deleting the ledger
// tombstones its blocks.
package cooperative
