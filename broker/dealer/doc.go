// Package dealer runs share partitions: for each partition of a topic that a share group
// works on, a dispatcher of package cooperative over the group's ledger.
//
// A Dealer has a Partition for each that somebody fetches from. Its dispatcher, and who
// waits for records of it, belong to whoever holds the lock of the ledger (ledgers.Share):
// the handler of a fetch or an acknowledgement, the partition's own goroutine, or somebody
// who changes the ledger by other ways. What a call decides is logged before the lock is
// given up, so that the log has the same order.
//
// The goroutine of a partition reads the log ahead of what is dealt, ends locks and
// backoffs at their time, and serves the fetches that this makes servable. Whoever changes
// something serves too, and rouses the goroutine, which looks at everything anew. So there
// is no kind of change that somebody could forget to wait for.
//
// One more goroutine follows the groups: it founds ledgers when a topic gets its first
// member, tells dispatchers of members that are gone and of new assignments, and closes
// partitions that nobody works on.
package dealer
