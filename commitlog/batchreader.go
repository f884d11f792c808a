package commitlog

import (
	"fmt"
	"hash/crc32"
	"io"
	"sync"

	"github.com/lacunamq/lacuna/protocol"
)

// readBufferBytes is what is read of a segment at a time when it is walked.
const readBufferBytes = 256 << 10

// crcStart is the first byte of a batch that its checksum covers.
const crcStart = 21

var readBuffers = sync.Pool{New: func() any {
	b := make([]byte, readBufferBytes)
	return &b
}}

// batchReader walks the batches of a segment in order. It holds no lock between calls.
type batchReader struct {
	seg *segment
	pos int64 // of the next batch
	end int64 // bytes from here on are not looked at

	buf  []byte
	from int64 // buf[0] is at this position
	n    int   // valid bytes in buf
	pool *[]byte
}

func newBatchReader(s *segment, pos, end int64) *batchReader {
	pool := readBuffers.Get().(*[]byte)
	return &batchReader{seg: s, pos: pos, end: end, buf: *pool, from: pos, pool: pool}
}

// close gives the reader's memory back.
func (r *batchReader) close() {
	readBuffers.Put(r.pool)
	r.buf = nil
}

// header reads the header of the next batch. It returns io.EOF at the end, and
// io.ErrUnexpectedEOF or protocol.ErrCorruptBatch for bytes that are no whole batch.
func (r *batchReader) header() (protocol.BatchHeader, error) {
	left := r.end - r.pos
	if left <= 0 {
		return protocol.BatchHeader{}, io.EOF
	}
	if left < protocol.BatchHeaderLen {
		return protocol.BatchHeader{}, io.ErrUnexpectedEOF
	}
	b, err := r.window(protocol.BatchHeaderLen)
	if err != nil {
		return protocol.BatchHeader{}, err
	}
	h, err := protocol.ParseBatchHeader(b)
	if err != nil {
		return h, err
	}
	if int64(h.Size()) > left {
		return h, io.ErrUnexpectedEOF
	}
	return h, nil
}

// body is the whole batch whose header was read, valid until the next call.
func (r *batchReader) body(h *protocol.BatchHeader) ([]byte, error) {
	return r.window(h.Size())
}

// verify checks the checksum of the batch whose header was read, in bounded memory.
func (r *batchReader) verify(h *protocol.BatchHeader) error {
	if h.Size() <= readBufferBytes {
		b, err := r.window(h.Size())
		if err != nil {
			return err
		}
		return protocol.VerifyCRC(h, b)
	}
	pos, end := r.pos+crcStart, r.pos+int64(h.Size())
	var sum uint32
	for pos < end {
		p := r.buf[:min(int64(len(r.buf)), end-pos)]
		r.n = 0
		if err := r.seg.readExact(p, pos); err != nil {
			return err
		}
		sum = crc32.Update(sum, castagnoli, p)
		pos += int64(len(p))
	}
	if sum != h.CRC {
		return fmt.Errorf("%w: checksum %08x, the header says %08x", protocol.ErrCorruptBatch, sum, h.CRC)
	}
	return nil
}

// skip moves past the batch.
func (r *batchReader) skip(h *protocol.BatchHeader) { r.pos += int64(h.Size()) }

// window is the n bytes at pos.
func (r *batchReader) window(n int) ([]byte, error) {
	if at := r.pos - r.from; at >= 0 && at+int64(n) <= int64(r.n) {
		return r.buf[at : at+int64(n)], nil
	}
	if n > len(r.buf) {
		r.buf = make([]byte, n) // a batch that is there, so not larger than what was accepted
	}
	p := r.buf[:min(int64(len(r.buf)), r.end-r.pos)]
	r.from, r.n = r.pos, 0
	if err := r.seg.readExact(p, r.pos); err != nil {
		return nil, err
	}
	r.n = len(p)
	return r.buf[:n], nil
}
