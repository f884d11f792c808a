// Package ledgers runs the ledgers of individualcommit: it keeps them in memory, logs
// what changes them in __individual_commit_offsets, and lets the stock committed offset
// follow in __consumer_offsets.
//
// A shard holds the ledgers of one partition of the internal log. A change is decided,
// applied and appended under the shard's lock, and answered when it is durable; so is
// everything that is read. When an append fails, the shard is loaded from the log again.
//
// A group that never committed an offset on its own has no ledger, and its commits go to
// the primary topic alone. The first individual commit founds the ledger where the group
// stands. To see that no plain commit slips in between, founding excludes the routing of
// plain commits (see Route).
//
// The ledger of a share partition has an owner, who deals its records: see Share. What
// the owner changes, and what others change under it, is one order of changes, since both
// happens under the shard's lock. Delivery counts are logged beside the ledger, and live
// and die with it.
package ledgers
