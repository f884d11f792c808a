package keyfilter

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/lacunamq/lacuna/protocol"
)

// ErrCorruptIndex marks bytes that are not a slot index that was encoded here.
var ErrCorruptIndex = errors.New("corrupt slot index")

// An encoded index is, all numbers little endian:
//
//	magic "LSIX" 4, version 2, zero 2,
//	stamp 8, start position 8, start offset 8, end position 8, end offset 8,
//	batches 4, records 4, table length 4,
//	table, slots 2 * records, CRC-32C 4 of all before
const (
	indexMagic     = "LSIX"
	indexVersion   = 1
	indexHeaderLen = 60
	indexCRCLen    = 4
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// AppendTo appends the encoded index. The stamp is the caller's: it says what segment
// the index was made from, and DecodeSlotIndex gives it back.
func (x *SlotIndex) AppendTo(dst []byte, stamp uint64) []byte {
	at := len(dst)
	le := binary.LittleEndian
	dst = append(dst, indexMagic...)
	dst = le.AppendUint16(dst, indexVersion)
	dst = le.AppendUint16(dst, 0)
	dst = le.AppendUint64(dst, stamp)
	for _, p := range [...]place{x.start, x.end} {
		dst = le.AppendUint64(dst, uint64(p.position))
		dst = le.AppendUint64(dst, uint64(p.offset))
	}
	dst = le.AppendUint32(dst, uint32(x.batches))
	dst = le.AppendUint32(dst, uint32(x.Records()))
	dst = le.AppendUint32(dst, uint32(len(x.table)))
	dst = append(dst, x.table...)
	dst = append(dst, x.slots...)
	return le.AppendUint32(dst, crc32.Checksum(dst[at:], castagnoli))
}

// EncodedLen is how many bytes AppendTo appends.
func (x *SlotIndex) EncodedLen() int {
	return indexHeaderLen + len(x.table) + len(x.slots) + indexCRCLen
}

// DecodeSlotIndex reads what AppendTo wrote, all of b, and aliases it. Errors wrap
// ErrCorruptIndex; every count and length is checked, the checksum first.
func DecodeSlotIndex(b []byte) (x *SlotIndex, stamp uint64, err error) {
	le := binary.LittleEndian
	if len(b) < indexHeaderLen+indexCRCLen || string(b[:4]) != indexMagic {
		return nil, 0, fmt.Errorf("%w: %d bytes that do not begin like one", ErrCorruptIndex, len(b))
	}
	if v := le.Uint16(b[4:]); v != indexVersion {
		return nil, 0, fmt.Errorf("%w: version %d, known is %d", ErrCorruptIndex, v, indexVersion)
	}
	body := b[:len(b)-indexCRCLen]
	if sum := crc32.Checksum(body, castagnoli); sum != le.Uint32(b[len(body):]) {
		return nil, 0, fmt.Errorf("%w: wrong checksum", ErrCorruptIndex)
	}
	records, tableLen := uint64(le.Uint32(b[52:])), uint64(le.Uint32(b[56:]))
	if uint64(len(body)-indexHeaderLen) != tableLen+2*records {
		return nil, 0, fmt.Errorf("%w: %d bytes for %d records and a table of %d", ErrCorruptIndex, len(b), records, tableLen)
	}
	rest := body[indexHeaderLen:]
	x = &SlotIndex{
		start: place{int64(le.Uint64(b[16:])), int64(le.Uint64(b[24:]))},
		table: rest[:tableLen:tableLen],
		slots: rest[tableLen:len(rest):len(rest)],
	}
	x.end = x.start
	if x.start.position < 0 || x.start.offset < 0 {
		return nil, 0, fmt.Errorf("%w: it starts at %+v", ErrCorruptIndex, x.start)
	}
	if err := x.walkTable(int(le.Uint32(b[48:]))); err != nil {
		return nil, 0, err
	}
	end := place{int64(le.Uint64(b[32:])), int64(le.Uint64(b[40:]))}
	if x.end != end {
		return nil, 0, fmt.Errorf("%w: its batches end at %+v, not at %+v", ErrCorruptIndex, x.end, end)
	}
	return x, le.Uint64(b[8:]), nil
}

// walkTable checks that the table describes so many batches and all records, and makes
// what is derived from it.
func (x *SlotIndex) walkTable(batches int) error {
	table, record := 0, uint64(0)
	for table < len(x.table) {
		e, n := readTableEntry(x.table[table:])
		room := uint64(math.MaxInt64 - x.end.offset)
		switch {
		case n == 0 || e.offsets == 0 || e.size < protocol.BatchHeaderLen || e.size > math.MaxInt32+12:
			return fmt.Errorf("%w: batch %d of %d is malformed", ErrCorruptIndex, x.batches, batches)
		case e.offsets > 1<<31 || e.gap > room || e.offsets > room-e.gap || e.records > uint64(x.Records())-record:
			return fmt.Errorf("%w: batch %d of %d has %d records in %d offsets after %d", ErrCorruptIndex, x.batches, batches, e.records, e.offsets, x.end.offset)
		case int64(e.size) > math.MaxInt64-x.end.position:
			return fmt.Errorf("%w: batch %d of %d begins at position %d", ErrCorruptIndex, x.batches, batches, x.end.position)
		}
		if x.batches%indexBlockLen == 0 {
			x.blocks = append(x.blocks, indexBlock{place: x.end, table: table, record: int(record)})
		}
		if e.opaque {
			x.opaque = append(x.opaque, opaqueMark{uint32(x.batches), uint32(record)})
		}
		x.batches++
		record += e.records
		table += n
		x.end.position += int64(e.size)
		x.end.offset += int64(e.gap + e.offsets)
	}
	if x.batches != batches || record != uint64(x.Records()) {
		return fmt.Errorf("%w: %d batches with %d records, not %d with %d", ErrCorruptIndex, x.batches, record, batches, x.Records())
	}
	return nil
}
