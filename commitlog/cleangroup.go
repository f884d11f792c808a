package commitlog

import (
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2/vfs"

	"github.com/lacunamq/lacuna/protocol"
)

// cleanBatch is a batch being gone through.
type cleanBatch struct {
	header  *protocol.BatchHeader
	bytes   []byte // whole
	records []byte // decompressed
	opaque  bool   // the records cannot be decoded, and stay as they are
	marker  *marker
}

func (b *cleanBatch) iterate() protocol.Records {
	if b.opaque || b.header.NumRecords == 0 {
		return protocol.Records{}
	}
	return protocol.IterateRecords(b.header, b.records)
}

// batch reads and decodes the batch at the reader. A damaged one is an error, so that
// no checksum is renewed over it.
func (p *cleanPass) batch(r *batchReader, h *protocol.BatchHeader) (cleanBatch, error) {
	b := cleanBatch{header: h}
	var err error
	if b.bytes, err = r.body(h); err != nil {
		return b, err
	}
	if err := protocol.VerifyCRC(h, b.bytes); err != nil {
		return b, err
	}
	if h.NumRecords == 0 {
		return b, nil
	}
	if b.records, err = p.decoder.Records(h, b.bytes, p.log.opts.Decoding.MaxBytes()); err != nil {
		b.opaque = true
		return b, nil
	}
	e := entry{h: *h, bytes: b.bytes}
	if h.Control() && e.parseMarker() == nil && e.isMarker {
		b.marker = &e.marker
	}
	it := b.iterate()
	for it.Next() {
	}
	b.opaque = it.Err() != nil
	return b, nil
}

// segmentWriter writes the replacement of a group.
type segmentWriter struct {
	seg     *segment
	index   segmentIndex
	file    vfs.File
	buf     []byte // not written yet
	written int64
	group   []*segment
	next    int64 // of the group
	builder protocol.BatchBuilder
}

const cleanBufferBytes = 256 << 10

// cleanGroup replaces the segments of a group by one. It returns the bytes of that.
func (p *cleanPass) cleanGroup(group []*segment) (int64, error) {
	w, err := p.beginGroup(group)
	if err != nil {
		return 0, err
	}
	err = p.writeGroup(w)
	if err == nil {
		err = p.log.replaceGroup(w, p.txns.kept)
	}
	if err != nil {
		_ = w.file.Close()
		if !errors.Is(err, errSwapDecided) {
			_ = p.log.disk.remove(w.seg.name(cleanedExt))
		}
		return 0, err
	}
	return w.seg.size.Load(), nil
}

func (p *cleanPass) beginGroup(group []*segment) (*segmentWriter, error) {
	first, last := group[0], group[len(group)-1]
	if first == p.list[0] {
		if err := p.resetTxns(); err != nil {
			return nil, err
		}
	}
	p.txns.kept = nil
	w := &segmentWriter{seg: newSegment(&p.log.disk, first.base), group: group, next: last.next.Load()}
	w.seg.generation = first.generation + 1
	w.seg.stats.compacted = true
	f, err := p.log.disk.create(w.seg.name(cleanedExt))
	if err != nil {
		return nil, err
	}
	w.file = f
	return w, nil
}

// writeGroup writes what stays of the group, durably.
func (p *cleanPass) writeGroup(w *segmentWriter) error {
	for _, s := range w.group {
		err := p.log.walk(s, 0, s.base, func(r *batchReader, h *protocol.BatchHeader) (bool, error) {
			if p.log.stopping.Load() {
				return false, errCleanAborted
			}
			b, err := p.batch(r, h)
			if err != nil {
				return false, err
			}
			return true, p.cleanInto(w, &b)
		})
		if err != nil {
			return err
		}
	}
	if err := w.flush(); err != nil {
		return err
	}
	return p.log.disk.syncData(w.file, w.seg.name(cleanedExt))
}

