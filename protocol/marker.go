package protocol

import (
	"encoding/binary"
	"fmt"
)

// EndTxnMarker ends a transaction of a producer in one partition. It is the only
// record of a control batch (Kafka's EndTxnMarker).
type EndTxnMarker struct {
	ProducerID       int64
	ProducerEpoch    int16
	Commit           bool // false: abort
	CoordinatorEpoch int32
}

// The types of control records that end a transaction.
const (
	controlAbort  = 0
	controlCommit = 1
)

const (
	controlKeyLen   = 4 // version INT16, type INT16
	controlValueLen = 6 // version INT16, coordinator epoch INT32
)

// AppendEndTxnMarker appends a control batch with the marker, base offset 0.
func (b *BatchBuilder) AppendEndTxnMarker(dst []byte, m EndTxnMarker, timestampMs int64) ([]byte, error) {
	b.Reset(BatchOptions{
		Transactional: true,
		Control:       true,
		ProducerID:    m.ProducerID,
		ProducerEpoch: m.ProducerEpoch,
		BaseSequence:  -1,
	})
	var key [controlKeyLen]byte
	if m.Commit {
		binary.BigEndian.PutUint16(key[2:], controlCommit)
	}
	var value [controlValueLen]byte
	binary.BigEndian.PutUint32(value[2:], uint32(m.CoordinatorEpoch))
	b.Append(key[:], value[:], nil, timestampMs)
	return b.Build(dst)
}

// ParseEndTxnMarker reads the marker from records, the decompressed records of the
// control batch with header h. ok is false for a control batch of another kind.
func ParseEndTxnMarker(h *BatchHeader, records []byte) (m EndTxnMarker, ok bool, err error) {
	if !h.Control() {
		return m, false, nil
	}
	it := IterateRecords(h, records)
	if !it.Next() {
		if it.Err() != nil {
			return m, false, it.Err()
		}
		return m, false, nil // emptied by the cleaner
	}
	r := it.Record()
	if len(r.Key) < controlKeyLen {
		return m, false, fmt.Errorf("%w: control key of %d bytes", ErrInvalidRecord, len(r.Key))
	}
	kind := binary.BigEndian.Uint16(r.Key[2:])
	if kind != controlAbort && kind != controlCommit {
		return m, false, nil
	}
	// Later versions add fields at the end.
	if len(r.Value) < controlValueLen {
		return m, false, fmt.Errorf("%w: transaction marker of %d bytes", ErrInvalidRecord, len(r.Value))
	}
	return EndTxnMarker{
		ProducerID:       h.ProducerID,
		ProducerEpoch:    h.ProducerEpoch,
		Commit:           kind == controlCommit,
		CoordinatorEpoch: int32(binary.BigEndian.Uint32(r.Value[2:])),
	}, true, nil
}
