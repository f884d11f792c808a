package protocol

import (
	"errors"
	"fmt"
)

// ErrInvalidTimestamp marks a produced batch whose timestamps Kafka's rules refuse.
var ErrInvalidTimestamp = errors.New("invalid timestamp")

// CheckOptions is what to check of a produced batch besides what always is.
//
// Records inside a compressed batch are looked at only when asked to: decompressing
// every batch would cost the broker more than all else it does with it, and a bad one
// harms nobody but its own readers, since it is stored and delivered as it came and
// everything that the log relies on is in the header.
type CheckOptions struct {
	// RequireKeys refuses records with a null key, as compacted topics do. It looks
	// into compressed batches too.
	RequireKeys bool
	// WalkCompressed looks into compressed batches.
	WalkCompressed bool
	// MaxDecodedBytes bounds what a batch that is looked into may decompress to;
	// 0 stands for DefaultMaxDecodedBytes.
	MaxDecodedBytes int
}

// DefaultMaxDecodedBytes is the most that a batch may decompress to where nothing else
// is said.
const DefaultMaxDecodedBytes = 64 << 20

// RecordError is the fault of one record of a produced batch.
type RecordError struct {
	Index int32   // in the batch
	More  []int32 // the indexes of further records with the same fault
	Err   error   // wraps ErrInvalidRecord
}

func (e *RecordError) Error() string { return fmt.Sprintf("record %d: %v", e.Index, e.Err) }

// Unwrap is the fault.
func (e *RecordError) Unwrap() error { return e.Err }

// CheckProduced checks b, the records field that a producer sent for a partition, by
// Kafka's rules: it must be exactly one batch of magic 2 with the right checksum,
// offsets 0, 1, 2, ... and consistent producer fields, and no control batch. Records
// without compression are walked, and their batch's max timestamp is corrected in
// place, with its checksum, if it is wrong, as Kafka does.
//
// Errors wrap ErrCorruptBatch (a wrong checksum, CORRUPT_MESSAGE), ErrUnsupportedMagic,
// ErrInvalidRecord or ErrCorruptCompression (INVALID_RECORD), ErrInvalidTimestamp
// (INVALID_TIMESTAMP), ErrUnknownCodec (UNSUPPORTED_COMPRESSION_TYPE) or ErrTooLarge
// (MESSAGE_TOO_LARGE). A fault of one record is a RecordError.
func CheckProduced(b []byte, o CheckOptions) (BatchHeader, error) {
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
	switch {
	case h.Codec() == CodecNone:
		err = checkRecords(&h, b, b[BatchHeaderLen:], o.RequireKeys)
	case o.RequireKeys || o.WalkCompressed:
		err = checkCompressed(&h, b, o)
	}
	return h, err
}

// produceDecompressors are those of checkCompressed.
var produceDecompressors = newPool(func() *Decompressor { return new(Decompressor) })

// pooledDecodedBytes bounds the buffers that are kept for further batches.
const pooledDecodedBytes = 4 << 20

func checkCompressed(h *BatchHeader, b []byte, o CheckOptions) error {
	d := produceDecompressors.get()
	limit := o.MaxDecodedBytes
	if limit == 0 {
		limit = DefaultMaxDecodedBytes
	}
	records, err := d.Records(h, b, limit)
	if err == nil {
		err = checkRecords(h, b, records, o.RequireKeys)
	}
	if cap(d.buf) <= pooledDecodedBytes {
		produceDecompressors.put(d)
	}
	return err
}

// oneBatch reads the header of b, which has to be one whole batch.
func oneBatch(b []byte) (BatchHeader, error) {
	if len(b) < BatchHeaderLen {
		return BatchHeader{}, fmt.Errorf("%w: no whole record batch in %d bytes", ErrInvalidRecord, len(b))
	}
	h, err := ParseBatchHeader(b)
	if errors.Is(err, ErrCorruptBatch) {
		// Not damaged on its way, as far as one can tell, so sending it again is no use.
		err = fmt.Errorf("%w: %s", ErrInvalidRecord, err.Error())
	}
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

// checkRecords checks the records of the batch b one by one, and corrects its max
// timestamp.
func checkRecords(h *BatchHeader, b, records []byte, requireKeys bool) error {
	it := IterateRecords(h, records)
	maxTime := int64(-1)
	var keyless *RecordError
	// As many records as offsets, rising and none beyond the last: no holes.
	for it.Next() {
		r := it.Record()
		if requireKeys && r.Key == nil {
			keyless = keyless.add(int32(r.Offset))
		}
		maxTime = max(maxTime, r.TimestampMs)
	}
	if err := it.Err(); err != nil {
		if it.left == 0 { // none is at fault
			return err
		}
		return &RecordError{Index: h.NumRecords - it.left, Err: err}
	}
	if keyless != nil {
		return keyless
	}
	if maxTime != h.MaxTimestamp {
		setMaxTimestamp(h, b, maxTime)
	}
	return nil
}

// add notes that a record has no key.
func (e *RecordError) add(index int32) *RecordError {
	if e == nil {
		return &RecordError{Index: index, Err: errNoKey}
	}
	e.More = append(e.More, index)
	return e
}

var errNoKey = fmt.Errorf("%w: it has no key, and a compacted topic needs one", ErrInvalidRecord)
