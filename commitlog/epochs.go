package commitlog

import "sort"

// epochStart says that records from start on have this leader epoch.
type epochStart struct {
	epoch int32
	start int64
}

// epochHistory is the leader epochs of a log, both fields rising. It is never changed,
// only replaced.
type epochHistory []epochStart

// latest is the epoch of new records.
func (h epochHistory) latest() int32 {
	if len(h) == 0 {
		return 0
	}
	return h[len(h)-1].epoch
}

// with is the history after epoch began at start. An epoch that wrote no record leaves
// no trace.
func (h epochHistory) with(epoch int32, start int64) epochHistory {
	n := sort.Search(len(h), func(i int) bool { return h[i].start >= start })
	return append(h[:n:n], epochStart{epoch: epoch, start: start})
}

// from is the history of the records from start on.
func (h epochHistory) from(start int64) epochHistory {
	i := h.indexAt(start)
	if i <= 0 {
		return h
	}
	return h[i:]
}

// at is the epoch of the record at offset: that of the last entry at or below it.
func (h epochHistory) at(offset int64) int32 {
	if i := h.indexAt(offset); i >= 0 {
		return h[i].epoch
	}
	if len(h) > 0 {
		return h[0].epoch
	}
	return 0
}

func (h epochHistory) indexAt(offset int64) int {
	return sort.Search(len(h), func(i int) bool { return h[i].start > offset }) - 1
}

// allows tells whether a record at offset can have the epoch. Of what is older than the
// history, and by an unknown (nil) one, little or nothing is known.
func (h epochHistory) allows(offset int64, epoch int32) bool {
	if len(h) == 0 {
		return true
	}
	if i := h.indexAt(offset); i >= 0 {
		return h[i].epoch == epoch
	}
	return epoch <= h[0].epoch
}

// endOf finds the end of an epoch as Kafka's OffsetForLeaderEpoch does: the largest
// known epoch at or below the asked one, and the start of the one after it, which is
// end for the latest. Both are -1 if the epoch lies in the future.
func (h epochHistory) endOf(epoch int32, end int64) (found int32, endOffset int64) {
	if epoch < 0 || epoch > h.latest() {
		return -1, -1
	}
	if epoch == h.latest() {
		return epoch, end
	}
	above := sort.Search(len(h), func(i int) bool { return h[i].epoch > epoch })
	if above == 0 {
		return epoch, h[0].start // older than all that is known
	}
	return h[above-1].epoch, h[above].start
}
