package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
)

// BatchHeaderLen is the length in bytes of a magic 2 batch before its records.
const BatchHeaderLen = 61

// batchPrefixLen is what precedes the bytes that a batch's Length field counts:
// the base offset and the length itself.
const batchPrefixLen = 12

// crcStart is the first byte that the CRC of a batch covers, the attributes.
const crcStart = 21

// Codec is a compression codec, as it stands in the low three bits of a batch's
// attributes.
type Codec int8

// The codecs of magic 2.
const (
	CodecNone   Codec = 0
	CodecGzip   Codec = 1
	CodecSnappy Codec = 2
	CodecLz4    Codec = 3
	CodecZstd   Codec = 4
)

const (
	attrCodecMask     = 0x07
	attrLogAppendTime = 0x08
	attrTransactional = 0x10
	attrControl       = 0x20
	attrDeleteHorizon = 0x40
)

// ErrCorruptBatch marks bytes that are not one whole magic 2 record batch, or whose
// checksum is wrong.
var ErrCorruptBatch = errors.New("corrupt record batch")

// ErrUnsupportedMagic marks a batch of a magic other than 2.
var ErrUnsupportedMagic = errors.New("unsupported record batch magic")

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// BatchHeader is the fixed part of a magic 2 record batch (the protocol guide's
// RecordBatch).
type BatchHeader struct {
	BaseOffset      int64
	Length          int32 // bytes after this field
	LeaderEpoch     int32
	CRC             uint32
	Attributes      int16
	LastOffsetDelta int32
	FirstTimestamp  int64 // ms
	MaxTimestamp    int64 // ms
	ProducerID      int64
	ProducerEpoch   int16
	BaseSequence    int32
	NumRecords      int32
}

// Size is the length of the whole batch in bytes, header included.
func (h *BatchHeader) Size() int { return batchPrefixLen + int(h.Length) }

// LastOffset is the offset of the last record that the batch was written with.
func (h *BatchHeader) LastOffset() int64 { return h.BaseOffset + int64(h.LastOffsetDelta) }

// NextOffset is one past LastOffset.
func (h *BatchHeader) NextOffset() int64 { return h.LastOffset() + 1 }

// Codec is the compression of the records.
func (h *BatchHeader) Codec() Codec { return Codec(h.Attributes & attrCodecMask) }

// LogAppendTime tells that every record has the timestamp MaxTimestamp.
func (h *BatchHeader) LogAppendTime() bool { return h.Attributes&attrLogAppendTime != 0 }

// Transactional tells that the batch belongs to a transaction.
func (h *BatchHeader) Transactional() bool { return h.Attributes&attrTransactional != 0 }

// Control tells that the batch holds a control record, such as a transaction marker.
func (h *BatchHeader) Control() bool { return h.Attributes&attrControl != 0 }

// DeleteHorizon is the time in ms from which on the cleaner may drop the batch's
// tombstones, if it set one (KIP-534). It takes the place of FirstTimestamp, and the
// timestamps of the records are relative to it.
func (h *BatchHeader) DeleteHorizon() (ms int64, ok bool) {
	return h.FirstTimestamp, h.Attributes&attrDeleteHorizon != 0
}

// put writes the header, with the checksum it has, to the start of b.
func (h *BatchHeader) put(b []byte) {
	_ = b[BatchHeaderLen-1]
	binary.BigEndian.PutUint64(b, uint64(h.BaseOffset))
	binary.BigEndian.PutUint32(b[8:], uint32(h.Length))
	binary.BigEndian.PutUint32(b[12:], uint32(h.LeaderEpoch))
	b[16] = 2 // the magic
	binary.BigEndian.PutUint32(b[17:], h.CRC)
	binary.BigEndian.PutUint16(b[21:], uint16(h.Attributes))
	binary.BigEndian.PutUint32(b[23:], uint32(h.LastOffsetDelta))
	binary.BigEndian.PutUint64(b[27:], uint64(h.FirstTimestamp))
	binary.BigEndian.PutUint64(b[35:], uint64(h.MaxTimestamp))
	binary.BigEndian.PutUint64(b[43:], uint64(h.ProducerID))
	binary.BigEndian.PutUint16(b[51:], uint16(h.ProducerEpoch))
	binary.BigEndian.PutUint32(b[53:], uint32(h.BaseSequence))
	binary.BigEndian.PutUint32(b[57:], uint32(h.NumRecords))
}

