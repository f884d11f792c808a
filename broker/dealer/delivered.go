package dealer

import (
	"errors"
	"fmt"
	"math"
	"sync"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
)

// Bytes is about how many bytes the records take in the log.
func (d *Dealt) Bytes() int { return recordsOf(d.Deliveries) * d.recordBytes }

// recordsOf is how many records were delivered.
func recordsOf(deliveries []cooperative.Delivery) (n int) {
	for i := range deliveries {
		n += int(deliveries[i].End - deliveries[i].Start)
	}
	return n
}

// AppendRecords appends to dst the stored batches that hold the records dealt, of at most
// limit bytes, but with minOne at least one batch; what has no room is given back. Batches
// of which less than half was dealt, or that have no room whole, are made anew with just
// that, as far as decode lets them be decompressed. After an error nothing was given back.
func (d *Dealt) AppendRecords(dst []byte, limit int, minOne bool, decode *commitlog.DecodeLimiter) ([]byte, error) {
	if len(d.Deliveries) == 0 {
		return dst, nil
	}
	c := collectors.Get().(*collector)
	defer collectors.Put(c)
	c.runs = c.runs[:0]
	for i := range d.Deliveries {
		c.runs = append(c.runs, d.Deliveries[i].Run)
	}
	c.decode, c.start, c.limit, c.minOne = decode, len(dst), limit, minOne
	dst, end, err := c.collect(dst, d)
	if err == nil {
		d.giveBackFrom(end)
	}
	return dst, err
}

// collector reads what was dealt. It keeps its buffers.
type collector struct {
	decode *commitlog.DecodeLimiter
	picker protocol.Picker
	picked []byte
	runs   []individualcommit.Run
	start  int  // where in dst the records begin
	limit  int  // how many bytes of them there may be
	minOne bool // or one batch
}

// admits tells whether n bytes more have room behind kept.
func (c *collector) admits(kept []byte, n int) bool {
	return len(kept)-c.start+n <= c.limit || c.minOne && len(kept) == c.start
}

var collectors = sync.Pool{New: func() any { return new(collector) }}

// longestRead is how much is read at a time.
const longestRead = 1 << 20

// collect also gives the offset from which on there was no room.
func (c *collector) collect(dst []byte, d *Dealt) (_ []byte, end int64, err error) {
	for at, runs := int64(0), c.runs; ; {
		for len(runs) > 0 && runs[0].End <= at {
			runs = runs[1:]
		}
		if len(runs) == 0 {
			return dst, math.MaxInt64, nil
		}
		at = max(at, runs[0].Start)
		want := min(int(runs[0].End-at)*d.recordBytes, longestRead)
		got, err := d.p.log.Read(dst, at, commitlog.ReadOptions{MaxBytes: want, MinOne: true, UpTo: d.p.log.Bounds().HighWatermark})
		if errors.Is(err, commitlog.ErrOffsetOutOfRange) && at < d.p.log.Bounds().Start {
			at = d.p.log.Bounds().Start // it was deleted since
			continue
		}
		if err != nil {
			return dst, 0, fmt.Errorf("read records that were dealt, from offset %d: %w", at, err)
		}
		if got.Next <= at {
			return dst, at, nil
		}
		full := false
		if dst, end, full, err = c.keep(got.Data, len(dst), runs); err != nil {
			return dst, 0, fmt.Errorf("batch behind offset %d: %w", at, err)
		}
		if full {
			return dst, end, nil
		}
		at = got.Next
	}
}

// keep leaves of the batches in data from at on what is in runs, up to the first that has
// no room, whose offset end is.
func (c *collector) keep(data []byte, at int, runs []individualcommit.Run) (kept []byte, end int64, full bool, err error) {
	kept = data[:at]
	for rest := data[at:]; len(rest) > 0; {
		h, err := protocol.ParseBatchHeader(rest)
		if err != nil {
			return kept, 0, false, err
		}
		batch := rest[:h.Size()]
		rest = rest[h.Size():]
		n := overlap(runs, h.BaseOffset, h.NextOffset())
		if n == 0 {
			continue
		}
		if !h.Control() && (2*n < int64(h.NumRecords) || !c.admits(kept, len(batch))) {
			batch = c.pick(&h, batch, runs)
		}
		if !c.admits(kept, len(batch)) {
			return kept, h.BaseOffset, true, nil
		}
		kept = append(kept, batch...)
	}
	return kept, 0, false, nil
}

// pick gives the batch with just the records in runs; whole, if that cannot be made or
// would not fit in its place.
func (c *collector) pick(h *protocol.BatchHeader, batch []byte, runs []individualcommit.Run) []byte {
	err := c.decode.Records(h, batch, func(records []byte) (err error) {
		c.picked, err = c.picker.Append(c.picked[:0], h, batch, records, runs)
		return err
	})
	if err != nil || len(c.picked) > len(batch) {
		return batch
	}
	return c.picked
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
