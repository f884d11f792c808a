package commitlog

import (
	"encoding/binary"
	"fmt"
	"sync"

	"github.com/lacunamq/lacuna/protocol"
)

// cursor walks the batches of a segment by their headers alone. The checksum does not
// cover a batch's offset, epoch and length, so they are checked against what the log
// knows: a damaged header is an error, never a hole or an end.
type cursor struct {
	seg    *segment
	epochs epochHistory
	next   int64 // offset expected next
	first  bool  // the next batch may have begun before that
}

// extent is the size of the batch that b begins with, and the offset after it.
func (c *cursor) extent(b []byte) (size int, next int64, err error) {
	if len(b) < protocol.BatchHeaderLen {
		return 0, 0, fmt.Errorf("%w: a segment ends within a batch header", protocol.ErrCorruptBatch)
	}
	be := binary.BigEndian
	base, length := int64(be.Uint64(b)), int32(be.Uint32(b[8:]))
	epoch, delta := int32(be.Uint32(b[12:])), int32(be.Uint32(b[23:]))
	next = base + int64(delta) + 1
	if length < protocol.BatchHeaderLen-batchPrefixLen || delta < 0 || b[16] != 2 {
		return 0, 0, fmt.Errorf("%w: magic %d, length %d, last offset delta %d", protocol.ErrCorruptBatch, b[16], length, delta)
	}
	return int(length) + batchPrefixLen, next, c.check(base, next, epoch)
}

// check tells whether the next batch can have these offsets and this epoch. What is missing
// below the segment is a hole between two, of which compaction has left nothing.
func (c *cursor) check(base, next int64, epoch int32) error {
	switch {
	case base < c.seg.base || next > c.seg.next.Load() || next <= c.next,
		base < c.next && !c.first, base > max(c.next, c.seg.base) && !c.seg.stats.compacted:
		return fmt.Errorf("%w: offsets %d to %d where %d is next", protocol.ErrCorruptBatch, base, next, c.next)
	case !c.epochs.allows(base, epoch):
		return fmt.Errorf("%w: leader epoch %d at offset %d", protocol.ErrCorruptBatch, epoch, base)
	}
	return nil
}

// pass moves past a batch that check has seen.
func (c *cursor) pass(next int64) { c.next, c.first = next, false }

// batchPrefixLen is the bytes of a batch that its length field does not count.
const batchPrefixLen = 12

// keep is the length of the batches at the start of b that are whole and end at or
// below upTo, and moves past them. more tells that the segment has others.
func (c *cursor) keep(b []byte, upTo int64) (kept int, more bool, err error) {
	for kept < len(b) {
		rest := b[kept:]
		if len(rest) < protocol.BatchHeaderLen {
			return kept, true, nil
		}
		size, next, err := c.extent(rest)
		if err != nil {
			return kept, true, err
		}
		if size > len(rest) || next > upTo {
			return kept, true, nil
		}
		kept += size
		c.pass(next)
	}
	return kept, len(b) == 0, nil
}

// seekBytes is read at a time to find a batch between two index entries.
const seekBytes = 4 << 10

var seekBuffers = sync.Pool{New: func() any { return new([seekBytes]byte) }}

// seek is the position of the batch that holds offset, which the segment reaches
// beyond, or of the first one after it.
func (l *Log) seek(s *segment, offset int64) (int64, error) {
	x, err := l.indexOf(s)
	if err != nil {
		return 0, err
	}
	e := x.floor(offset - s.base)
	pos := int64(e.pos)
	c := cursor{seg: s, epochs: *l.epochs.Load(), next: s.base + int64(e.offset)}
	if c.next == offset {
		return pos, nil
	}
	buf := seekBuffers.Get().(*[seekBytes]byte)
	defer seekBuffers.Put(buf)
	for {
		n, err := s.readAt(buf[:], pos)
		if err != nil {
			return pos, err
		}
		moved, found, err := c.find(buf[:n], offset)
		pos += moved
		if err != nil || found {
			return pos, err
		}
	}
}

// find walks the batches in b. It returns how far, and whether the batch there is the
// one for offset; if not, reading goes on there.
func (c *cursor) find(b []byte, offset int64) (moved int64, found bool, err error) {
	for {
		size, next, err := c.extent(b[min(moved, int64(len(b))):])
		if err != nil {
			return moved, false, err
		}
		if next > offset {
			return moved, true, nil
		}
		moved += int64(size)
		c.pass(next)
		if moved+protocol.BatchHeaderLen > int64(len(b)) {
			return moved, false, nil
		}
	}
}
