package commitlog

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
)

// AbortedTxn says that what ProducerID wrote in a transaction from FirstOffset on, up
// to its next control record, is not to be delivered.
type AbortedTxn struct {
	ProducerID  int64
	FirstOffset int64
}

// AbortedTxns lists the aborted transactions that have records in [from, to), by first
// offset. to is at most the last stable offset.
func (l *Log) AbortedTxns(from, to int64) ([]AbortedTxn, error) {
	for {
		txns, err := l.abortedTxns(from, to)
		if again, err := l.goneIsOver(err); !again {
			return txns, err
		}
	}
}

func (l *Log) abortedTxns(from, to int64) ([]AbortedTxn, error) {
	var found []AbortedTxn
	list := *l.segments.Load()
	for _, s := range list[min(segmentAt(list, from), len(list)):] {
		if s.sealed.Load() && s.aborted == 0 {
			continue
		}
		x, err := l.indexOf(s)
		if err != nil {
			return nil, err
		}
		over := false
		for _, a := range x.aborted.view() {
			if a.last >= from && a.first < to {
				found = append(found, AbortedTxn{ProducerID: a.producerID, FirstOffset: a.first})
			}
			if over = a.stable >= to; over {
				break // transactions that end later begin at or after to
			}
		}
		if over {
			break
		}
	}
	slices.SortFunc(found, func(a, b AbortedTxn) int {
		return compareInts(a.FirstOffset, b.FirstOffset, a.ProducerID, b.ProducerID)
	})
	return found, nil
}

// TimestampedOffset is a record found by its time.
type TimestampedOffset struct {
	Offset      int64
	TimestampMs int64
	LeaderEpoch int32
}

// OffsetForTimestamp finds the first visible record with a timestamp of ms or later. ok
// is false if there is none.
func (l *Log) OffsetForTimestamp(ms int64) (found TimestampedOffset, ok bool, err error) {
	for {
		found, ok, err = l.offsetForTimestamp(ms)
		if again, err := l.goneIsOver(err); !again {
			return found, ok, err
		}
	}
}

func (l *Log) offsetForTimestamp(ms int64) (TimestampedOffset, bool, error) {
	b := l.Bounds()
	for _, s := range *l.segments.Load() {
		if s.next.Load() <= b.Start || s.sealed.Load() && s.stats.maxTimestamp < ms {
			continue
		}
		found, ok, err := l.firstAtOrAfter(s, ms, b)
		if err != nil || ok {
			return found, ok, err
		}
	}
	return TimestampedOffset{}, false, nil
}

// MaxTimestamp finds the first of the visible records with the largest timestamp. ok is
// false if there are none.
func (l *Log) MaxTimestamp() (found TimestampedOffset, ok bool, err error) {
	for {
		found, ok, err = l.maxTimestamp()
		if again, err := l.goneIsOver(err); !again {
			return found, ok, err
		}
	}
}

func (l *Log) maxTimestamp() (TimestampedOffset, bool, error) {
	b := l.Bounds()
	var best *segment
	largest := int64(-1)
	for _, s := range *l.segments.Load() {
		if s.next.Load() <= b.Start {
			continue
		}
		ms, err := l.visibleMax(s, b)
		if err != nil {
			return TimestampedOffset{}, false, err
		}
		if ms > largest {
			best, largest = s, ms
		}
	}
	if best == nil {
		return TimestampedOffset{}, false, nil
	}
	return l.firstAtOrAfter(best, largest, b)
}

// visibleMax is the largest timestamp of the visible batches of a segment, -1 for none.
func (l *Log) visibleMax(s *segment, b Bounds) (int64, error) {
	if s.sealed.Load() && s.base >= b.Start && s.next.Load() <= b.HighWatermark {
		return s.stats.maxTimestamp, nil
	}
	x, err := l.indexOf(s)
	if err != nil {
		return -1, err
	}
	// Below the log start everything has to be looked at, above it the index helps.
	e := indexEntry{before: -1}
	if s.base >= b.Start {
		e = x.floor(b.HighWatermark - 1 - s.base)
	}
	largest := e.before
	err = l.walk(s, int64(e.pos), s.base+int64(e.offset), func(r *batchReader, h *protocol.BatchHeader) (bool, error) {
		switch {
		case h.BaseOffset >= b.HighWatermark:
			return false, nil
		case h.BaseOffset >= b.Start:
			largest = max(largest, h.MaxTimestamp)
		case h.NextOffset() > b.Start: // the log start is within it
			batch, err := r.body(h)
			if err != nil {
				return false, err
			}
			largest = max(largest, maxTimestampFrom(l.opts.Decoding, h, batch, b.Start))
		}
		return true, nil
	})
	return largest, err
}

