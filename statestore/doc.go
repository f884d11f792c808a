// Package statestore keeps what is derived from a log on disk, together with how far
// into that log it was derived, in two kinds of stores: views of a broker's own logs, and
// the stores of the tasks of a stream processor.
//
// # Views
//
// A DB is one Pebble with a key prefix per view.
//
// A view is a fast start and never the truth: the log is. So the store runs without a
// write-ahead log of its own. A Batch carries the changes of a view and the offsets
// that they bring it to, and is seen whole or not at all, also after a crash; a crash
// costs only the newest batches, that is a longer replay. Sync makes all that was
// committed survive one, and View.Durable tells how far that is: the cleaner of a log
// must not pass it.
//
// A store that cannot be read is ErrCorrupt: the owner wipes it with Destroy and
// derives the views again. A store whose disk fails while open is ErrFailed from then
// on; what it holds on disk is still some older state with its true offsets.
//
// # Stores of tasks
//
// A Store has keys and values, and a window of uncommitted changes that its reads see.
// Commit makes them true together with the offsets of its input, per partition and range
// of key slots, as KIP-1035 has it: what reads on from CommittedOffset applies each record
// once. There is no flush; who wants less to be done again commits more often. Pebble and
// InMemory open such stores. Unlike a view, a task's store is not wiped lightly, so it has
// a write-ahead log.
//
// Keep gives offsets to a store that keeps none, in a file beside it, and moves such files
// into a store that does; the form of Kafka Streams is read too. ScanOffsets reads the
// offsets of all stores on disk into an OffsetCache, for telling how far behind a task is
// without opening it.
package statestore
