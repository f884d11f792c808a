// Package keyfilter says which records a consumer of a part of the keys gets.
//
// A record's key slot is the top 16 bits of the xxHash64 of its key (Slot). A Filter
// is compiled from what a fetch asks for, slot ranges and keys, and decides record by
// record; a Rebuilder makes of a record batch and a filter the batch to send, with the
// offsets, timestamps and producer fields of the original. A Decoded batch knows the
// slot and the place of each of its records, so that many filters of one partition
// cost one decompression. A SlotIndex keeps the slots of many batches, 2 bytes a
// record, and finds the next batch that a filter may match without reading the log.
//
// Linear hashing (Line, Buckets, Assignment) divides the partitions and slots of a
// topic among any number of members, so that a member that joins or leaves moves one
// or two slices and no more.
//
// The package is pure: no I/O, no clock, no goroutine, no lock. Its values that say so
// may be shared by readers as long as nobody writes.
package keyfilter
