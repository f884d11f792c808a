// Package group is the state machine behind Kafka's group coordinator: the members of
// groups, their generations and assignments, and the offsets that groups have committed.
//
// A State holds the groups of one partition of __consumer_offsets. It is a plain value:
// requests and the time go in; records to log, answers and decisions about parked
// requests come out in an Output. It has no goroutine, lock, clock or I/O, and its
// behaviour does not depend on the order of Go's maps. The runtime around it is
// broker/coordinator.
//
// # Records first
//
// What must survive a crash changes through records only, in Kafka's own formats of
// __consumer_offsets. An operation emits its records into the Output and applies them at
// once, with the same apply that recovery uses, so that the next operation sees them. The
// caller appends the records and sends no answer of that operation, nor of a later one,
// before they are durable. When an append fails the State is thrown away and loaded from
// the log again; nothing is undone by hand.
//
// What a crash may lose are sessions, parked requests and a rebalance under way, since
// clients repeat those.
//
// # Classic groups
//
//	         join                    all joined, or time is up
//	Empty ---------> PreparingRebalance ---------> CompletingRebalance
//	  ^                |    ^     ^                       |   |
//	  |   all left     |    |     |   join, leave, expiry |   | the leader's
//	  +----------------+    |     +-----------------------+   | assignment
//	                        |   join, leave, expiry           v
//	                        +------------------------------ Stable
//
// JoinGroup parks in PreparingRebalance, SyncGroup in CompletingRebalance, and each is
// answered by the time the rebalance timeout has passed. Dead is only ever reported: a
// deleted group is gone.
//
// The rules are those of Apache Kafka 4.4 (KIP-62, KIP-345, KIP-394, KIP-559, KIP-800,
// KIP-814), where not said otherwise.
//
// # Other kinds
//
// A group id belongs to one kind. A share group (KIP-932) is a share.Group in its entry;
// its sessions are kept here, and whoever deals records to its members learns of changes
// by the Shares of an Output. The kind of KIP-848 gets its own place in an entry. The
// offsets of an entry do not depend on the kind; those of a share group are kept for it by
// its ledgers, and plain clients may neither commit nor read them.
package group
