package commitlog

import (
	"errors"
	"fmt"
	"io"

	"github.com/lacunamq/lacuna/protocol"
)

// scanner reads the part of a segment that no index file vouches for, and finds where
// its good data ends.
type scanner struct {
	src       *segment      // whose file is read
	seg       *segment      // its size, next and stats are advanced; mostly src
	index     *segmentIndex // of the part before, extended
	producers *producers    // their state at seg.next, advanced

	size     int64        // of the file, or less if the rest is not to be believed
	limit    int64        // offsets from here on are in the next segment
	cleaned  int64        // below, compaction may have left holes
	epochs   epochHistory // nil: unknown
	interval int32
	nowMs    int64

	checked int64 // bytes
	damage  error // why it ended before size; nil if it did not
}

// run walks the batches from seg.size on and makes the good ones part of the segment.
// An error is of the disk; what is wrong with the bytes is in damage.
func (c *scanner) run() error {
	r := newBatchReader(c.src, c.seg.size.Load(), c.size)
	defer r.close()
	defer func(from int64) { c.checked = r.pos - from }(r.pos)
	for {
		h, err := r.header()
		if err == nil {
			err = c.believe(&h)
		}
		if err == nil {
			err = r.verify(&h)
		}
		switch {
		case errors.Is(err, io.EOF):
			return nil
		case isDamage(err):
			c.damage = err
			return nil
		case err != nil:
			return fmt.Errorf("read %s at %d: %w", c.seg.name(logExt), r.pos, err)
		}
		if err := c.take(r, &h); err != nil {
			return err
		}
		r.skip(&h)
	}
}

func isDamage(err error) bool {
	return errors.Is(err, protocol.ErrCorruptBatch) || errors.Is(err, protocol.ErrUnsupportedMagic) ||
		errors.Is(err, io.ErrUnexpectedEOF)
}

// believe checks that a header can be the next one of this segment. What an append
// left half-written, or an older use of the same blocks, must not pass for data.
func (c *scanner) believe(h *protocol.BatchHeader) error {
	next := c.seg.next.Load()
	switch {
	case h.BaseOffset < next, h.BaseOffset > next && h.BaseOffset > c.cleaned, h.NextOffset() > c.limit:
		return fmt.Errorf("%w: base offset %d where %d is next", protocol.ErrCorruptBatch, h.BaseOffset, next)
	case h.LeaderEpoch < c.seg.stats.lastEpoch, !c.epochs.allows(h.BaseOffset, h.LeaderEpoch):
		return fmt.Errorf("%w: leader epoch %d at offset %d", protocol.ErrCorruptBatch, h.LeaderEpoch, h.BaseOffset)
	}
	return nil
}

// take makes the batch at the reader part of the segment.
func (c *scanner) take(r *batchReader, h *protocol.BatchHeader) error {
	e := entry{h: *h, origin: fromLog, nowMs: c.nowMs}
	if h.Control() {
		var err error
		if e.bytes, err = r.body(h); err != nil {
			return err
		}
		if err := e.parseMarker(); err != nil {
			e.isMarker = false // no marker of ours, and not ours to judge
		}
	}
	s := c.seg
	if h.BaseOffset > s.next.Load() {
		s.stats.compacted = true
	}
	c.index.note(h.BaseOffset-s.base, r.pos, s.stats.maxTimestamp, c.interval)
	s.stats.note(h)
	if h.ProducerID >= 0 {
		if txn, ok := c.producers.apply(&e); ok {
			c.index.aborted.append(txn)
		}
	}
	s.size.Store(r.pos + int64(h.Size()))
	s.next.Store(h.NextOffset())
	return nil
}
