// Package filter runs filtered fetches over partition logs: what a reader of some key
// slots or keys gets, and how far it may go on.
//
// A Reader serves all partitions of a broker. Two caches make it cheap, both bounded:
//
//   - decoded batches, shared by all fetches: a batch is read and decompressed once for
//     readers of different keys that follow each other at some distance;
//   - slot indexes, 2 bytes per record: where one exists, a batch in which nothing can
//     match is neither read nor decompressed. It grows as a by-product of the first
//     reads of a segment. That of a sealed segment is saved beside it once it is whole,
//     and read back when needed; a bad one is built anew.
//
// Nothing here exists for a partition that nobody reads with a filter. The package
// starts no goroutine.
package filter
