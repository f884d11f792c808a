package protocol

import (
	"encoding/binary"
	"fmt"
)

// Header is one header of a record.
type Header struct {
	Key   string
	Value []byte // nil: null
}

// Headers iterates over the headers of a record.
type Headers struct {
	raw  []byte
	pos  int
	left int32
	cur  Header
}

// IterateHeaders starts an iteration over raw, the Headers of a Record that an
// iteration yielded, so one that has been checked.
func IterateHeaders(raw []byte) Headers {
	n, i := varint(raw, 0)
	if i < 0 {
		return Headers{}
	}
	return Headers{raw: raw, pos: i, left: n}
}

// Len is how many headers are left.
func (h *Headers) Len() int { return int(h.left) }

// Next moves to the next header; it returns false at the end.
func (h *Headers) Next() bool {
	if h.left <= 0 {
		return false
	}
	key, i := nullableBytes(h.raw, h.pos)
	if i < 0 {
		return false
	}
	value, i := nullableBytes(h.raw, i)
	if i < 0 {
		return false
	}
	h.cur = Header{Key: string(key), Value: value}
	h.pos = i
	h.left--
	return true
}

// Header is the header that Next moved to; its value aliases the record.
func (h *Headers) Header() Header { return h.cur }

// checkHeaders checks that b is a count and that many headers, and nothing more.
func checkHeaders(b []byte) error {
	n, i := varint(b, 0)
	if i < 0 || n < 0 || int(n) > (len(b)-i)/2 {
		return fmt.Errorf("%w: %d headers in %d bytes", ErrInvalidRecord, n, len(b))
	}
	for range n {
		keyLen, at := varint(b, i)
		if at < 0 || keyLen < 0 || int(keyLen) > len(b)-at {
			return errRecordField("header key")
		}
		if _, i = nullableBytes(b, at+int(keyLen)); i < 0 {
			return errRecordField("header value")
		}
	}
	if i != len(b) {
		return fmt.Errorf("%w: %d bytes after its headers", ErrInvalidRecord, len(b)-i)
	}
	return nil
}

// appendHeaders appends headers as a record holds them.
func appendHeaders(dst []byte, headers []Header) []byte {
	dst = binary.AppendVarint(dst, int64(len(headers)))
	for i := range headers {
		h := &headers[i]
		dst = binary.AppendVarint(dst, int64(len(h.Key)))
		dst = append(dst, h.Key...)
		dst = appendNullable(dst, h.Value)
	}
	return dst
}

func headersLen(headers []Header) int {
	n := varintLen(int64(len(headers)))
	for i := range headers {
		h := &headers[i]
		n += varintLen(int64(len(h.Key))) + len(h.Key) + nullableLen(h.Value)
	}
	return n
}

func appendNullable(dst, b []byte) []byte {
	if b == nil {
		return append(dst, 1) // the varint -1
	}
	dst = binary.AppendVarint(dst, int64(len(b)))
	return append(dst, b...)
}

func nullableLen(b []byte) int {
	if b == nil {
		return 1
	}
	return varintLen(int64(len(b))) + len(b)
}
