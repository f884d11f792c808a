package ledgers

import (
	"sync"
	"time"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"go.uber.org/zap"
)

// maxDecodedBytes bounds a batch that is decompressed to find holes in it.
const maxDecodedBytes = 64 << 20

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
// the LSO, without keeping others from the shard. It tells whether any was moved.
func (s *shard) settle(ids []individualcommit.ID) (moved bool) {
	if len(ids) == 0 {
		return false
	}
	buf := readBuffers.Get().(*[]byte)
	defer readBuffers.Put(buf)
	for _, id := range ids {
		for s.settleOnce(id, buf) {
			moved = true
		}
	}
	return moved
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
	end, to := recordAt(batches, at)
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
	if e.Ledger.Stable() < at || !e.Ledger.Close(end) {
		return false
	}
	l.moved[id] = struct{}{}
	return true
}

// recordAt is the first offset at or above from that holds a record, by the batches read
// from there on, or where they end; and up to where all offsets from there hold one.
func recordAt(batches []byte, from int64) (at, solidTo int64) {
	at = from
	for len(batches) > 0 {
		h, err := protocol.ParseBatchHeader(batches)
		if err != nil || h.Size() > len(batches) {
			break
		}
		batch := batches[:h.Size()]
		batches = batches[h.Size():]
		if h.NextOffset() <= at {
			continue
		}
		at = max(at, h.BaseOffset)
		if h.Control() {
			at = h.NextOffset()
			continue
		}
		if int64(h.NumRecords) == int64(h.LastOffsetDelta)+1 {
			return at, h.NextOffset()
		}
		if at = nextRecord(&h, batch, at); at < h.NextOffset() {
			return at, at + 1
		}
	}
	return at, at
}

// nextRecord is the offset of the first record at or above from in a batch that reaches
// there, one past the batch if it has none. In a batch that cannot be decoded each offset
// counts as a record.
func nextRecord(h *protocol.BatchHeader, batch []byte, from int64) int64 {
	var d protocol.Decompressor
	records, err := d.Records(h, batch, maxDecodedBytes)
	if err != nil {
		return from
	}
	it := protocol.IterateRecords(h, records)
	for it.Next() {
		if r := it.Record(); r.Offset >= from {
			return r.Offset
		}
	}
	if it.Err() != nil {
		return from
	}
	return h.NextOffset()
}
