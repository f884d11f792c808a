package dealer

import (
	"errors"
	"fmt"
	"sync"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
)

// Bytes is about how many bytes the records take in the log.
func (d *Dealt) Bytes() int {
	n := 0
	for i := range d.Deliveries {
		n += int(d.Deliveries[i].End - d.Deliveries[i].Start)
	}
	return n * d.recordBytes
}

// AppendRecords appends to dst the stored batches that hold the records dealt. Batches of
// which less than half was dealt are made anew with just that; limit is how much one of
// them may take decompressed.
func (d *Dealt) AppendRecords(dst []byte, limit int) ([]byte, error) {
	if len(d.Deliveries) == 0 {
		return dst, nil
	}
	c := collectors.Get().(*collector)
	defer collectors.Put(c)
	c.runs = c.runs[:0]
	for i := range d.Deliveries {
		c.runs = append(c.runs, d.Deliveries[i].Run)
	}
	return c.collect(dst, d, limit)
}

// collector reads what was dealt. It keeps its buffers.
type collector struct {
	picker protocol.Picker
	picked []byte
	runs   []individualcommit.Run
}

var collectors = sync.Pool{New: func() any { return new(collector) }}

// longestRead is how much is read at a time.
const longestRead = 1 << 20

func (c *collector) collect(dst []byte, d *Dealt, limit int) ([]byte, error) {
	for at, runs := int64(0), c.runs; ; {
		for len(runs) > 0 && runs[0].End <= at {
			runs = runs[1:]
		}
		if len(runs) == 0 {
			return dst, nil
		}
		at = max(at, runs[0].Start)
		want := min(int(runs[0].End-at)*d.recordBytes, longestRead)
		got, err := d.log.Read(dst, at, commitlog.ReadOptions{MaxBytes: want, MinOne: true, UpTo: d.log.Bounds().HighWatermark})
		if errors.Is(err, commitlog.ErrOffsetOutOfRange) && at < d.log.Bounds().Start {
			at = d.log.Bounds().Start // it was deleted since
			continue
		}
		if err != nil {
			return dst, fmt.Errorf("read records that were dealt, from offset %d: %w", at, err)
		}
		if got.Next <= at {
			return dst, nil
		}
		if dst, err = c.keep(got.Data, len(dst), runs, limit); err != nil {
			return dst, fmt.Errorf("batch behind offset %d: %w", at, err)
		}
		at = got.Next
	}
}

// keep leaves of the batches in data from at on what is in runs.
func (c *collector) keep(data []byte, at int, runs []individualcommit.Run, limit int) ([]byte, error) {
	kept := data[:at]
	for rest := data[at:]; len(rest) > 0; {
		h, err := protocol.ParseBatchHeader(rest)
		if err != nil {
			return kept, err
		}
		batch := rest[:h.Size()]
		rest = rest[h.Size():]
		switch n := overlap(runs, h.BaseOffset, h.NextOffset()); {
		case n == 0:
		case h.Control() || 2*n >= int64(h.NumRecords):
			kept = append(kept, batch...)
		default:
			c.picked = c.picker.Append(c.picked[:0], &h, batch, runs, limit)
			if len(c.picked) > len(batch) { // it would not fit in its place
				c.picked = append(c.picked[:0], batch...)
			}
			kept = append(kept, c.picked...)
		}
	}
	return kept, nil
}

// overlap is how many offsets of [start, end) are in runs.
func overlap(runs []individualcommit.Run, start, end int64) (n int64) {
	for _, r := range runs {
		if r.Start >= end {
			return n
		}
		n += max(min(r.End, end)-max(r.Start, start), 0)
	}
	return n
}
