// Package coordinator runs the group coordinator: the state machines of broker/group with
// a clock, the partitions of __consumer_offsets, and requests that wait.
//
// Each partition of __consumer_offsets is a shard. Its requests queue, and one goroutine,
// which lives as long as there is something in the queue, carries them out in their
// order; only it touches the shard's state. What a turn of the queue decided is appended
// as one batch, so that commits that come together are written together. A shard that
// nobody uses has no goroutine, timer or open file, and one whose partition was never
// written answers without opening it.
//
// # Answers
//
// A request is answered when all that the shard had appended by then is durable: its own
// records, and those of the requests before it, whose effects it may have seen. Requests
// whose answer is decided later (JoinGroup, SyncGroup) are parked by ticket; the answer
// waits for the records of the turn that decided it.
//
// # Failure
//
// When an append fails, or turns out not to be durable, everything that the shard knows
// beyond its log is void: who waits is told NOT_COORDINATOR, and the state is loaded from
// the log again with the next request. Sessions begin anew then, as after a restart.
package coordinator
