package keyfilter

import (
	"encoding/binary"
	"fmt"
	"slices"
	"sort"

	"github.com/lacunamq/lacuna/protocol"
)

// recordLenMin is the shortest a record can be: its length, attributes, two deltas, a
// null key, a null value and no headers, one byte each.
const recordLenMin = 7

// Decoded is one record batch with the slot and the place of each of its records, which
// is all that a filter needs. Filters only read it, so one Decoded serves any number
// of them at the same time.
//
// The zero value is ready for Decode, which keeps its buffers from batch to batch.
type Decoded struct {
	header  protocol.BatchHeader
	batch   []byte   // the whole batch, as stored
	records []byte   // its records, decompressed
	starts  []uint32 // where each record begins in records, then the end of the last
	slots   []byte   // of each record, 2 bytes little endian
	deltas  []int32  // of each offset to the base; empty while they are 0, 1, 2, ...
	opaque  bool
	err     error
	buf     []byte // that records were last decompressed into
}

// Decode makes d that of batch, which is exactly one batch and must stay as it is
// while d is used. Records that decompress to more than limit bytes are not decoded.
//
// An error means that there is not even a header. A batch whose records cannot be
// decoded is no error: it is Opaque, and Err says why.
func (d *Decoded) Decode(batch []byte, limit int) error {
	return d.decode(batch, limit, nil)
}

// DecodeIndexed is Decode for a batch that was decoded before, when b was made: the
// slots of its records are not computed again.
func (d *Decoded) DecodeIndexed(batch []byte, limit int, b IndexedBatch) error {
	return d.decode(batch, limit, b.slots)
}

func (d *Decoded) decode(batch []byte, limit int, known []byte) error {
	h, err := protocol.ParseBatchHeader(batch)
	if err != nil {
		return fmt.Errorf("filter a batch: %w", err)
	}
	if len(batch) != h.Size() {
		return fmt.Errorf("filter a batch: %w: %d bytes, the header says %d", protocol.ErrCorruptBatch, len(batch), h.Size())
	}
	d.header, d.batch, d.records = h, batch, nil
	d.starts, d.slots, d.deltas = d.starts[:0], d.slots[:0], d.deltas[:0]
	d.opaque, d.err = h.Control(), nil
	if d.opaque {
		return nil
	}
	if d.err = d.decodeRecords(limit, known); d.err != nil {
		d.opaque = true
		d.starts, d.slots, d.deltas = d.starts[:0], d.slots[:0], d.deltas[:0]
	}
	return nil
}

func (d *Decoded) decodeRecords(limit int, known []byte) error {
	// A rebuilt batch gets a new checksum, which must not make good a damaged record.
	if err := protocol.VerifyCRC(&d.header, d.batch); err != nil {
		return err
	}
	records, err := protocol.DecompressRecords(d.buf, &d.header, d.batch, limit)
	if err != nil {
		return err
	}
	if d.header.Codec() != protocol.CodecNone {
		d.buf = records
	}
	d.records = records
	n := min(int(d.header.NumRecords), len(records)/recordLenMin) // a count that lies allocates nothing
	d.starts = slices.Grow(d.starts, n+1)
	d.slots = slices.Grow(d.slots, 2*n)
	if d.walkLengths(known) {
		return nil
	}
	return d.walkRecords()
}

// walkRecords finds the place and slot of each record, and checks all of it.
func (d *Decoded) walkRecords() error {
	it := protocol.IterateRecords(&d.header, d.records)
	pos := 0
	for i := 0; it.Next(); i++ {
		r := it.Record()
		if delta := int32(r.Offset - d.header.BaseOffset); len(d.deltas) > 0 || int(delta) != i {
			d.appendDelta(i, delta)
		}
		slot := Slot(r.Key, r.Offset)
		d.starts = append(d.starts, uint32(pos))
		d.slots = append(d.slots, byte(slot), byte(slot>>8))
		pos += len(r.Raw)
	}
	d.starts = append(d.starts, uint32(pos))
	return it.Err()
}

// walkLengths finds the places of the records whose slots are known, by their lengths
// alone. It is false, and nothing has happened, if these do not add up, or offsets are
// missing.
func (d *Decoded) walkLengths(known []byte) bool {
	n := len(known) / 2
	if n == 0 || n != int(d.header.NumRecords) || n != int(d.header.LastOffsetDelta)+1 {
		return false
	}
	starts, pos, end := d.starts, 0, len(d.records)
	for range n {
		starts = append(starts, uint32(pos))
		length, used := binary.Varint(d.records[pos:])
		if used <= 0 || length < recordLenMin-1 || length > int64(end-pos-used) {
			return false
		}
		pos += used + int(length)
	}
	if pos != end {
		return false
	}
	d.starts = append(starts, uint32(pos))
	d.slots = append(d.slots, known...)
	return true
}

// appendDelta notes the offset delta of record i, and those of the records before it,
// which had no holes, if it is the first behind one.
func (d *Decoded) appendDelta(i int, delta int32) {
	for len(d.deltas) < i {
		d.deltas = append(d.deltas, int32(len(d.deltas)))
	}
	d.deltas = append(d.deltas, delta)
}

// Header is the batch's header.
func (d *Decoded) Header() *protocol.BatchHeader { return &d.header }

// Batch is the whole batch as it was given.
func (d *Decoded) Batch() []byte { return d.batch }

// Opaque tells that every filter passes the batch whole: it is a control batch, or its
// records could not be decoded.
func (d *Decoded) Opaque() bool { return d.opaque }

// Err says why the records could not be decoded: a wrong checksum, malformed records,
// or protocol.ErrTooLarge. It is nil for a control batch.
func (d *Decoded) Err() error { return d.err }

// Len is the number of records whose slots are known, 0 if the batch is opaque.
func (d *Decoded) Len() int { return len(d.slots) / 2 }

// Slot is the key slot of record i.
func (d *Decoded) Slot(i int) uint16 { return slotAt(d.slots, i) }

// Offset is the offset of record i.
func (d *Decoded) Offset(i int) int64 {
	if len(d.deltas) == 0 {
		return d.header.BaseOffset + int64(i)
	}
	return d.header.BaseOffset + int64(d.deltas[i])
}

// MemoryBytes is about what d holds of memory, the batch and kept buffers included.
func (d *Decoded) MemoryBytes() int {
	return cap(d.batch) + cap(d.buf) + 4*cap(d.starts) + cap(d.slots) + 4*cap(d.deltas)
}

// firstAt is the index of the first record at or after offset.
func (d *Decoded) firstAt(offset int64) int {
	delta := offset - d.header.BaseOffset
	switch {
	case delta <= 0:
		return 0
	case len(d.deltas) == 0:
		return int(min(delta, int64(d.Len())))
	default:
		return sort.Search(len(d.deltas), func(i int) bool { return int64(d.deltas[i]) >= delta })
	}
}

// key is that of record i.
func (d *Decoded) key(i int) []byte {
	one := d.header
	one.NumRecords = 1
	it := protocol.IterateRecords(&one, d.records[d.starts[i]:d.starts[i+1]])
	it.Next() // it was well formed when it was decoded
	return it.Record().Key
}
