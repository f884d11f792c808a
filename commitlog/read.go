package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"slices"
	"sort"
	"sync"

	"github.com/lacunamq/lacuna/protocol"
)

// ReadOptions bounds a Read.
type ReadOptions struct {
	MaxBytes int   // of whole batches
	UpTo     int64 // only batches that end at or below this offset; the high watermark bounds it too
	MinOne   bool  // the first batch comes even if it is larger than MaxBytes
}

// Read is what a Read found.
type Read struct {
	Data []byte // the caller's slice, with whole stored batches appended
	Next int64  // where to read on
}

// Read appends stored batches to dst, from the one that holds offset from, or the next
// if there is none. The first batch may begin below from. Nothing is appended when
// from is at UpTo or the high watermark, or the first batch is too large.
//
// The error is ErrOffsetOutOfRange if from is below the log start or above the high
// watermark.
func (l *Log) Read(dst []byte, from int64, o ReadOptions) (Read, error) {
	for {
		r, err := l.readOnce(dst, from, o)
		again, err := l.goneIsOver(err)
		if again || err == nil && from < l.start.Load() { // records were deleted under it
			continue
		}
		return r, err
	}
}

// goneIsOver tells whether a read that met a segment which was deleted or compacted
// meanwhile is to be tried again on the new list.
func (l *Log) goneIsOver(err error) (again bool, _ error) {
	if err == nil || !errors.Is(err, ErrSegmentGone) {
		return false, err
	}
	if l.shut.Load() {
		return false, fmt.Errorf("%s: %w", l.opts.Name, ErrClosed)
	}
	return true, nil
}

func (l *Log) readOnce(dst []byte, from int64, o ReadOptions) (Read, error) {
	r := Read{Data: dst, Next: from}
	b := l.Bounds()
	if from < b.Start || from > b.HighWatermark {
		return r, fmt.Errorf("%s: %w: %d is not in [%d, %d]", l.opts.Name, ErrOffsetOutOfRange, from, b.Start, b.HighWatermark)
	}
	upTo := min(o.UpTo, b.HighWatermark)
	list := *l.segments.Load()
	before := len(dst)
	for i := segmentAt(list, from); i < len(list) && r.Next < upTo; i++ {
		s := list[i]
		if r.Next >= s.next.Load() {
			continue // a hole between two segments
		}
		room := o.MaxBytes - (len(r.Data) - before)
		full, err := l.readSegment(s, &r, upTo, room, o.MinOne && len(r.Data) == before)
		if err != nil {
			return Read{Data: dst, Next: from}, fmt.Errorf("%s at offset %d: %w", l.opts.Name, r.Next, err)
		}
		if full {
			return r, nil
		}
	}
	r.Next = max(r.Next, upTo) // what is left below is a hole
	return r, nil
}

// segmentAt is the index of the segment that an offset falls into, the first if it is
// below all.
func segmentAt(list []*segment, offset int64) int {
	return max(0, sort.Search(len(list), func(i int) bool { return list[i].base > offset })-1)
}

// readSegment appends batches of one segment to r. full tells that there is no use in
// going on with the next.
func (l *Log) readSegment(s *segment, r *Read, upTo int64, room int, minOne bool) (full bool, err error) {
	pos, err := l.seek(s, r.Next)
	if err != nil {
		return true, err
	}
	left := s.size.Load() - pos
	if left <= 0 {
		return false, nil
	}
	start := len(r.Data)
	n := int(min(left, int64(max(room, 0))))
	if err := r.fill(s, pos, n); err != nil {
		return true, err
	}
	kept, more, err := r.keep(r.Data[start:], upTo)
	r.Data = r.Data[:start+kept]
	if err != nil {
		return true, err
	}
	if kept == 0 && minOne && more {
		return true, r.fillOne(s, pos, upTo)
	}
	return more || int64(n) < left, nil
}

// fill appends n bytes of the segment at pos.
func (r *Read) fill(s *segment, pos int64, n int) error {
	if n == 0 {
		return nil
	}
	start := len(r.Data)
	r.Data = slices.Grow(r.Data, n)
	got, err := s.readAt(r.Data[start:start+n], pos)
	r.Data = r.Data[:start+got]
	return err
}

// keep is the length of the batches at the start of b that are whole and end at or
// below upTo, and moves Next past them. more tells that the segment has others.
func (r *Read) keep(b []byte, upTo int64) (kept int, more bool, err error) {
	for {
		rest := b[kept:]
		if len(rest) < protocol.BatchHeaderLen {
			return kept, true, nil
		}
		size, next, err := batchExtent(rest)
		if err != nil {
			return kept, true, err
		}
		if size > len(rest) || next > upTo {
			return kept, true, nil
		}
		kept += size
		r.Next = next
		if kept == len(b) {
			return kept, false, nil
		}
	}
}

// fillOne appends the batch at pos, whatever its size.
func (r *Read) fillOne(s *segment, pos, upTo int64) error {
	var head [protocol.BatchHeaderLen]byte
	n, err := s.readAt(head[:], pos)
	if err != nil {
		return err
	}
	size, next, err := batchExtent(head[:n])
	if err != nil || next > upTo {
		return err
	}
	if err := r.fill(s, pos, size); err != nil {
		return err
	}
	r.Next = next
	return nil
}

// batchExtent is the size of the batch whose header b begins with, and the offset after it.
func batchExtent(b []byte) (size int, next int64, err error) {
	if len(b) < protocol.BatchHeaderLen {
		return 0, 0, fmt.Errorf("%w: a segment ends within a batch header", protocol.ErrCorruptBatch)
	}
	be := binary.BigEndian
	length, delta := int32(be.Uint32(b[8:])), int32(be.Uint32(b[23:]))
	if length < protocol.BatchHeaderLen-12 || delta < 0 {
		return 0, 0, fmt.Errorf("%w: length %d, last offset delta %d", protocol.ErrCorruptBatch, length, delta)
	}
	return int(length) + 12, int64(be.Uint64(b)) + int64(delta) + 1, nil
}

// seekBytes is read at a time to find a batch between two index entries.
const seekBytes = 4 << 10

var seekBuffers = sync.Pool{New: func() any { return new([seekBytes]byte) }}

// seek is the position of the batch that holds offset, or of the first one after it.
func (l *Log) seek(s *segment, offset int64) (int64, error) {
	x, err := l.indexOf(s)
	if err != nil {
		return 0, err
	}
	e := x.floor(offset - s.base)
	pos := int64(e.pos)
	if s.base+int64(e.offset) == offset {
		return pos, nil
	}
	buf := seekBuffers.Get().(*[seekBytes]byte)
	defer seekBuffers.Put(buf)
	for {
		n, err := s.readAt(buf[:], pos)
		if err != nil || n == 0 {
			return pos, err
		}
		moved, found, err := seekIn(buf[:n], offset)
		pos += moved
		if err != nil || found {
			return pos, err
		}
	}
}

// seekIn walks the batches in b. It returns how far, and whether the batch there is
// the one for offset; if not, reading goes on there.
func seekIn(b []byte, offset int64) (moved int64, found bool, err error) {
	for {
		size, next, err := batchExtent(b[moved:])
		if err != nil {
			return moved, false, err
		}
		if next > offset {
			return moved, true, nil
		}
		moved += int64(size)
		if moved+protocol.BatchHeaderLen > int64(len(b)) {
			return moved, false, nil
		}
	}
}
