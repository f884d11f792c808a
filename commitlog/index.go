package commitlog

import (
	"math"
	"sort"
)

// indexEntry marks the start of a batch in a segment.
type indexEntry struct {
	offset uint32 // base offset of the batch, less the segment's base
	pos    uint32 // of the batch in the file
	before int64  // max timestamp of all batches of the segment before this one, -1 for none
}

// abortedTxn is an aborted transaction whose marker is in the segment.
type abortedTxn struct {
	producerID int64
	first      int64 // offset of its first record
	last       int64 // offset of its marker
	stable     int64 // the last stable offset once the marker was written
}

// segmentIndex finds positions in a segment by offset and by time, without a lock. The
// active segment's grows as batches are appended; a sealed one's is loaded from its
// index file when needed.
type segmentIndex struct {
	entries vector[indexEntry]
	aborted vector[abortedTxn]
}

// note adds the batch at base offset and pos if the interval since the last entry has
// passed; before is the max timestamp of all batches before it.
func (x *segmentIndex) note(relative int64, pos, before int64, interval int32) {
	entries := x.entries.view()
	if n := len(entries); n > 0 && pos-int64(entries[n-1].pos) < int64(interval) {
		return
	}
	x.entries.append(indexEntry{offset: uint32(relative), pos: uint32(pos), before: before})
}

// floor is the last entry at or below the relative offset, a zero entry if there is
// none: batches that may hold it start there or after.
func (x *segmentIndex) floor(relative int64) indexEntry {
	entries := x.entries.view()
	i := sort.Search(len(entries), func(i int) bool { return int64(entries[i].offset) > relative })
	if i == 0 {
		return indexEntry{before: -1}
	}
	return entries[i-1]
}

// floorTime is the last entry before which no batch has a timestamp of ms or later.
func (x *segmentIndex) floorTime(ms int64) indexEntry {
	entries := x.entries.view()
	i := sort.Search(len(entries), func(i int) bool { return entries[i].before >= ms })
	if i == 0 {
		return indexEntry{before: -1}
	}
	return entries[i-1]
}

// canHold tells that an offset can be named relative to a segment's base.
func canHold(base, last int64) bool { return last-base <= math.MaxUint32 }
