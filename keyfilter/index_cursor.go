package keyfilter

import "sort"

// IndexedBatch is what a SlotIndex knows of one batch.
type IndexedBatch struct {
	Position   int64 // in the segment, bytes
	Size       int   // bytes
	BaseOffset int64
	NextOffset int64 // one past the last
	Opaque     bool  // every filter passes it whole
	Records    int   // 0 if it is opaque

	slots []byte // of the records, in the index
}

// IndexCursor walks over a SlotIndex, from batch to batch that a filter may match.
type IndexCursor struct {
	x  *SlotIndex
	at batchAt // the batch to look at next
	// skip is how many records of that batch are below the offset sought.
	skip   int
	opaque int // the first opaque mark at or after it
}

// batchAt is a batch by all that its entry must be read with.
type batchAt struct {
	place
	batch  int // its number
	table  int // where its entry is
	record int // how many slots stand before its own
}

// From is a cursor at the batch that holds offset or, if none does, at the first behind
// it. The index must not change while the cursor is used; use a snapshot.
func (x *SlotIndex) From(offset int64) IndexCursor {
	c := IndexCursor{x: x, at: batchAt{place: x.start}}
	block := sort.Search(len(x.blocks), func(i int) bool { return x.blocks[i].offset > offset }) - 1
	if block > 0 {
		c.at = x.blockStart(block)
	}
	for c.at.batch < x.batches {
		b, next := x.read(c.at)
		if b.NextOffset > offset {
			if delta := offset - b.BaseOffset; delta > 0 && int64(b.Records) == b.NextOffset-b.BaseOffset {
				c.skip = int(delta)
			}
			break
		}
		c.at = next
	}
	c.opaque = sort.Search(len(x.opaque), func(i int) bool { return int(x.opaque[i].batch) >= c.at.batch })
	return c
}

// Last is the last batch; false if there is none.
func (x *SlotIndex) Last() (IndexedBatch, bool) {
	if x.batches == 0 {
		return IndexedBatch{}, false
	}
	at := x.blockStart(len(x.blocks) - 1)
	for {
		b, next := x.read(at)
		if next.batch == x.batches {
			return b, true
		}
		at = next
	}
}

// Next is the next batch that the filter may match, and moves behind it; false when
// there is none, and then the cursor is at the end. An opaque batch always may.
func (c *IndexCursor) Next(f *Filter) (IndexedBatch, bool) {
	x := c.x
	record := f.may.next(x.slots, c.at.record+c.skip)
	c.skip = 0
	switch {
	case c.opaque < len(x.opaque) && int(x.opaque[c.opaque].record) <= record:
		c.moveToBatch(int(x.opaque[c.opaque].batch))
		c.opaque++
	case record < x.Records():
		c.moveToRecord(record)
	default:
		c.at = batchAt{place: x.end, batch: x.batches, table: len(x.table), record: x.Records()}
		return IndexedBatch{}, false
	}
	b, next := x.read(c.at)
	c.at = next
	return b, true
}

// Records is how many records stand before the cursor: the difference of two calls is
// what a search has looked at.
func (c *IndexCursor) Records() int { return c.at.record }

// moveToBatch moves forward to the batch of that number.
func (c *IndexCursor) moveToBatch(batch int) {
	if block := batch / indexBlockLen; block > c.at.batch/indexBlockLen {
		c.at = c.x.blockStart(block)
	}
	for c.at.batch < batch {
		_, c.at = c.x.read(c.at)
	}
}

// moveToRecord moves forward to the batch that has the record.
func (c *IndexCursor) moveToRecord(record int) {
	blocks := c.x.blocks
	if next := c.at.batch/indexBlockLen + 1; next < len(blocks) && blocks[next].record <= record {
		rest := blocks[next:]
		c.at = c.x.blockStart(next + sort.Search(len(rest), func(i int) bool { return rest[i].record > record }) - 1)
	}
	for {
		_, next := c.x.read(c.at)
		if next.record > record {
			return
		}
		c.at = next
	}
}

func (x *SlotIndex) blockStart(block int) batchAt {
	b := x.blocks[block]
	return batchAt{place: b.place, batch: block * indexBlockLen, table: b.table, record: b.record}
}

// read reads the entry of a batch, and where the one after it is. The table has been
// checked when it was decoded, or was written here.
func (x *SlotIndex) read(at batchAt) (IndexedBatch, batchAt) {
	e, n := readTableEntry(x.table[at.table:])
	b := IndexedBatch{
		Position:   at.position,
		Size:       int(e.size),
		BaseOffset: at.offset + int64(e.gap),
		Opaque:     e.opaque,
		Records:    int(e.records),
	}
	b.NextOffset = b.BaseOffset + int64(e.offsets)
	b.slots = x.slots[2*at.record : 2*(at.record+b.Records)]
	return b, batchAt{
		place:  place{position: at.position + int64(e.size), offset: b.NextOffset},
		batch:  at.batch + 1,
		table:  at.table + n,
		record: at.record + b.Records,
	}
}
