// Package processor is a small runtime for stateful work on streams: a function of records
// and of a state that follows them, on as many processes as one likes.
//
// A [Topology] names input topics, processors in a row, and the topics that they emit to.
// [Open] makes this process a member of a group that runs it. The group divides the keys of
// the inputs between its members by linear hashing, so that a member that joins takes a part
// of one bucket and nobody else is disturbed (package assignor). A bucket is a task: one
// goroutine, one state, one order of processing for each key.
//
// # When a record is done
//
// A topology says when its records are acknowledged, and with it what its stores are.
//
// With [AckAtProcess] a record is done when it was processed. The stores are durable and own
// the offsets of the inputs that they have taken in; they commit only after the outcome of the
// acknowledgements is known. From its offset on a store applies silently, without output,
// what the group's ledger calls committed, and the rest is processed. This one sentence
// serves a restart, a hand-over and growth. Process must be deterministic, and the inputs must
// reach back to the offset of the store. With a [Changelog] neither is needed: what stores
// change goes to a topic as well, which states are built up from.
//
// With [AckOnPunctuate] a record is done when a punctuation has emitted what became of it
// and said so (Context.RequestCommit), after the sink has confirmed that, and at no other
// time: not in a rebalance, not at close. The stores are scratch, a function of the records
// that are not done, and empty when a task begins; these records come again then. There is
// no changelog: the gaps of the ledger are the changelog.
//
// Each is at least once, or with [ExactlyOnce] exactly once: outputs and acknowledgements
// become visible together (client.Transactor).
//
// # Growth
//
// A new member is given a bucket to build up: it reads the slots of that bucket only, from
// the beginning, while the member that has them goes on. When it is within
// [HandOverThreshold] of the ledger, the bucket is handed over: the old member finishes what
// it is at and stops, the new one applies the rest silently and goes on. No state moves
// between members that stay.
//
// # Inside
//
// An App owns the membership, the connections and the tasks. A task owns its state, its
// processors and its feeds, one [client.Reader] each. Feeds do what waits for the network;
// the goroutine of the task does all the rest, one unit of work after the other: some records
// or a punctuation, with the commit that ends it.
package processor