// cleanInto writes what stays of a batch.
func (p *cleanPass) cleanInto(w *segmentWriter, b *cleanBatch) error {
	h := b.header
	useless := p.txns.read(h, b.marker)
	horizon, marked := h.DeleteHorizon()
	expired := marked && horizon <= p.nowMs
	drop := useless && (!h.Control() || expired)
	if b.opaque && !drop {
		return w.add(b.bytes, p.config.IndexIntervalBytes)
	}
	w.builder.RebuildCompacted(h, -1)
	tombstones := false
	for it := b.iterate(); !drop && it.Next(); {
		rec := it.Record()
		if h.Control() || p.keeps(rec, expired) {
			w.builder.Keep(rec)
			tombstones = tombstones || rec.Value == nil && !h.Control()
		}
	}
	kept := int32(w.builder.Count())
	mark := !marked && (tombstones || useless && h.Control())
	switch {
	case kept == 0 && !p.mustStay(h, w):
		return nil
	case kept == h.NumRecords && !mark:
		return w.add(b.bytes, p.config.IndexIntervalBytes)
	case mark && kept > 0:
		p.rekeep(w, b, expired)
	}
	rebuilt, err := w.builder.Build(nil)
	if err != nil {
		return err
	}
	return w.add(rebuilt, p.config.IndexIntervalBytes)
}

// rekeep collects the records that stay once more, now with the time from which the
// batch's tombstones, or the marker, may go.
func (p *cleanPass) rekeep(w *segmentWriter, b *cleanBatch, expired bool) {
	w.builder.RebuildCompacted(b.header, p.nowMs+p.config.DeleteRetentionMs)
	for it := b.iterate(); it.Next(); {
		if rec := it.Record(); b.header.Control() || p.keeps(rec, expired) {
			w.builder.Keep(rec)
		}
	}
}

// keeps tells whether a record stays. expired tells that the tombstones of its batch
// have stayed long enough.
func (p *cleanPass) keeps(rec *protocol.Record, expired bool) bool {
	if rec.Offset >= p.mappedEnd {
		return true
	}
	if rec.Key == nil || rec.Offset < p.offsets.get(rec.Key) {
		return false
	}
	return rec.Value != nil || !expired
}

// mustStay tells whether a batch stays even without records: the last batch of a
// producer holds its sequence and epoch, the last of a segment tells where it ends.
func (p *cleanPass) mustStay(h *protocol.BatchHeader, w *segmentWriter) bool {
	if h.NextOffset() >= w.next {
		return true
	}
	last, ok := p.last[h.ProducerID]
	if h.ProducerID < 0 || !ok {
		return false
	}
	if last.offset >= 0 {
		return h.LastOffset() == last.offset
	}
	return h.Control() && h.ProducerEpoch == last.epoch
}

// add appends a whole batch to the new segment.
func (w *segmentWriter) add(batch []byte, interval int32) error {
	h, err := protocol.ParseBatchHeader(batch)
	if err != nil {
		return err
	}
	s := w.seg
	w.index.note(h.BaseOffset-s.base, s.size.Load(), s.stats.maxTimestamp, interval)
	s.stats.note(&h)
	s.size.Add(int64(len(batch)))
	s.next.Store(h.NextOffset())
	if s.size.Load() > maxSegmentBytes {
		return fmt.Errorf("compacted segment %d is over %d bytes", s.base, int64(maxSegmentBytes))
	}
	w.buf = append(w.buf, batch...)
	if len(w.buf) < cleanBufferBytes {
		return nil
	}
	return w.flush()
}

func (w *segmentWriter) flush() error {
	if len(w.buf) == 0 {
		return nil
	}
	n := int64(len(w.buf))
	if _, err := w.file.WriteAt(w.buf, w.written); err != nil {
		return fmt.Errorf("write %s: %w", w.seg.disk.path(w.seg.name(cleanedExt)), err)
	}
	w.written += n
	w.buf = w.buf[:0]
	return nil
}
