package main

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// rawConn speaks to the broker one request at a time.
type rawConn struct {
	c           net.Conn
	r           *bufio.Reader
	format      *kmsg.RequestFormatter
	correlation int32
	out, in     []byte
}

func rawDial(addr string) (*rawConn, error) {
	c, err := net.DialTimeout("tcp", addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return &rawConn{c: c, r: bufio.NewReaderSize(c, 1<<16), format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("kload"))}, nil
}

// do sends a request and reads its answer.
func (r *rawConn) do(req kmsg.Request) (kmsg.Response, error) {
	r.correlation++
	r.out = r.format.AppendRequest(r.out[:0], req, r.correlation)
	if _, err := r.c.Write(r.out); err != nil {
		return nil, err
	}
	if err := r.c.SetReadDeadline(time.Now().Add(40 * time.Second)); err != nil {
		return nil, err
	}
	var size [4]byte
	if _, err := io.ReadFull(r.r, size[:]); err != nil {
		return nil, err
	}
	n := int(binary.BigEndian.Uint32(size[:]))
	if n < 5 {
		return nil, fmt.Errorf("an answer of %d bytes", n)
	}
	if cap(r.in) < n {
		r.in = make([]byte, n)
	}
	b := r.in[:n]
	if _, err := io.ReadFull(r.r, b); err != nil {
		return nil, err
	}
	b = b[4:] // correlation id
	resp := req.ResponseKind()
	if resp.IsFlexible() && resp.Key() != kmsg.ApiVersions.Int16() {
		if b[0] != 0 {
			return nil, errors.New("unexpected tags in the header of an answer")
		}
		b = b[1:]
	}
	return resp, resp.ReadFrom(b)
}
