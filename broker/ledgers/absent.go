package ledgers

import (
	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
	"go.uber.org/zap"
)

// maxDecodedBytes bounds a batch that is decompressed to find holes in it.
const maxDecodedBytes = 64 << 20

// closeAbsent moves the stable offset over offsets that hold no record: control
// markers and what compaction took. It looks at the log only where the stable offset is,
// and not above the LSO.
func (l *loaded) closeAbsent(e *individualcommit.Entry, bounds extension.Bounds) {
	for {
		at := e.Ledger.Stable()
		if at < bounds.Start || at >= bounds.LSO {
			return
		}
		batches, err := l.s.c.opts.Log.Read(partitionOf(e.ID), l.read[:0], at)
		if err != nil {
			l.s.c.opts.Logger.Warn("cannot look for offsets without a record", zap.Stringer("ledger", e.ID), zap.Int64("offset", at), zap.Error(err))
			return
		}
		l.read = batches
		end := min(absentEnd(batches, at), bounds.LSO)
		if end <= at || !e.Ledger.Close(end) {
			return
		}
	}
}

// absentEnd is one past the run of offsets without a record that begins at from, by the
// batches read from there on; from itself if it holds one.
func absentEnd(batches []byte, from int64) int64 {
	at := from
	for len(batches) > 0 {
		h, err := protocol.ParseBatchHeader(batches)
		if err != nil || h.Size() > len(batches) {
			return at
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
		if next := nextRecord(&h, batch, at); next < h.NextOffset() {
			return next
		}
		at = h.NextOffset()
	}
	return at
}

// nextRecord is the offset of the first record at or above from in a batch that reaches
// there, one past the batch if it has none. In a batch that cannot be decoded each offset
// counts as a record.
func nextRecord(h *protocol.BatchHeader, batch []byte, from int64) int64 {
	if int64(h.NumRecords) == int64(h.LastOffsetDelta)+1 {
		return from
	}
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