// ParseBatchHeader reads the header at the start of b, which may be followed by less
// or more than the batch. It checks the magic and that the length can hold a header,
// not the checksum.
func ParseBatchHeader(b []byte) (BatchHeader, error) {
	var h BatchHeader
	if len(b) < BatchHeaderLen {
		return h, fmt.Errorf("%w: %d bytes, a header has %d", ErrCorruptBatch, len(b), BatchHeaderLen)
	}
	if magic := b[16]; magic != 2 {
		return h, fmt.Errorf("%w: %d", ErrUnsupportedMagic, magic)
	}
	h = BatchHeader{
		BaseOffset:      int64(binary.BigEndian.Uint64(b)),
		Length:          int32(binary.BigEndian.Uint32(b[8:])),
		LeaderEpoch:     int32(binary.BigEndian.Uint32(b[12:])),
		CRC:             binary.BigEndian.Uint32(b[17:]),
		Attributes:      int16(binary.BigEndian.Uint16(b[21:])),
		LastOffsetDelta: int32(binary.BigEndian.Uint32(b[23:])),
		FirstTimestamp:  int64(binary.BigEndian.Uint64(b[27:])),
		MaxTimestamp:    int64(binary.BigEndian.Uint64(b[35:])),
		ProducerID:      int64(binary.BigEndian.Uint64(b[43:])),
		ProducerEpoch:   int16(binary.BigEndian.Uint16(b[51:])),
		BaseSequence:    int32(binary.BigEndian.Uint32(b[53:])),
		NumRecords:      int32(binary.BigEndian.Uint32(b[57:])),
	}
	if h.Length < BatchHeaderLen-batchPrefixLen {
		return h, fmt.Errorf("%w: length %d", ErrCorruptBatch, h.Length)
	}
	if h.LastOffsetDelta < 0 || h.NumRecords < 0 {
		return h, fmt.Errorf("%w: last offset delta %d, %d records", ErrCorruptBatch, h.LastOffsetDelta, h.NumRecords)
	}
	return h, nil
}

// VerifyCRC checks the checksum of batch, which is exactly one batch with header h.
func VerifyCRC(h *BatchHeader, batch []byte) error {
	if len(batch) != h.Size() {
		return fmt.Errorf("%w: %d bytes, the header says %d", ErrCorruptBatch, len(batch), h.Size())
	}
	if sum := crc32.Checksum(batch[crcStart:], castagnoli); sum != h.CRC {
		return fmt.Errorf("%w: checksum %08x, the header says %08x", ErrCorruptBatch, sum, h.CRC)
	}
	return nil
}

// SetBaseOffset writes the base offset, which the checksum does not cover.
func SetBaseOffset(batch []byte, offset int64) {
	binary.BigEndian.PutUint64(batch, uint64(offset))
}

// SetLeaderEpoch writes the leader epoch, which the checksum does not cover.
func SetLeaderEpoch(batch []byte, epoch int32) {
	binary.BigEndian.PutUint32(batch[12:], uint32(epoch))
}

// SetLogAppendTime stamps the batch with the broker's time in ms and renews the
// checksum.
func SetLogAppendTime(batch []byte, ms int64) {
	attrs := binary.BigEndian.Uint16(batch[21:]) | attrLogAppendTime
	binary.BigEndian.PutUint16(batch[21:], attrs)
	binary.BigEndian.PutUint64(batch[35:], uint64(ms))
	RenewCRC(batch)
}

// setMaxTimestamp changes the max timestamp of the batch with header h and renews the
// checksum.
func setMaxTimestamp(h *BatchHeader, batch []byte, ms int64) {
	binary.BigEndian.PutUint64(batch[35:], uint64(ms))
	RenewCRC(batch)
	h.MaxTimestamp = ms
	h.CRC = binary.BigEndian.Uint32(batch[17:])
}

// SetRecords corrects the header of batch, which is exactly one batch whose records were
// changed to count others that fit its header's offsets and timestamps: its length, count
// and checksum.
func SetRecords(batch []byte, count int) {
	binary.BigEndian.PutUint32(batch[8:], uint32(len(batch)-batchPrefixLen))
	binary.BigEndian.PutUint32(batch[57:], uint32(count))
	RenewCRC(batch)
}

// RenewCRC computes the checksum of batch, which is exactly one batch, and writes it.
func RenewCRC(batch []byte) {
	binary.BigEndian.PutUint32(batch[17:], crc32.Checksum(batch[crcStart:], castagnoli))
}