// maxTimestampFrom is the largest timestamp of a batch's records from start on.
func maxTimestampFrom(d *DecodeLimiter, h *protocol.BatchHeader, batch []byte, start int64) int64 {
	largest := int64(-1)
	err := d.Records(h, batch, func(records []byte) error {
		for it := protocol.IterateRecords(h, records); it.Next(); {
			if rec := it.Record(); rec.Offset >= start {
				largest = max(largest, rec.TimestampMs)
			}
		}
		return nil
	})
	if err != nil {
		return h.MaxTimestamp
	}
	return largest
}

// firstAtOrAfter finds the first visible record of a segment with a timestamp of ms or later.
func (l *Log) firstAtOrAfter(s *segment, ms int64, b Bounds) (found TimestampedOffset, ok bool, err error) {
	x, err := l.indexOf(s)
	if err != nil {
		return found, false, err
	}
	e := x.floorTime(ms)
	err = l.walk(s, int64(e.pos), s.base+int64(e.offset), func(r *batchReader, h *protocol.BatchHeader) (bool, error) {
		if h.BaseOffset >= b.HighWatermark {
			return false, nil
		}
		if h.MaxTimestamp < ms || h.NextOffset() <= b.Start {
			return true, nil
		}
		batch, err := r.body(h)
		if err != nil {
			return false, err
		}
		found, ok = firstRecordAt(l.opts.Decoding, h, batch, ms, b.Start)
		return !ok, nil
	})
	return found, ok, err
}

// firstRecordAt finds the first record of a batch from start on with a timestamp of ms
// or later. A batch that cannot be decoded is taken whole.
func firstRecordAt(d *DecodeLimiter, h *protocol.BatchHeader, batch []byte, ms, start int64) (found TimestampedOffset, ok bool) {
	err := d.Records(h, batch, func(records []byte) error {
		it := protocol.IterateRecords(h, records)
		for it.Next() {
			if rec := it.Record(); rec.TimestampMs >= ms && rec.Offset >= start {
				found, ok = TimestampedOffset{Offset: rec.Offset, TimestampMs: rec.TimestampMs, LeaderEpoch: h.LeaderEpoch}, true
				return nil
			}
		}
		return it.Err()
	})
	if err != nil {
		return TimestampedOffset{Offset: max(h.BaseOffset, start), TimestampMs: h.MaxTimestamp, LeaderEpoch: h.LeaderEpoch}, true
	}
	return found, ok
}

// walk calls fn for the header of each batch of a segment until fn returns false. It
// begins at pos, with the batch that holds offset from or is the first after it.
func (l *Log) walk(s *segment, pos, from int64, fn func(r *batchReader, h *protocol.BatchHeader) (bool, error)) error {
	r := newBatchReader(s, pos, s.size.Load())
	defer r.close()
	c := cursor{seg: s, epochs: *l.epochs.Load(), first: true, next: from}
	for {
		h, err := r.header()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err == nil {
			err = c.check(h.BaseOffset, h.NextOffset(), h.LeaderEpoch)
		}
		if err == nil {
			c.pass(h.NextOffset())
			var more bool
			if more, err = fn(r, &h); err == nil && !more {
				return nil
			}
		}
		if err != nil {
			return fmt.Errorf("%s: read %s at %d: %w", l.opts.Name, s.name(logExt), r.pos, err)
		}
		r.skip(&h)
	}
}

// ScanHeaders calls fn with the header of each visible batch from the one that holds
// offset from on, until fn returns false. pos is where the batch lies in the segment s.
func (l *Log) ScanHeaders(from int64, fn func(s SegmentInfo, pos int64, h *protocol.BatchHeader) bool) error {
	b := l.Bounds()
	if from < b.Start || from > b.HighWatermark {
		return fmt.Errorf("%s: %w: %d is not in [%d, %d]", l.opts.Name, ErrOffsetOutOfRange, from, b.Start, b.HighWatermark)
	}
	next := from
	for next < b.HighWatermark {
		list := *l.segments.Load()
		i := segmentAt(list, next)
		for i < len(list) && next >= list[i].next.Load() {
			i++
		}
		if i == len(list) {
			return nil
		}
		stop, err := l.scanHeaders(list[i], &next, b.HighWatermark, fn)
		again, err := l.goneIsOver(err)
		if err != nil || stop {
			return err
		}
		if !again && next < list[i].next.Load() {
			next = list[i].next.Load()
		}
	}
	return nil
}

func (l *Log) scanHeaders(s *segment, next *int64, high int64, fn func(SegmentInfo, int64, *protocol.BatchHeader) bool) (stop bool, err error) {
	pos, err := l.seek(s, *next)
	if err != nil {
		return false, err
	}
	info := s.info()
	err = l.walk(s, pos, *next, func(r *batchReader, h *protocol.BatchHeader) (bool, error) {
		if h.NextOffset() > high || !fn(info, r.pos, h) {
			stop = true
			return false, nil
		}
		*next = h.NextOffset()
		return true, nil
	})
	if errors.Is(err, ErrSegmentGone) {
		return false, err
	}
	return stop, err
}
