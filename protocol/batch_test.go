package protocol

import (
	"encoding/hex"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// goldenBatch is a batch as Kafka's Java classes write it: one record at time 1700000000000
// with key "k", value "v" and header h=x.
const goldenBatch = "0000000000000000" + // base offset
	"0000003e" + // length
	"ffffffff" + // leader epoch
	"02" + // magic
	"5e93538d" + // checksum
	"0000" + // attributes
	"00000000" + // last offset delta
	"0000018bcfe56800" + "0000018bcfe56800" + // first and max timestamp
	"ffffffffffffffff" + "ffff" + "ffffffff" + // producer
	"00000001" + // records
	"18" + "00" + "00" + "00" + "02" + "6b" + "02" + "76" + "02" + "02" + "68" + "02" + "78"

func mustHex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(s)
	require.NoError(t, err)
	return b
}

func TestGoldenBatch(t *testing.T) {
	golden := mustHex(t, goldenBatch)
	h, err := CheckProduced(golden, CheckOptions{RequireKeys: true})
	require.NoError(t, err)
	require.Equal(t, BatchHeader{
		Length: 62, LeaderEpoch: -1, CRC: 0x5e93538d,
		FirstTimestamp: 1700000000000, MaxTimestamp: 1700000000000,
		ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, NumRecords: 1,
	}, h)

	it := IterateRecords(&h, golden[BatchHeaderLen:])
	require.True(t, it.Next())
	r := it.Record()
	require.Equal(t, int64(0), r.Offset)
	require.Equal(t, int64(1700000000000), r.TimestampMs)
	require.Equal(t, "k", string(r.Key))
	require.Equal(t, "v", string(r.Value))
	headers := IterateHeaders(r.Headers)
	require.True(t, headers.Next())
	require.Equal(t, Header{Key: "h", Value: []byte("x")}, headers.Header())
	require.False(t, headers.Next())
	require.False(t, it.Next())
	require.NoError(t, it.Err())

	var b BatchBuilder
	o := PlainBatch(0)
	o.LeaderEpoch = -1
	b.Reset(o)
	b.Append([]byte("k"), []byte("v"), []Header{{"h", []byte("x")}}, 1700000000000)
	built, err := b.Build(nil)
	require.NoError(t, err)
	require.Equal(t, golden, built)
}

func drawHeader(t *rapid.T) BatchHeader {
	return BatchHeader{
		BaseOffset:      rapid.Int64().Draw(t, "base"),
		Length:          rapid.Int32Range(BatchHeaderLen-batchPrefixLen, math.MaxInt32).Draw(t, "length"),
		LeaderEpoch:     rapid.Int32().Draw(t, "epoch"),
		CRC:             rapid.Uint32().Draw(t, "crc"),
		Attributes:      rapid.Int16().Draw(t, "attributes"),
		LastOffsetDelta: rapid.Int32Range(0, math.MaxInt32).Draw(t, "last"),
		FirstTimestamp:  rapid.Int64().Draw(t, "first"),
		MaxTimestamp:    rapid.Int64().Draw(t, "max"),
		ProducerID:      rapid.Int64().Draw(t, "pid"),
		ProducerEpoch:   rapid.Int16().Draw(t, "pepoch"),
		BaseSequence:    rapid.Int32().Draw(t, "sequence"),
		NumRecords:      rapid.Int32Range(0, math.MaxInt32).Draw(t, "records"),
	}
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := drawHeader(t)
		b := make([]byte, BatchHeaderLen)
		h.put(b)
		got, err := ParseBatchHeader(b)
		require.NoError(t, err)
		require.Equal(t, h, got)
		for n := range b {
			_, err := ParseBatchHeader(b[:n])
			require.ErrorIs(t, err, ErrCorruptBatch)
		}
	})
}

func TestHeaderRefuses(t *testing.T) {
	golden := mustHex(t, goldenBatch)
	for name, c := range map[string]struct {
		at  int
		b   []byte
		err error
	}{
		"magic 1":                 {16, []byte{1}, ErrUnsupportedMagic},
		"magic 3":                 {16, []byte{3}, ErrUnsupportedMagic},
		"length below a header":   {8, []byte{0, 0, 0, 48}, ErrCorruptBatch},
		"length below 0":          {8, []byte{0xff, 0, 0, 0}, ErrCorruptBatch},
		"last offset delta below": {23, []byte{0xff, 0xff, 0xff, 0xff}, ErrCorruptBatch},
		"count below 0":           {57, []byte{0xff, 0xff, 0xff, 0xff}, ErrCorruptBatch},
	} {
		b := append([]byte{}, golden...)
		copy(b[c.at:], c.b)
		_, err := ParseBatchHeader(b)
		require.ErrorIs(t, err, c.err, name)
	}
}

func TestHeaderEdits(t *testing.T) {
	b := mustHex(t, goldenBatch)
	SetBaseOffset(b, 1<<40)
	SetLeaderEpoch(b, 7)
	h, err := ParseBatchHeader(b)
	require.NoError(t, err)
	require.NoError(t, VerifyCRC(&h, b), "the checksum covers neither")
	require.Equal(t, int64(1<<40), h.BaseOffset)
	require.Equal(t, int64(1<<40), h.LastOffset())
	require.Equal(t, int64(1<<40+1), h.NextOffset())
	require.Equal(t, int32(7), h.LeaderEpoch)

	SetLogAppendTime(b, 1800000000000)
	h, err = ParseBatchHeader(b)
	require.NoError(t, err)
	require.NoError(t, VerifyCRC(&h, b))
	require.True(t, h.LogAppendTime())
	it := IterateRecords(&h, b[BatchHeaderLen:])
	require.True(t, it.Next())
	require.Equal(t, int64(1800000000000), it.Record().TimestampMs)

	for i := crcStart; i < len(b); i++ {
		b[i] ^= 0x40
		require.ErrorIs(t, VerifyCRC(&h, b), ErrCorruptBatch)
		b[i] ^= 0x40
	}
	require.ErrorIs(t, VerifyCRC(&h, b[:len(b)-1]), ErrCorruptBatch)
	require.NoError(t, VerifyCRC(&h, b))
}
