package filter

import (
	"fmt"
	"io"
	"slices"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
)

const (
	// windowBytes is read at a time where batch follows batch: small enough to be still in
	// the processor's cache when the last of it is decoded.
	windowBytes = 128 << 10

	// windowKeptBytes is how large a window may be to be kept for another fetch.
	windowKeptBytes = 2 << 20
)

// window is a part of a segment in memory.
type window struct {
	log    Log
	info   commitlog.SegmentInfo
	counts *counters

	buf []byte
	at  int64 // where buf begins in the segment
}

// reset makes it a window of another segment.
func (w *window) reset(log Log, info commitlog.SegmentInfo, counts *counters) {
	w.log, w.info, w.counts = log, info, counts
	w.at, w.buf = 0, w.buf[:0]
	if cap(w.buf) > windowKeptBytes {
		w.buf = nil
	}
}

// ahead is the n bytes at position; more is read with them, for the calls that follow.
// They are good until the next call.
func (w *window) ahead(position int64, n int) ([]byte, error) {
	if b, ok := w.held(position, n); ok {
		return b, nil
	}
	if err := w.check(position, n); err != nil {
		return nil, err
	}
	w.move(position)
	have := len(w.buf)
	want := int(min(int64(max(n, windowBytes)), w.info.SizeBytes-position))
	w.buf = slices.Grow(w.buf, want-have)[:want]
	if err := w.read(w.buf[have:], position+int64(have)); err != nil {
		w.buf = w.buf[:have]
		return nil, err
	}
	return w.buf[:n], nil
}

// copyTo fills p with the bytes at position, and reads no others.
func (w *window) copyTo(p []byte, position int64) error {
	if b, ok := w.held(position, len(p)); ok {
		copy(p, b)
		return nil
	}
	if err := w.check(position, len(p)); err != nil {
		return err
	}
	return w.read(p, position)
}

// held is the n bytes at position if they are there.
func (w *window) held(position int64, n int) ([]byte, bool) {
	from := position - w.at
	if from < 0 || from+int64(n) > int64(len(w.buf)) {
		return nil, false
	}
	return w.buf[from : from+int64(n)], true
}

// move drops what is before position, or all if that is not in the window.
func (w *window) move(position int64) {
	kept := 0
	if from := position - w.at; from >= 0 && from < int64(len(w.buf)) {
		kept = copy(w.buf, w.buf[from:])
	}
	w.buf, w.at = w.buf[:kept], position
}

// check holds that the segment has n bytes at position.
func (w *window) check(position int64, n int) error {
	if position < 0 || int64(n) > w.info.SizeBytes-position {
		return fmt.Errorf("%w: %d bytes at position %d of segment %d, which has %d",
			protocol.ErrCorruptBatch, n, position, w.info.Base, w.info.SizeBytes)
	}
	return nil
}

func (w *window) read(p []byte, position int64) error {
	n, err := w.log.ReadSegment(w.info, position, p)
	w.counts.reads.Add(1)
	w.counts.readBytes.Add(int64(n))
	if err == nil && n < len(p) {
		err = fmt.Errorf("segment %d at position %d: %w", w.info.Base, position+int64(n), io.ErrUnexpectedEOF)
	}
	return err
}
