package protocol

import (
	"errors"
	"fmt"
)

// ErrInvalidRecord marks a batch whose framing and checksum are right but whose
// content Kafka's rules refuse; Kafka's error code for it is INVALID_RECORD.
var ErrInvalidRecord = errors.New("invalid record")

// Record is one record of a decoded batch. Its slices alias the decoded bytes.
type Record struct {
	Offset      int64
	TimestampMs int64
	Key         []byte // nil: null
	Value       []byte // nil: null
	Headers     []byte // as on the wire: the count, then the headers
	Raw         []byte // the whole record, its length included
}

// Records iterates over the records of one batch without allocation. It checks
// everything that Kafka's format fixes: that lengths, counts and headers add up to
// exactly the bytes given, and that offset deltas rise and stay within the batch
// (compacted and filtered batches have holes).
type Records struct {
	rest      []byte
	left      int32
	lastDelta int32
	maxDelta  int32
	base      int64
	firstTime int64
	allTime   int64 // the time of each record if appended
	appended  bool  // the batch has log append time
	rec       Record
	err       error
}

// IterateRecords starts an iteration over records, the decompressed bytes that follow
// the header h of a batch. The records it yields alias these bytes.
func IterateRecords(h *BatchHeader, records []byte) Records {
	return Records{
		rest:      records,
		left:      h.NumRecords,
		lastDelta: -1,
		maxDelta:  h.LastOffsetDelta,
		base:      h.BaseOffset,
		firstTime: h.FirstTimestamp,
		allTime:   h.MaxTimestamp,
		appended:  h.LogAppendTime(),
	}
}

// Next moves to the next record. It returns false at the end and at the first fault,
// which Err tells apart.
func (r *Records) Next() bool {
	if r.err != nil {
		return false
	}
	if r.left == 0 {
		if len(r.rest) != 0 {
			r.err = fmt.Errorf("%w: %d bytes after the last record", ErrInvalidRecord, len(r.rest))
		}
		return false
	}
	size, start := varint(r.rest, 0)
	if start < 0 || size < 0 || int(size) > len(r.rest)-start {
		r.err = fmt.Errorf("%w: %d more announced in the last %d bytes, the next with a length of %d",
			ErrInvalidRecord, r.left, len(r.rest), size)
		return false
	}
	end := start + int(size)
	delta, err := r.parse(r.rest[start:end:end])
	if err != nil {
		r.err = err
		return false
	}
	if delta <= r.lastDelta || delta > r.maxDelta {
		r.err = fmt.Errorf("%w: offset delta %d after %d in a batch up to %d",
			ErrInvalidRecord, delta, r.lastDelta, r.maxDelta)
		return false
	}
	r.rec.Raw = r.rest[:end:end]
	r.rest = r.rest[end:]
	r.lastDelta = delta
	r.left--
	return true
}

// Record is the record that Next moved to. It is overwritten by the following Next.
func (r *Records) Record() *Record { return &r.rec }

// Err is the fault that ended the iteration, nil at a proper end. It wraps
// ErrInvalidRecord.
func (r *Records) Err() error { return r.err }

// parse fills the current record from b, which is what follows a record's length, and
// returns its offset delta.
func (r *Records) parse(b []byte) (delta int32, err error) {
	i := 1 // the attributes of a record are unused in magic 2
	timeDelta, i := varlong(b, i)
	if i < 0 {
		return 0, errRecordField("timestamp delta")
	}
	delta, i = varint(b, i)
	if i < 0 {
		return 0, errRecordField("offset delta")
	}
	r.rec.Key, i = nullableBytes(b, i)
	if i < 0 {
		return 0, errRecordField("key")
	}
	r.rec.Value, i = nullableBytes(b, i)
	if i < 0 {
		return 0, errRecordField("value")
	}
	if i != len(b)-1 || b[i] != 0 { // the common case has no headers
		if err := checkHeaders(b[i:]); err != nil {
			return 0, err
		}
	}
	r.rec.Headers = b[i:]
	r.rec.Offset = r.base + int64(delta)
	r.rec.TimestampMs = r.firstTime + timeDelta
	if r.appended {
		r.rec.TimestampMs = r.allTime
	}
	return delta, nil
}

func errRecordField(name string) error {
	return fmt.Errorf("%w: its %s does not fit in it", ErrInvalidRecord, name)
}

// nullableBytes reads bytes with a varint length at b[i], -1 for null. The index
// after them is below 0 if they do not fit.
func nullableBytes(b []byte, i int) ([]byte, int) {
	n, i := varint(b, i)
	if i < 0 || n < -1 || int(n) > len(b)-i {
		return nil, -1
	}
	if n == -1 {
		return nil, i
	}
	end := i + int(n)
	return b[i:end:end], end
}
