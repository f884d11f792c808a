package protocol

import (
	"errors"
	"fmt"
)

// ErrInvalidTimestamp marks a produced batch whose timestamps Kafka's rules refuse.
var ErrInvalidTimestamp = errors.New("invalid timestamp")

// ProduceCheck is what to check of a produced batch besides what CheckProduced always
// does.
//
// Records inside a compressed batch are looked at only when asked to: decompressing
// every batch costs the broker more than all else it does with it, and harms nobody
// but its own readers if it is bad, since the batch is stored and delivered as it came
// and everything the log relies on is in the header.
type ProduceCheck struct {
	// RequireKeys refuses records with a null key, as compacted topics do. It looks
	// into compressed batches too.
	RequireKeys bool
	// WalkCompressed looks into compressed batches.
	WalkCompressed bool
	// MaxDecodedBytes bounds what a batch that is looked into may decompress to.
	MaxDecodedBytes int
	// Decompressor is used to look into compressed batches.
	Decompressor *Decompressor
}

// CheckProduced checks b, the records field that a producer sent for a partition, by
// Kafka's rules: it must be exactly one batch of magic 2 with the right checksum,
// offsets 0, 1, 2, ... and consistent producer fields, no control batch. Records
// without compression are walked, and their batch's max timestamp is corrected in
// place, with its checksum, if it is wrong, as Kafka does.
//
// Errors wrap ErrCorruptBatch (Kafka's CORRUPT_MESSAGE), ErrUnsupportedMagic and
// ErrInvalidRecord (INVALID_RECORD), ErrInvalidTimestamp (INVALID_TIMESTAMP) or
// ErrUnknownCodec (UNSUPPORTED_COMPRESSION_TYPE).
func CheckProduced(b []byte) (BatchHeader, error) {
	var c ProduceCheck
	return c.Check(b)
}

// Check is CheckProduced with further checks, whose errors may wrap ErrTooLarge and
// ErrCorruptCompression too (MESSAGE_TOO_LARGE, INVALID_RECORD).
func (c *ProduceCheck) Check(b []byte) (BatchHeader, error) {
	h, err := oneBatch(b)
	if err != nil {
		return h, err
	}
	if err := VerifyCRC(&h, b); err != nil {
		return h, err
	}
	if err := checkProducedHeader(&h); err != nil {
		return h, err
	}
	records := b[BatchHeaderLen:]
	if h.Codec() != CodecNone {
		if !c.RequireKeys && !c.WalkCompressed {
			return h, nil
		}
		if records, err = c.Decompressor.Records(&h, b, c.MaxDecodedBytes); err != nil {
			return h, err
		}
	}
	maxTime, err := c.walk(&h, records)
	if err == nil && maxTime != h.MaxTimestamp {
		setMaxTimestamp(&h, b, maxTime)
	}
	return h, err
}

// oneBatch reads the header of b, which has to be one whole batch.
func oneBatch(b []byte) (BatchHeader, error) {
	if len(b) < BatchHeaderLen {
		return BatchHeader{}, fmt.Errorf("%w: no whole record batch in %d bytes", ErrInvalidRecord, len(b))
	}
	h, err := ParseBatchHeader(b)
	if err != nil {
		return h, err
	}
	if h.Size() != len(b) {
		return h, fmt.Errorf("%w: a batch of %d bytes in %d bytes, it has to be exactly one", ErrInvalidRecord, h.Size(), len(b))
	}
	return h, nil
}

// checkProducedHeader applies Kafka's rules for what a client may write.
func checkProducedHeader(h *BatchHeader) error {
	switch {
	case h.Codec() > CodecZstd:
		return fmt.Errorf("%w: %d", ErrUnknownCodec, h.Codec())
	case h.BaseOffset != 0:
		return fmt.Errorf("%w: base offset %d, a producer's is 0", ErrInvalidRecord, h.BaseOffset)
	case h.NumRecords == 0 || int64(h.NumRecords) != int64(h.LastOffsetDelta)+1:
		return fmt.Errorf("%w: %d records, last offset delta %d", ErrInvalidRecord, h.NumRecords, h.LastOffsetDelta)
	case h.Control():
		return fmt.Errorf("%w: clients may not write control batches", ErrInvalidRecord)
	case h.Attributes&attrDeleteHorizon != 0:
		return fmt.Errorf("%w: clients may not set a delete horizon", ErrInvalidRecord)
	case h.LogAppendTime():
		return fmt.Errorf("%w: clients may not set the log append time", ErrInvalidTimestamp)
	case h.ProducerID < 0 && h.Transactional():
		return fmt.Errorf("%w: transactional without a producer id", ErrInvalidRecord)
	case h.ProducerID >= 0 && (h.BaseSequence < 0 || h.ProducerEpoch < 0):
		return fmt.Errorf("%w: producer %d with epoch %d and sequence %d",
			ErrInvalidRecord, h.ProducerID, h.ProducerEpoch, h.BaseSequence)
	}
	return nil
}

// walk checks the records one by one and returns the greatest timestamp.
func (c *ProduceCheck) walk(h *BatchHeader, records []byte) (maxTime int64, err error) {
	it := IterateRecords(h, records)
	maxTime = -1
	// As many records as offsets, rising and none beyond the last: no holes.
	for it.Next() {
		r := it.Record()
		if c.RequireKeys && r.Key == nil {
			return 0, fmt.Errorf("%w: record %d has no key, a compacted topic needs one", ErrInvalidRecord, r.Offset)
		}
		maxTime = max(maxTime, r.TimestampMs)
	}
	return maxTime, it.Err()
}
