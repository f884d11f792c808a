package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"

	"github.com/klauspost/compress/gzip"
)

// gzipDecoder is pooled with the reader that it reads from, so that a batch allocates
// neither.
type gzipDecoder struct {
	src bytes.Reader
	gz  gzip.Reader
}

// gzipEncoder is pooled with the slice that it writes to.
type gzipEncoder struct {
	dst appender
	gz  *gzip.Writer
}

// appender is an io.Writer that appends to a slice.
type appender struct{ b []byte }

func (a *appender) Write(p []byte) (int, error) {
	a.b = append(a.b, p...)
	return len(p), nil
}

var (
	gzipDecoders = newPool(func() *gzipDecoder { return new(gzipDecoder) })
	gzipEncoders = newPool(func() *gzipEncoder {
		gz, err := gzip.NewWriterLevel(nil, gzip.BestSpeed)
		if err != nil {
			panic(err) // the level is a constant
		}
		return &gzipEncoder{gz: gz}
	})
)

// deflateMaxRatio is the most that deflate can expand.
const deflateMaxRatio = 1032

func gunzip(dst, src []byte, limit int) ([]byte, error) {
	d := gzipDecoders.get()
	defer gzipDecoders.put(d)
	d.src.Reset(src)
	defer d.src.Reset(nil)
	if err := d.gz.Reset(&d.src); err != nil {
		return nil, corrupt(CodecGzip, unexpectedEOF(err))
	}
	dst, err := reserve(dst, gzipRoom(src, limit-len(dst)), limit)
	if err != nil {
		return nil, err
	}
	for len(dst) < limit {
		if len(dst) == cap(dst) {
			if dst, err = reserve(dst, min(cap(dst), limit-len(dst)), limit); err != nil {
				return nil, err
			}
		}
		n, err := d.gz.Read(dst[len(dst):min(cap(dst), limit)])
		dst = dst[:len(dst)+n]
		if errors.Is(err, io.EOF) {
			return dst, nil
		}
		if err != nil {
			return nil, corrupt(CodecGzip, err)
		}
	}
	return gzipEnd(d, dst)
}

// gzipRoom guesses the decompressed size from the last four bytes, where gzip keeps it
// modulo 2^32; it is a hint, bounded by what src can expand to and by limit.
func gzipRoom(src []byte, limit int) int {
	const least = 512
	var n int64
	if len(src) >= 4 {
		n = int64(binary.LittleEndian.Uint32(src[len(src)-4:]))
	}
	n = max(least, min(n+1, int64(len(src))*deflateMaxRatio)) // one more, to see the end
	return int(min(n, int64(limit)))
}

// gzipEnd tells whether the stream ends at the limit that dst has reached.
func gzipEnd(d *gzipDecoder, dst []byte) ([]byte, error) {
	var one [1]byte
	n, err := d.gz.Read(one[:])
	switch {
	case n > 0:
		return nil, errOver(len(dst))
	case errors.Is(err, io.EOF):
		return dst, nil
	}
	return nil, corrupt(CodecGzip, err)
}

func unexpectedEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

func appendGzip(dst, records []byte) ([]byte, error) {
	e := gzipEncoders.get()
	defer gzipEncoders.put(e)
	e.dst.b = dst
	e.gz.Reset(&e.dst)
	_, err := e.gz.Write(records)
	if err == nil {
		err = e.gz.Close()
	}
	dst, e.dst.b = e.dst.b, nil
	return dst, err
}
