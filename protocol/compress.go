package protocol

import (
	"errors"
	"fmt"
	"slices"

	"github.com/klauspost/compress/s2"
)

// ErrTooLarge marks records that would decompress to more than the caller allows.
var ErrTooLarge = errors.New("decompressed records too large")

// ErrUnknownCodec marks a compression codec that magic 2 does not have.
var ErrUnknownCodec = errors.New("unknown compression codec")

// ErrCorruptCompression marks records that their codec cannot decode.
var ErrCorruptCompression = errors.New("corrupt compressed records")

// String is the codec's name in Kafka's compression.type.
func (c Codec) String() string {
	switch c {
	case CodecNone:
		return "none"
	case CodecGzip:
		return "gzip"
	case CodecSnappy:
		return "snappy"
	case CodecLz4:
		return "lz4"
	case CodecZstd:
		return "zstd"
	}
	return fmt.Sprintf("codec %d", int8(c))
}

// ParseCodec is the codec of that name.
func ParseCodec(name string) (Codec, error) {
	for c := CodecNone; c <= CodecZstd; c++ {
		if c.String() == name {
			return c, nil
		}
	}
	return 0, fmt.Errorf("%w: %q", ErrUnknownCodec, name)
}

// DecompressRecords returns the record section of batch, which is exactly one batch
// with header h, decompressed. Records without compression are returned as a sub-slice
// of batch, without a copy (so is nothing, which is what the cleaner may leave); others are decompressed into dst from its start on,
// reallocated as needed: what dst held is lost. So keep dst apart from the result, or
// the next call may write into a batch (a Decompressor does).
//
// More than limit bytes are ErrTooLarge, found before they are allocated and at little
// more work than limit bytes take. Other errors wrap ErrCorruptCompression,
// ErrUnknownCodec or ErrCorruptBatch.
func DecompressRecords(dst []byte, h *BatchHeader, batch []byte, limit int) ([]byte, error) {
	if len(batch) != h.Size() || len(batch) < BatchHeaderLen {
		return nil, fmt.Errorf("%w: %d bytes, the header says %d", ErrCorruptBatch, len(batch), h.Size())
	}
	src := batch[BatchHeaderLen:len(batch):len(batch)]
	if h.Codec() == CodecNone || (len(src) == 0 && h.NumRecords == 0) {
		return src, nil
	}
	out, err := decompress(dst[:0], h.Codec(), src, limit)
	if err != nil {
		return nil, fmt.Errorf("batch at offset %d, %d bytes of %s: %w", h.BaseOffset, len(src), h.Codec(), err)
	}
	return out, nil
}

// A Decompressor decompresses batch after batch into one buffer that it keeps. The
// zero value is ready.
type Decompressor struct {
	buf []byte
}

// Records is DecompressRecords; the result is good until the next call and, without
// compression, as long as batch.
func (d *Decompressor) Records(h *BatchHeader, batch []byte, limit int) ([]byte, error) {
	out, err := DecompressRecords(d.buf, h, batch, limit)
	if err == nil && h.Codec() != CodecNone && len(out) > 0 {
		d.buf = out
	}
	return out, err
}

// decompress appends src, decompressed, to dst, which may hold limit bytes in all after it.
func decompress(dst []byte, codec Codec, src []byte, limit int) ([]byte, error) {
	switch codec {
	case CodecGzip:
		return gunzip(dst, src, limit)
	case CodecSnappy:
		return unsnappy(dst, src, limit)
	case CodecLz4:
		return unlz4(dst, src, limit)
	case CodecZstd:
		return unzstd(dst, src, limit)
	}
	return nil, fmt.Errorf("%w: %d", ErrUnknownCodec, codec)
}

// CompressRecords appends records, compressed, to dst. All codecs run at their fastest
// level: the broker compresses only while somebody waits for the answer.
func CompressRecords(dst []byte, codec Codec, records []byte) ([]byte, error) {
	switch codec {
	case CodecNone:
		return append(dst, records...), nil
	case CodecGzip:
		return appendGzip(dst, records)
	case CodecSnappy:
		n := s2.MaxEncodedLen(len(records))
		if n < 0 {
			return nil, fmt.Errorf("%w: %d bytes for snappy", ErrTooLarge, len(records))
		}
		dst = slices.Grow(dst, n)
		block := s2.EncodeSnappy(dst[len(dst):cap(dst)], records) // in place, given the room
		return dst[:len(dst)+len(block)], nil
	case CodecLz4:
		return appendLz4(dst, records)
	case CodecZstd:
		return appendZstd(dst, records), nil
	}
	return nil, fmt.Errorf("%w: %d", ErrUnknownCodec, codec)
}

// reserve makes room for n more bytes in dst. It is an error if dst would then hold
// more than limit.
func reserve(dst []byte, n, limit int) ([]byte, error) {
	if n > limit-len(dst) {
		return nil, errOver(limit)
	}
	if cap(dst)-len(dst) < n {
		dst = slices.Grow(dst, n)
	}
	return dst, nil
}

func errOver(limit int) error {
	return fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
}

func corrupt(codec Codec, err error) error {
	return fmt.Errorf("%w: %s: %w", ErrCorruptCompression, codec, err)
}
