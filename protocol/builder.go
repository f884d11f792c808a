package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// ErrNoRecords is Build's answer to a new batch without a record.
var ErrNoRecords = errors.New("a batch without records")

// BatchOptions is what a new batch has besides its records.
type BatchOptions struct {
	BaseOffset    int64
	LeaderEpoch   int32
	Codec         Codec
	Transactional bool
	Control       bool
	ProducerID    int64 // -1: none
	ProducerEpoch int16 // -1: none
	BaseSequence  int32 // -1: none
}

// PlainBatch is the options of a batch that no idempotent producer wrote.
func PlainBatch(baseOffset int64) BatchOptions {
	return BatchOptions{BaseOffset: baseOffset, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
}

// BatchBuilder builds record batches, one after the other: Reset or Rebuild, then
// records, then Build. It keeps its buffer, so that in steady state only the growth of
// the caller's slice allocates.
type BatchBuilder struct {
	h       BatchHeader
	records []byte
	mode    buildMode
	started bool // FirstTimestamp is fixed
	recode  bool // kept records get new deltas, since the base of their times differs
}

// buildMode tells where the extent and the times of a batch come from.
type buildMode int8

const (
	buildNew       buildMode = iota // from the records
	buildFiltered                   // from the stored batch
	buildCompacted                  // its offsets from the stored batch, its times from the records
)

// Reset begins a new batch.
func (b *BatchBuilder) Reset(o BatchOptions) {
	attrs := int16(o.Codec)
	if o.Transactional {
		attrs |= attrTransactional
	}
	if o.Control {
		attrs |= attrControl
	}
	b.h = BatchHeader{
		BaseOffset:      o.BaseOffset,
		LeaderEpoch:     o.LeaderEpoch,
		Attributes:      attrs,
		LastOffsetDelta: -1,
		FirstTimestamp:  -1,
		MaxTimestamp:    -1,
		ProducerID:      o.ProducerID,
		ProducerEpoch:   o.ProducerEpoch,
		BaseSequence:    o.BaseSequence,
	}
	b.records = b.records[:0]
	b.mode, b.started, b.recode = buildNew, false, true
}

// Rebuild begins a batch that stands in for the stored batch h with some of its
// records, which are added with Keep. It has the same offsets, timestamps, producer
// fields, flags and codec, so that offsets, transactions and idempotence read as
// before. It may end up without records.
func (b *BatchBuilder) Rebuild(h *BatchHeader) {
	b.h = *h
	b.h.NumRecords = 0
	b.records = b.records[:0]
	b.mode, b.started, b.recode = buildFiltered, true, false
}

// RebuildCompacted is Rebuild for the log cleaner: the max timestamp becomes that of
// the records kept, and with deleteHorizonMs >= 0 the batch carries that time, from
// which on its tombstones may go (KIP-534), in place of the first timestamp.
func (b *BatchBuilder) RebuildCompacted(h *BatchHeader, deleteHorizonMs int64) {
	b.Rebuild(h)
	b.mode = buildCompacted
	if deleteHorizonMs >= 0 {
		b.recode = deleteHorizonMs != h.FirstTimestamp
		b.h.FirstTimestamp = deleteHorizonMs
		b.h.Attributes |= attrDeleteHorizon
	}
}

// Append adds a record to a new batch, at the offset after the last one. A nil key or
// value is null, timestampMs may be -1 for none.
func (b *BatchBuilder) Append(key, value []byte, headers []Header, timestampMs int64) {
	b.AppendAt(b.h.LastOffsetDelta+1, key, value, headers, timestampMs)
}

// AppendAt is Append for a chosen offset, base + offsetDelta, above the last one.
func (b *BatchBuilder) AppendAt(offsetDelta int32, key, value []byte, headers []Header, timestampMs int64) {
	timeDelta := b.begin(offsetDelta, timestampMs)
	b.open(timeDelta, offsetDelta, key, value, headersLen(headers))
	b.records = appendHeaders(b.records, headers)
}

// Keep adds a record of a decoded batch, with its offset, timestamp, key, value and
// headers.
func (b *BatchBuilder) Keep(r *Record) {
	offsetDelta := int32(r.Offset - b.h.BaseOffset)
	timeDelta := b.begin(offsetDelta, r.TimestampMs)
	if !b.recode {
		b.records = append(b.records, r.Raw...)
		return
	}
	b.open(timeDelta, offsetDelta, r.Key, r.Value, len(r.Headers))
	b.records = append(b.records, r.Headers...)
}

// Count is how many records the batch has so far.
func (b *BatchBuilder) Count() int { return int(b.h.NumRecords) }

// Size is the length of the batch so far, without compression, in bytes.
func (b *BatchBuilder) Size() int { return BatchHeaderLen + len(b.records) }

// begin notes a record in the header and returns its timestamp delta.
func (b *BatchBuilder) begin(offsetDelta int32, timestampMs int64) (timeDelta int64) {
	if !b.started {
		b.h.FirstTimestamp, b.started = timestampMs, true
	}
	first := b.h.NumRecords == 0
	b.h.NumRecords++
	if b.mode == buildNew {
		b.h.LastOffsetDelta = offsetDelta
	}
	if b.mode != buildFiltered && (first || timestampMs > b.h.MaxTimestamp) {
		b.h.MaxTimestamp = timestampMs
	}
	return timestampMs - b.h.FirstTimestamp
}

// open appends a record up to its headers, which are headersLen bytes.
func (b *BatchBuilder) open(timeDelta int64, offsetDelta int32, key, value []byte, headersLen int) {
	size := 1 + varintLen(timeDelta) + varintLen(int64(offsetDelta)) +
		nullableLen(key) + nullableLen(value) + headersLen
	dst := slices.Grow(b.records, size+binary.MaxVarintLen32)
	dst = binary.AppendVarint(dst, int64(size))
	dst = append(dst, 0) // attributes, unused
	dst = binary.AppendVarint(dst, timeDelta)
	dst = binary.AppendVarint(dst, int64(offsetDelta))
	dst = appendNullable(dst, key)
	b.records = appendNullable(dst, value)
}

// Build appends the finished batch to dst. The builder keeps its content until the
// next Reset or Rebuild.
func (b *BatchBuilder) Build(dst []byte) ([]byte, error) {
	if b.h.NumRecords == 0 && b.mode == buildNew {
		return nil, ErrNoRecords
	}
	start := len(dst)
	dst = slices.Grow(dst, b.Size())[:start+BatchHeaderLen]
	if len(b.records) == 0 {
		// No bytes at all and no codec, as Kafka's cleaner leaves: clients would fail to
		// decompress nothing.
		b.h.Attributes &^= attrCodecMask
	}
	dst, err := CompressRecords(dst, b.h.Codec(), b.records)
	if err != nil {
		return nil, fmt.Errorf("build batch at offset %d: %w", b.h.BaseOffset, err)
	}
	size := len(dst) - start
	if size > math.MaxInt32 || len(b.records) > math.MaxInt32 {
		return nil, fmt.Errorf("build batch at offset %d: %w: %d bytes", b.h.BaseOffset, ErrTooLarge, size)
	}
	b.h.Length = int32(size - batchPrefixLen)
	b.h.put(dst[start:])
	RenewCRC(dst[start:])
	return dst, nil
}
