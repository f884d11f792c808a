package commitlog

import (
	"errors"
	"fmt"
	"slices"
	"sort"

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
		if s.base >= upTo {
			break
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
	start := len(r.Data)
	n := int(min(left, int64(max(room, 0))))
	if err := r.fill(s, pos, n); err != nil {
		return true, err
	}
	c := cursor{seg: s, epochs: *l.epochs.Load(), first: true, next: r.Next}
	kept, more, err := c.keep(r.Data[start:], upTo)
	r.Data, r.Next = r.Data[:start+kept], c.next
	if err != nil {
		return true, err
	}
	if kept == 0 && minOne && more {
		return true, r.fillOne(&c, pos, upTo)
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

// fillOne appends the batch at pos, whatever its size.
func (r *Read) fillOne(c *cursor, pos, upTo int64) error {
	var head [protocol.BatchHeaderLen]byte
	n, err := c.seg.readAt(head[:], pos)
	if err != nil {
		return err
	}
	size, next, err := c.extent(head[:n])
	if err != nil || next > upTo {
		return err
	}
	if left := c.seg.size.Load() - pos; int64(size) > left {
		return fmt.Errorf("%w: a batch of %d bytes, %d are left in its segment", protocol.ErrCorruptBatch, size, left)
	}
	if err := r.fill(c.seg, pos, size); err != nil {
		return err
	}
	r.Next = next
	return nil
}
