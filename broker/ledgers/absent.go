package ledgers

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"go.uber.org/zap"
)

// solidFor is how long it counts that offsets were found to hold records: a cleaner may
// take them any time.
const solidFor = 30 * time.Second

// solid is a stretch of offsets that were found to hold records.
type solid struct {
	from, to int64
	until    time.Time
}

// settle moves the stable offsets of ledgers over offsets that hold no record: control
// markers and what compaction took. It reads the log where a stable offset stands, below
// the LSO, without keeping others from the shard. What a transaction aborted is left to
// who reads: a read_committed share group's dealer commits it.
func (s *shard) settle(ids []individualcommit.ID) {
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	for _, id := range ids {
		for s.settleOnce(id, buf) {
		}
	}
}

// readBuffers are for batches that are looked at, as *[]byte.
var readBuffers = sync.Pool{New: func() any { return new([]byte) }}

// settleOnce closes one run of absent offsets and tells whether there was one.
func (s *shard) settleOnce(id individualcommit.ID, buf *[]byte) bool {
	at, bounds, ok := s.standing(id)
	if !ok {
		return false
	}
	batches, err := s.c.opts.Log.Read(partitionOf(id), (*buf)[:0], at)
	if err != nil {
		s.c.opts.Logger.Warn("cannot look for offsets without a record", zap.Stringer("ledger", id), zap.Int64("offset", at), zap.Error(err))
		return false
	}
	if cap(batches) <= keepBufferBytes {
		*buf = batches
	}
	end, to := s.c.recordAt(batches, at)
	return s.closeTo(id, at, min(end, bounds.LSO), to)
}

// keepBufferBytes is the largest buffer that is kept.
const keepBufferBytes = 1 << 20

// standing is the stable offset of a ledger, if it may hold no record.
func (s *shard) standing(id individualcommit.ID) (at int64, bounds extension.Bounds, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.trustedLocked(id)
	if e == nil {
		return 0, bounds, false
	}
	bounds, err := s.c.opts.Log.Bounds(partitionOf(id))
	if err != nil {
		return 0, bounds, false
	}
	l := s.mu.loaded
	l.advance(e, bounds.Start)
	if s.appendLocked() != nil {
		return 0, bounds, false
	}
	at = e.Ledger.Stable()
	known := l.solid[id]
	if known.from <= at && at < known.to && s.c.opts.Now().Before(known.until) {
		return 0, bounds, false
	}
	return at, bounds, at >= bounds.Start && at < bounds.LSO
}

// closeTo closes the offsets from at to end, of which none holds a record, if the stable
// offset still stands among them. Those from end to solidTo hold records.
func (s *shard) closeTo(id individualcommit.ID, at, end, solidTo int64) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	e := s.trustedLocked(id)
	if e == nil {
		return false
	}
	l := s.mu.loaded
	l.solid[id] = solid{from: end, to: solidTo, until: s.c.opts.Now().Add(solidFor)}
	stable := e.Ledger.Stable()
	if stable < at || !e.Ledger.Close(end) {
		return false
	}
	l.moved[id] = struct{}{}
	l.tellCommitted(e, []individualcommit.Run{{Start: stable, End: end}})
	return s.appendLocked() == nil
}

// recordAt is the first offset at or above from that holds a record, by the batches read
// from there on, or where they end; and up to where all offsets from there hold one.
func (c *Coordinator) recordAt(batches []byte, from int64) (at, solidTo int64) {
	end := c.records(batches, from, func(r individualcommit.Run) bool {
		at, solidTo = r.Start, r.End
		return false
	})
	if solidTo == 0 {
		return end, end
	}
	return at, solidTo
}

// records yields the runs of offsets at or above from that hold records, by the batches
// read from there on, until yield says no; end is up to where nothing else does. The
// offsets of a batch that cannot be decoded count as records.
func (c *Coordinator) records(batches []byte, from int64, yield func(individualcommit.Run) bool) (end int64) {
	end = from
	for len(batches) > 0 {
		h, err := protocol.ParseBatchHeader(batches)
		if err != nil || h.Size() > len(batches) {
			return end
		}
		batch := batches[:h.Size()]
		batches = batches[h.Size():]
		switch {
		case h.NextOffset() <= end:
			continue
		case h.Control():
		case int64(h.NumRecords) == int64(h.LastOffsetDelta)+1:
			if !yield(individualcommit.Run{Start: max(end, h.BaseOffset), End: h.NextOffset()}) {
				return end
			}
		default:
			if !c.recordsIn(&h, batch, end, yield) {
				return end
			}
		}
		end = h.NextOffset()
	}
	return end
}

// recordsIn is records for a batch that compaction has thinned out.
func (c *Coordinator) recordsIn(h *protocol.BatchHeader, batch []byte, from int64, yield func(individualcommit.Run) bool) (more bool) {
	more = true
	err := c.opts.Decode(h, batch, func(records []byte) error {
		it := protocol.IterateRecords(h, records)
		for more && it.Next() {
			if x := it.Record().Offset; x >= from {
				more = yield(individualcommit.Run{Start: x, End: x + 1})
				from = x + 1
			}
		}
		return it.Err()
	})
	if more && err != nil && from < h.NextOffset() {
		return yield(individualcommit.Run{Start: max(from, h.BaseOffset), End: h.NextOffset()})
	}
	return more
}

// present leaves out of runs the offsets below the LSO that hold no record.
func (c *Coordinator) present(ctx context.Context, tp extension.TopicPartition, runs []individualcommit.Run, lso int64) ([]individualcommit.Run, error) {
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	var found individualcommit.OffsetSet
	for _, r := range runs {
		found.Add(individualcommit.Run{Start: max(r.Start, lso), End: r.End})
		r.End = min(r.End, lso)
		for at := r.Start; at < r.End; {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			batches, err := c.opts.Log.Read(tp, (*buf)[:0], at)
			if err != nil {
				return nil, fmt.Errorf("look for records to reopen: %w", err)
			}
			if cap(batches) <= keepBufferBytes {
				*buf = batches
			}
			next := c.records(batches, at, func(held individualcommit.Run) bool {
				found.Add(individualcommit.Run{Start: held.Start, End: min(held.End, r.End)})
				return true
			})
			if next <= at {
				break // nothing comes after it
			}
			at = next
		}
	}
	return slices.Collect(found.Runs(0)), nil
}
