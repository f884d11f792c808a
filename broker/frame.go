package broker

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const (
	// frameTimeout is how long a client may take to send a frame that it has begun, on
	// top of a second for each MiB.
	frameTimeout = 10 * time.Second
	// pooledFrameBytes bounds the frames that are kept for reuse.
	pooledFrameBytes = 4 << 20
)

var framePool = sync.Pool{New: func() any { return new([]byte) }}

func getFrame(size int) *[]byte {
	f := framePool.Get().(*[]byte)
	if cap(*f) < size {
		*f = make([]byte, size)
	}
	*f = (*f)[:size]
	return f
}

func putFrame(f *[]byte) {
	if cap(*f) <= pooledFrameBytes {
		framePool.Put(f)
	}
}

// receive reads one frame, finds its API and decodes it. Its errors end the
// connection: what comes after bytes that make no sense makes none either.
func (c *conn) receive() (*task, error) {
	size, err := c.readSize()
	if err != nil {
		return nil, err
	}
	t := &task{}
	frame, err := c.readFrame(t, size)
	if err != nil {
		t.done()
		return nil, err
	}
	if err := c.decode(t, frame); err != nil {
		t.done()
		return nil, err
	}
	return t, nil
}

// readSize waits for the next frame and reads its length.
func (c *conn) readSize() (int, error) {
	var prefix [4]byte
	for {
		if err := c.setReadDeadline(c.b.limits.maxIdle); err != nil {
			return 0, err
		}
		_, err := c.in.Peek(len(prefix))
		if err == nil {
			break
		}
		// A client that waits for an answer is not idle.
		if errors.Is(err, os.ErrDeadlineExceeded) && c.ctx.Err() == nil && c.outstanding.Load() > 0 && c.in.Buffered() == 0 {
			continue
		}
		return 0, err
	}
	if _, err := io.ReadFull(c.in, prefix[:]); err != nil {
		return 0, err
	}
	size := int32(binary.BigEndian.Uint32(prefix[:]))
	if size < 0 || int(size) > c.b.limits.maxRequestBytes {
		return 0, fmt.Errorf("a request of %d bytes, at most %d are taken (socket.request.max.bytes)", size, c.b.limits.maxRequestBytes)
	}
	return int(size), nil
}

// setReadDeadline gives the client d to send something, unless the connection has ended
// meanwhile: then the deadline of its end stands.
func (c *conn) setReadDeadline(d time.Duration) error {
	if err := c.nc.SetReadDeadline(time.Now().Add(d)); err != nil {
		return err
	}
	if c.ctx.Err() != nil {
		return c.nc.SetReadDeadline(time.Unix(1, 0))
	}
	return nil
}

// readFrame reads the rest of a frame.
func (c *conn) readFrame(t *task, size int) ([]byte, error) {
	if err := c.expect(size); err != nil {
		return nil, err
	}
	if err := c.admit(t, size); err != nil {
		return nil, err
	}
	if size*t.api.weight > freeRequestBytes {
		return c.readLargeFrame(t, size)
	}
	frame := t.takeFrame(size)
	_, err := io.ReadFull(c.in, frame)
	return frame, unexpected(err)
}

// readLargeFrame reads a frame that needs room in the memory for requests. It takes room
// for four times what has come at most.
func (c *conn) readLargeFrame(t *task, size int) ([]byte, error) {
	part := getFrame(min(size, freeRequestBytes))
	defer func() { putFrame(part) }()
	if _, err := io.ReadFull(c.in, *part); err != nil {
		return nil, unexpected(err)
	}
	for taken := 0; ; {
		want := min(size, 4*len(*part))
		if err := t.grow(c, (want-taken)*t.api.weight); err != nil {
			return nil, err
		}
		taken = want
		if err := c.expect(size - len(*part)); err != nil { // waiting for room was not the client's fault
			return nil, err
		}
		if want == size {
			frame := t.takeFrame(size)
			_, err := io.ReadFull(c.in, frame[copy(frame, *part):])
			return frame, unexpected(err)
		}
		larger := getFrame(want)
		_, err := io.ReadFull(c.in, (*larger)[copy(*larger, *part):])
		putFrame(part)
		if part = larger; err != nil {
			return nil, unexpected(err)
		}
	}
}

// expect gives the client the time that size bytes may take, unless they are here.
func (c *conn) expect(size int) error {
	if c.in.Buffered() >= size {
		return nil
	}
	return c.setReadDeadline(frameTimeout + time.Duration(size>>20)*time.Second)
}

// takeFrame gives the buffer for a frame of size bytes. One whose request has begun
// before the next is read comes from the pool; of any other the request keeps parts.
func (t *task) takeFrame(size int) []byte {
	if t.api.begin == nil {
		return make([]byte, size)
	}
	t.frame = getFrame(size)
	return *t.frame
}

// unexpected is for an end of the stream in the middle of a frame.
func unexpected(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}

// admit finds the API of a frame by its first bytes and refuses frames too large for it.
func (c *conn) admit(t *task, size int) error {
	if size < 8 {
		return fmt.Errorf("a request of %d bytes has no header", size)
	}
	first, err := c.in.Peek(2)
	if err != nil {
		return unexpected(err)
	}
	key := int16(binary.BigEndian.Uint16(first))
	if t.api = c.b.apis.find(key); t.api == nil {
		return fmt.Errorf("unknown api key %d", key)
	}
	if most := t.api.maxBytes(c.b.limits.memoryBytes / 2); size > most {
		return fmt.Errorf("a %s request of %d bytes, at most %d are taken", kmsg.NameForKey(key), size, most)
	}
	return nil
}

// decode parses the header and the body of a frame.
func (c *conn) decode(t *task, frame []byte) error {
	header, body, err := protocol.ParseRequestHeader(frame, t.api.flexibleFrom)
	if err != nil {
		return fmt.Errorf("request header: %w", err)
	}
	t.call = &call{
		ctx: c.ctx, conn: c, room: &t.room, version: header.APIVersion,
		correlationID: header.CorrelationID, clientID: string(header.ClientID),
	}
	if header.APIVersion < t.api.min || header.APIVersion > t.api.max {
		if header.APIKey == int16(kmsg.ApiVersions) {
			t.req = newestApiVersions(header.APIVersion)
			return nil
		}
		return fmt.Errorf("%s version %d, served are %d to %d", kmsg.NameForKey(header.APIKey), header.APIVersion, t.api.min, t.api.max)
	}
	t.req = t.api.newRequest()
	t.req.SetVersion(header.APIVersion)
	c.b.metrics.requests[header.APIKey].Inc()
	if decoded := t.api.decodedBytes(t.req, body); decoded+len(frame) > freeRequestBytes {
		if err := t.grow(c, decoded); err != nil {
			return err
		}
	}
	if t.api.begin != nil {
		// Carried out before the frame is used again, so its strings need no copies.
		err = t.req.(kmsg.UnsafeReadFrom).UnsafeReadFrom(body)
	} else {
		err = t.req.ReadFrom(body)
	}
	if err != nil {
		return fmt.Errorf("%s version %d: %w", kmsg.NameForKey(header.APIKey), header.APIVersion, err)
	}
	return nil
}
