package wire

import (
	"bufio"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// Patience is how long a Conn waits for an answer that takes no time of its own.
const Patience = time.Minute

// Conn is one connection to a broker. One goroutine at a time may use it.
type Conn struct {
	net.Conn
	in       *bufio.Reader
	format   *kmsg.RequestFormatter
	sent     int32 // correlation id of the last request sent
	received int32 // of the last answer received
	out      []byte
	body     []byte
	bytesIn  int64
}

// Dial connects to a broker at HOST:PORT.
func Dial(ctx context.Context, addr string) (*Conn, error) {
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	return &Conn{Conn: nc, in: bufio.NewReaderSize(nc, 64<<10), format: kmsg.NewRequestFormatter(kmsg.FormatterClientID("wire"))}, nil
}

// BytesIn is how many bytes of answers have been received, their frames included.
func (c *Conn) BytesIn() int64 { return c.bytesIn }

// Frame is the bytes of req at its version. They are valid until the next call.
func (c *Conn) Frame(req kmsg.Request) []byte {
	c.sent++
	c.out = c.format.AppendRequest(c.out[:0], req, c.sent)
	return c.out
}

// Send sends req at its version and does not wait for the answer.
func (c *Conn) Send(req kmsg.Request) error {
	if err := c.SetWriteDeadline(time.Now().Add(Patience)); err != nil {
		return err
	}
	if _, err := c.Write(c.Frame(req)); err != nil {
		return fmt.Errorf("send %s: %w", kmsg.NameForKey(req.Key()), err)
	}
	return nil
}

// Receive reads the answer to the oldest request that has none yet into resp, whose
// version is set. Its bytes alias the connection's buffer until the next call.
func (c *Conn) Receive(resp kmsg.Response) error {
	fail := func(err error) error { return fmt.Errorf("answer to %s: %w", kmsg.NameForKey(resp.Key()), err) }
	frame, err := c.ReceiveFrame()
	if err != nil {
		return fail(err)
	}
	c.received++
	if id := int32(binary.BigEndian.Uint32(frame)); id != c.received {
		return fail(fmt.Errorf("it has correlation id %d, expected %d", id, c.received))
	}
	return ReadBody(frame[4:], resp)
}

// receivePatiently is Receive for an answer that may take as long as it wants.
func (c *Conn) receivePatiently(resp kmsg.Response) error {
	if err := c.SetReadDeadline(time.Time{}); err != nil {
		return err
	}
	if _, err := c.in.Peek(1); err != nil {
		return fmt.Errorf("answer to %s: %w", kmsg.NameForKey(resp.Key()), err)
	}
	return c.Receive(resp)
}

// ReadBody reads the rest of an answer, behind its correlation id, into resp, whose
// version is set and which aliases it from then on.
func ReadBody(body []byte, resp kmsg.Response) error {
	name := kmsg.NameForKey(resp.Key())
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		if len(body) == 0 || body[0] != 0 {
			return fmt.Errorf("answer to %s: its header has tags", name)
		}
		body = body[1:]
	}
	if err := resp.(kmsg.UnsafeReadFrom).UnsafeReadFrom(body); err != nil {
		return fmt.Errorf("answer to %s version %d, %d bytes: %w", name, resp.GetVersion(), len(body), err)
	}
	return nil
}

// ReceiveFrame reads one answer: its correlation id and what follows. The bytes are valid
// until the next call.
func (c *Conn) ReceiveFrame() ([]byte, error) {
	if err := c.SetReadDeadline(time.Now().Add(Patience)); err != nil {
		return nil, err
	}
	var prefix [4]byte
	if _, err := io.ReadFull(c.in, prefix[:]); err != nil {
		return nil, err
	}
	size := int(int32(binary.BigEndian.Uint32(prefix[:])))
	if size < 4 {
		return nil, fmt.Errorf("a frame of %d bytes", size)
	}
	if cap(c.body) < size {
		c.body = make([]byte, size)
	}
	c.body = c.body[:size]
	if _, err := io.ReadFull(c.in, c.body); err != nil {
		return nil, err
	}
	c.bytesIn += int64(size) + int64(len(prefix))
	return c.body, nil
}

// Do sends req at its version and returns its answer, whose bytes alias the connection's
// buffer until the next call.
func (c *Conn) Do(req kmsg.Request) (kmsg.Response, error) {
	if err := c.Send(req); err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	return resp, c.Receive(resp)
}
