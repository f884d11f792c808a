// Package statestore keeps what is derived from a log on disk, together with how far
// into that log it was derived. It is one Pebble with a key prefix per view.
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
package statestore
