// Package share is the state machine of one share group: who is a member of it, and what
// each member may fetch (KIP-932, as Apache Kafka 4.4 does it).
//
// A Group is a plain value. Requests and the time go in; records to log and answers come
// out. It has no goroutine, lock, clock or I/O. The groups of a partition of
// __consumer_offsets are kept by broker/group, their sessions too; what dispatches records
// to members reads a View.
//
// # Epochs
//
// A change of the subscriptions, of the members, or of the topics that are subscribed to
// raises the group epoch. The assignment that follows from it is made at once and has the
// same number, the assignment epoch. A member learns of it, and takes on the epoch, with
// its next heartbeat; a new member with its first. What a member may fetch does not wait
// for that: a View is of the newest assignment.
//
// # Assignment
//
// All members work on all partitions of the topics that they subscribe to. In the delivery
// mode key-range each member holds buckets (keyfilter.Assignment): a join moves one slice
// of keys, a leave at most two, and a member that comes back within its session timeout
// has what it had. All topics of a group have the same buckets, each on a line of its own,
// of as many partitions as the topic had when the group first saw it in that mode. Where
// the holder of a bucket does not subscribe to a topic, another member that does stands in
// for it there.
//
// # Records
//
// The records are Kafka's (keys 10 to 14 of __consumer_offsets). What Kafka has no place for
// is in tagged fields with the number of Lacuna's extension: the mode, the lines and the
// initial number of buckets in ShareGroupMetadataValue, the buckets of a member in
// ShareGroupTargetAssignmentMemberValue. Kafka's ShareGroupStatePartitionMetadata (key 15)
// is not written: which partitions a group has begun is said by its ledgers.
package share
