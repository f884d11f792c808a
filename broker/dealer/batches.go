package dealer

import (
	"sort"

	"github.com/lacunamq/lacuna/individualcommit"
)

// batch is a stored batch of a log.
type batch struct {
	individualcommit.Run
	recordBytes int // what one of its records takes, on average
}

// batches remembers those that were read last: where they end, for fetches that take
// batches whole, and how large their records are.
type batches struct {
	kept    []batch // rising
	largest int     // recordBytes of any
}

// maxBatches is how many are remembered at least. Of others, fetches take what they asked
// for.
const maxBatches = 4096

func (b *batches) add(more []batch) {
	for _, next := range more {
		if n := len(b.kept); n > 0 && next.Start < b.kept[n-1].End {
			if next.Start >= b.kept[0].Start {
				continue
			}
			b.kept = b.kept[:0] // the log is read again from further up
		}
		b.kept = append(b.kept, next)
		b.largest = max(b.largest, next.recordBytes)
	}
	if len(b.kept) <= 2*maxBatches {
		return
	}
	b.kept = b.kept[:copy(b.kept, b.kept[len(b.kept)-maxBatches:])]
	b.largest = 0
	for i := range b.kept {
		b.largest = max(b.largest, b.kept[i].recordBytes)
	}
}

// recordBytes is what a record takes at most, about: fetches are to stay below their limit
// also when large records come among small ones.
func (b *batches) recordBytes() int { return max(b.largest, 1) }

// after is one past the last offset of the batch that holds offset.
func (b *batches) after(offset int64) int64 {
	i := sort.Search(len(b.kept), func(i int) bool { return b.kept[i].End > offset })
	if i < len(b.kept) && b.kept[i].Start <= offset {
		return b.kept[i].End
	}
	return offset + 1
}
