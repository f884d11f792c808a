package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// ErrMalformedFrame marks a frame or request header that does not hold together. What
// follows it on the connection has no meaning.
var ErrMalformedFrame = errors.New("malformed frame")

// FramePrefixLen is the length in bytes of the size that precedes every request and
// response.
const FramePrefixLen = 4

// FrameSize is the size of the frame announced by prefix, FramePrefixLen bytes. It is
// an error if it is below 0 or above limit.
func FrameSize(prefix []byte, limit int) (int, error) {
	size := int32(binary.BigEndian.Uint32(prefix))
	if size < 0 || int(size) > limit {
		return 0, fmt.Errorf("%w: a size of %d bytes, at most %d are taken", ErrMalformedFrame, size, limit)
	}
	return int(size), nil
}

// frameStep is how much of a frame is allocated before its bytes come: a peer that
// announces much and sends little gets little.
const frameStep = 256 << 10

// ReadFrame reads one frame of at most limit bytes, without its size, into buf from its
// start on, reallocated as needed. The error is io.EOF if r ends before the frame, and
// io.ErrUnexpectedEOF if it ends within.
func ReadFrame(r io.Reader, buf []byte, limit int) ([]byte, error) {
	buf = slices.Grow(buf[:0], FramePrefixLen)
	prefix := buf[:FramePrefixLen]
	if _, err := io.ReadFull(r, prefix); err != nil {
		return nil, err
	}
	size, err := FrameSize(prefix, limit)
	if err != nil {
		return nil, err
	}
	for len(buf) < size {
		step := min(size-len(buf), max(cap(buf)-len(buf), len(buf), frameStep))
		buf = slices.Grow(buf, step)
		n, err := io.ReadFull(r, buf[len(buf):len(buf)+step])
		buf = buf[:len(buf)+n]
		if err != nil {
			return nil, unexpectedEOF(err)
		}
	}
	return buf, nil
}

// RequestHeader is the header of a request, of any of its versions.
type RequestHeader struct {
	APIKey        int16
	APIVersion    int16
	CorrelationID int32
	ClientID      []byte // nil: null; aliases the frame
}

// FlexibleFrom is the first version of the request's API whose header has tagged fields, one more than its newest
// version if none has. It changes the version of req.
func FlexibleFrom(req kmsg.Request) int16 {
	v := int16(0)
	for ; v <= req.MaxVersion(); v++ {
		if req.SetVersion(v); req.IsFlexible() {
			break
		}
	}
	return v
}

// ParseRequestHeader reads the header of the request in frame, which is a frame without
// its size, and returns the request's body, too. It has tagged fields if its version is
// flexibleFrom or later. Any version is taken; it is the caller who knows which are served.
// The client id and the body alias frame.
func ParseRequestHeader(frame []byte, flexibleFrom int16) (h RequestHeader, body []byte, err error) {
	if len(frame) < 10 {
		return h, nil, fmt.Errorf("%w: a request of %d bytes has no header", ErrMalformedFrame, len(frame))
	}
	h = RequestHeader{
		APIKey:        int16(binary.BigEndian.Uint16(frame)),
		APIVersion:    int16(binary.BigEndian.Uint16(frame[2:])),
		CorrelationID: int32(binary.BigEndian.Uint32(frame[4:])),
	}
	if h.APIKey < 0 || h.APIVersion < 0 {
		return h, nil, fmt.Errorf("%w: API key %d, version %d", ErrMalformedFrame, h.APIKey, h.APIVersion)
	}
	clientLen := int(int16(binary.BigEndian.Uint16(frame[8:])))
	body = frame[10:]
	if clientLen < -1 || clientLen > len(body) {
		return h, nil, fmt.Errorf("%w: a client id of %d bytes in %d", ErrMalformedFrame, clientLen, len(body))
	}
	if clientLen >= 0 {
		h.ClientID, body = body[:clientLen:clientLen], body[clientLen:]
	}
	if h.APIVersion >= flexibleFrom {
		if body, err = skipTags(body); err != nil {
			return h, nil, err
		}
	}
	return h, body, nil
}

// skipTags skips tagged fields.
func skipTags(b []byte) ([]byte, error) {
	n, i := uvarint32(b, 0)
	for ; n > 0 && i >= 0; n-- {
		if _, i = uvarint32(b, i); i < 0 { // the tag
			break
		}
		var size uint32
		if size, i = uvarint32(b, i); i < 0 || uint64(size) > uint64(len(b)-i) {
			i = -1
			break
		}
		i += int(size)
	}
	if i < 0 {
		return nil, fmt.Errorf("%w: tagged fields of the header do not fit", ErrMalformedFrame)
	}
	return b[i:], nil
}

// BeginResponse appends the start of a response's frame: room for its size, and the
// header. Flexible is whether that version of the response is. The header of
// ApiVersions never has tagged fields, since its reader may not know the version.
func BeginResponse(dst []byte, apiKey int16, flexible bool, correlationID int32) []byte {
	dst = append(dst, 0, 0, 0, 0)
	dst = binary.BigEndian.AppendUint32(dst, uint32(correlationID))
	if flexible && apiKey != int16(kmsg.ApiVersions) {
		dst = append(dst, noTags)
	}
	return dst
}

// EndFrame writes the size of the frame that starts at frame[0] and of which elsewhere
// more bytes are sent from another place.
func EndFrame(frame []byte, elsewhere int) {
	binary.BigEndian.PutUint32(frame, uint32(len(frame)-FramePrefixLen+elsewhere))
}
