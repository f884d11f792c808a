package keyfilter

import (
	"errors"
	"fmt"
	"math"

	"github.com/lacunamq/lacuna/protocol"
)

// ErrIndexOrder marks a batch that does not lie behind those of the index.
var ErrIndexOrder = errors.New("batch does not follow the slot index")

// indexBlockLen is how many batches share an entry of the directory. A search that has
// found a record walks at most so many entries to find its batch.
const indexBlockLen = 64

// SlotIndex knows, of batches that lie one after the other in a segment, where each
// lies and the slots of its records. A search for the next batch that a filter may
// match looks at 2 bytes per record and reads nothing else.
//
// Append only adds to it, so a copy of the struct is a snapshot that may be searched
// while the original grows.
type SlotIndex struct {
	start, end place
	batches    int
	table      []byte       // an entry per batch, see appendTableEntry
	blocks     []indexBlock // one per indexBlockLen batches
	slots      []byte       // of all records, 2 bytes little endian
	opaque     []opaqueMark // the batches that every filter passes
}

// place is a point between two batches.
type place struct {
	position int64 // in the segment, bytes
	offset   int64 // that no batch before it reaches, and no batch behind it is below
}

// indexBlock is the directory's entry of indexBlockLen batches.
type indexBlock struct {
	place
	table  int // where their entries begin
	record int // how many slots stand before theirs
}

// opaqueMark is an opaque batch: its number, and how many slots stand before it.
type opaqueMark struct {
	batch, record uint32
}

// NewSlotIndex is the index of no batches yet, the first of which will lie at position
// bytes in its segment and have a base offset of at least offset.
func NewSlotIndex(position, offset int64) *SlotIndex {
	p := place{position, offset}
	return &SlotIndex{start: p, end: p}
}

// Start is where the first batch lies: its position, and an offset that it is not below.
func (x *SlotIndex) Start() (position, offset int64) { return x.start.position, x.start.offset }

// End is where the batch after the last will lie, and one past the last one's offset.
func (x *SlotIndex) End() (position, offset int64) { return x.end.position, x.end.offset }

// Batches is the number of batches in the index.
func (x *SlotIndex) Batches() int { return x.batches }

// Records is the number of records whose slots the index has.
func (x *SlotIndex) Records() int { return len(x.slots) / 2 }

// MemoryBytes is about what the index holds of memory.
func (x *SlotIndex) MemoryBytes() int {
	return cap(x.table) + cap(x.slots) + 32*cap(x.blocks) + 8*cap(x.opaque)
}

// Append adds the batch that lies at End. It copies what it keeps.
func (x *SlotIndex) Append(d *Decoded) error {
	return x.append(entry{
		size:   len(d.batch),
		base:   d.header.BaseOffset,
		next:   d.header.NextOffset(),
		opaque: d.opaque,
		slots:  d.slots,
	})
}

// AppendIndex adds the batches of y, which begins where x ends. It copies what it keeps.
func (x *SlotIndex) AppendIndex(y *SlotIndex) error {
	if y.start.position != x.end.position {
		return fmt.Errorf("%w: an index from position %d on, this one ends at %d", ErrIndexOrder, y.start.position, x.end.position)
	}
	for at := (batchAt{place: y.start}); at.batch < y.batches; {
		b, next := y.read(at)
		err := x.append(entry{
			size:   b.Size,
			base:   b.BaseOffset,
			next:   b.NextOffset,
			opaque: b.Opaque,
			slots:  y.slots[2*at.record : 2*next.record],
		})
		if err != nil {
			return err
		}
		at = next
	}
	return nil
}

// entry is a batch to add.
type entry struct {
	size       int // bytes
	base, next int64
	opaque     bool
	slots      []byte // none if it is opaque
}

func (x *SlotIndex) append(e entry) error {
	records := x.Records()
	if e.base < x.end.offset || e.next <= e.base || e.size < protocol.BatchHeaderLen || e.next-e.base < int64(len(e.slots)/2) {
		return fmt.Errorf("%w: offsets %d to %d, %d records in %d bytes, the index ends at offset %d",
			ErrIndexOrder, e.base, e.next, len(e.slots)/2, e.size, x.end.offset)
	}
	if records+len(e.slots)/2 > math.MaxUint32 || x.batches == math.MaxUint32 {
		return fmt.Errorf("%w: it has %d records and %d batches, as many as it can", ErrIndexOrder, records, x.batches)
	}
	if x.batches%indexBlockLen == 0 {
		x.blocks = append(x.blocks, indexBlock{place: x.end, table: len(x.table), record: records})
	}
	if e.opaque {
		x.opaque = append(x.opaque, opaqueMark{uint32(x.batches), uint32(records)})
	}
	x.table = appendTableEntry(x.table, tableEntry{
		size:    uint64(e.size),
		offsets: uint64(e.next - e.base),
		gap:     uint64(e.base - x.end.offset),
		records: uint64(len(e.slots) / 2),
		opaque:  e.opaque,
	})
	x.slots = append(x.slots, e.slots...)
	x.batches++
	x.end.position += int64(e.size)
	x.end.offset = e.next
	return nil
}
