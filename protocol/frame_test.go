package protocol

import (
	"bytes"
	"encoding/binary"
	"io"
	"runtime"
	"testing"
	"testing/iotest"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"
)

func frameOf(body []byte) []byte {
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

func TestReadFrame(t *testing.T) {
	var stream []byte
	bodies := [][]byte{{}, []byte("a"), make([]byte, frameStep), noise(3*frameStep+5, 1), []byte("end")}
	for _, body := range bodies {
		stream = append(stream, frameOf(body)...)
	}
	for name, r := range map[string]io.Reader{
		"at once":       bytes.NewReader(stream),
		"in pieces":     iotest.HalfReader(bytes.NewReader(stream)),
		"byte for byte": iotest.OneByteReader(bytes.NewReader(stream)),
	} {
		var buf []byte
		for i, want := range bodies {
			var err error
			buf, err = ReadFrame(r, buf, 4*frameStep)
			require.NoError(t, err, "%s: frame %d", name, i)
			require.True(t, bytes.Equal(want, buf), "%s: frame %d", name, i)
		}
		_, err := ReadFrame(r, buf, 10)
		require.Equal(t, io.EOF, err, name)
	}
}

func TestReadFrameRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		b   []byte
		err error
	}{
		"above the limit":       {frameOf(make([]byte, 101)), ErrMalformedFrame},
		"size below 0":          {[]byte{0xff, 0xff, 0xff, 0xff, 1}, ErrMalformedFrame},
		"size of another time":  {[]byte("GET / HTTP/1.1\r\n"), ErrMalformedFrame},
		"cut in the size":       {[]byte{0, 0, 0}, io.ErrUnexpectedEOF},
		"cut after the size":    {[]byte{0, 0, 0, 5}, io.ErrUnexpectedEOF},
		"cut in the body":       {[]byte{0, 0, 0, 5, 1, 2}, io.ErrUnexpectedEOF},
		"nothing":               {nil, io.EOF},
		"cut one byte too soon": {frameOf(make([]byte, 100))[:103], io.ErrUnexpectedEOF},
	} {
		_, err := ReadFrame(bytes.NewReader(c.b), nil, 100)
		require.ErrorIs(t, err, c.err, name)
	}
}

// TestAnnouncedFrameIsNotAllocated sends a size and no more.
func TestAnnouncedFrameIsNotAllocated(t *testing.T) {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	_, err := ReadFrame(bytes.NewReader([]byte{0x3f, 0xff, 0xff, 0xff, 1, 2, 3}), nil, 1<<30)
	runtime.ReadMemStats(&after)
	require.ErrorIs(t, err, io.ErrUnexpectedEOF)
	require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(2<<20))
}

// TestRequestHeaders parses what kmsg formats, for each version of each API.
func TestRequestHeaders(t *testing.T) {
	for _, client := range []*string{nil, kmsg.StringPtr(""), kmsg.StringPtr("a client")} {
		var options []kmsg.RequestFormatterOpt
		if client != nil {
			options = append(options, kmsg.FormatterClientID(*client))
		}
		formatter := kmsg.NewRequestFormatter(options...)
		for key := int16(0); key <= kmsg.MaxKey; key++ {
			req := kmsg.RequestForKey(key)
			if req == nil {
				continue
			}
			flexible := FlexibleFrom(req)
			for v := int16(0); v <= req.MaxVersion(); v++ {
				if key == int16(kmsg.ControlledShutdown) && v == 0 {
					continue // its header has no client id; Kafka 4 does not serve it
				}
				req.SetVersion(v)
				frame := formatter.AppendRequest(nil, req, 123)[FramePrefixLen:]
				h, body, err := ParseRequestHeader(frame, flexible)
				require.NoError(t, err)
				require.Equal(t, key, h.APIKey)
				require.Equal(t, v, h.APIVersion)
				require.Equal(t, int32(123), h.CorrelationID)
				if client == nil {
					require.Nil(t, h.ClientID)
				} else {
					require.NotNil(t, h.ClientID)
					require.Equal(t, *client, string(h.ClientID))
				}
				require.Equal(t, req.AppendTo(nil), append([]byte(nil), body...))
			}
		}
	}
}

func TestRequestHeaderEdges(t *testing.T) {
	header := func(key, version uint16, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint16(nil, key)
		b = binary.BigEndian.AppendUint16(b, version)
		return append(append(b, 0, 0, 0, 9), rest...)
	}
	// ApiVersions of a version to come is flexible, and so is its header.
	h, body, err := ParseRequestHeader(header(18, 99, 0, 1, 'c', 1, 5, 2, 'x', 'y', 'b'), 3)
	require.NoError(t, err)
	require.Equal(t, "c", string(h.ClientID))
	require.Equal(t, "b", string(body), "tagged fields are skipped")

	for name, frame := range map[string][]byte{
		"empty":                       {},
		"too short":                   header(0, 3, 0),
		"API below 0":                 header(0xffff, 0, 0, 0),
		"version below 0":             header(0, 0xffff, 0, 0),
		"client id beyond the frame":  header(0, 3, 0, 2, 'c'),
		"client id length -2":         header(0, 3, 0xff, 0xfe),
		"no tagged fields":            header(18, 3, 0, 0),
		"tag count of 33 bits":        header(18, 3, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x1f),
		"a tag that is missing":       header(18, 3, 0, 0, 1),
		"a tag without a size":        header(18, 3, 0, 0, 1, 5),
		"a tag beyond the frame":      header(18, 3, 0, 0, 1, 5, 2, 'x'),
		"many tags that are missing":  header(18, 3, 0, 0, 0xff, 0xff, 0xff, 0xff, 0x0f, 5, 0),
		"a tag size that is enormous": header(18, 3, 0, 0, 1, 5, 0xff, 0xff, 0xff, 0xff, 0x0f),
	} {
		_, _, err := ParseRequestHeader(frame, 3)
		require.ErrorIs(t, err, ErrMalformedFrame, name)
	}
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("client")).
		AppendRequest(nil, &kmsg.MetadataRequest{Version: 12}, 7)[FramePrefixLen:]
	require.Zero(t, testing.AllocsPerRun(100, func() { _, _, _ = ParseRequestHeader(frame, 9) }))
}

func TestResponses(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		key := rapid.SampledFrom([]int16{0, 1, 3, 18}).Draw(t, "key")
		correlation := rapid.Int32().Draw(t, "correlation")
		resp := kmsg.ResponseForKey(key)
		resp.SetVersion(rapid.Int16Range(0, resp.MaxVersion()).Draw(t, "version"))
		frame := BeginResponse([]byte("kept"), key, resp.IsFlexible(), correlation)
		frame = resp.AppendTo(frame)
		EndFrame(frame[4:], 1000)
		require.Equal(t, "kept", string(frame[:4]))
		frame = frame[4:]
		require.Equal(t, uint32(len(frame)-FramePrefixLen+1000), binary.BigEndian.Uint32(frame))
		require.Equal(t, uint32(correlation), binary.BigEndian.Uint32(frame[4:]))
		body := frame[8:]
		if resp.IsFlexible() && key != 18 { // the header of ApiVersions never has tags
			require.Zero(t, body[0])
			body = body[1:]
		}
		require.Equal(t, resp.AppendTo(nil), body)
	})
}
