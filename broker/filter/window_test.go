package filter

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/protocol"
)

// TestWindow asks for bytes here and there, forwards and back, and compares with the
// segment itself.
func TestWindow(t *testing.T) {
	l := openLog(t, 1<<20)
	l.appendRecords(protocol.CodecNone, record{[]byte("a"), make([]byte, 300_000)})
	for range 100 {
		l.appendRecords(protocol.CodecNone, record{[]byte("a"), make([]byte, 1000)})
	}
	info := l.Segments()[0]
	data := make([]byte, info.SizeBytes)
	_, err := l.ReadSegment(info, 0, data)
	require.NoError(t, err)

	var w window
	w.reset(l, info, new(counters))
	rng := rand.New(rand.NewPCG(1, 1))
	at := int64(0)
	for range 2000 {
		if at += rng.Int64N(5000); rng.IntN(20) == 0 || at >= info.SizeBytes {
			at = rng.Int64N(info.SizeBytes)
		}
		n := rng.IntN(200)
		if rng.IntN(50) == 0 {
			n = rng.IntN(400_000)
		}
		var got []byte
		var err error
		if rng.IntN(3) == 0 {
			got = make([]byte, n)
			err = w.copyTo(got, at)
		} else {
			got, err = w.ahead(at, n)
		}
		if at+int64(n) > info.SizeBytes {
			require.ErrorIs(t, err, protocol.ErrCorruptBatch)
			continue
		}
		require.NoError(t, err)
		require.True(t, string(data[at:at+int64(n)]) == string(got), "%d bytes at %d", n, at)
	}
	w.reset(nil, info, nil)
	require.LessOrEqual(t, cap(w.buf), windowKeptBytes)
}
