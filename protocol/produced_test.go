package protocol

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

func TestCheckProducedAccepts(t *testing.T) {
	var b BatchBuilder
	rapid.Check(t, func(t *rapid.T) {
		o := drawOptions(t)
		o.BaseOffset = 0
		batch := buildBatch(t, &b, o, drawRecords(t, false))
		before := slices.Clone(batch)
		want, err := ParseBatchHeader(batch)
		require.NoError(t, err)
		h, err := CheckProduced(batch, CheckOptions{WalkCompressed: true, MaxDecodedBytes: 1 << 20})
		require.NoError(t, err)
		require.Equal(t, want, h)
		require.Equal(t, before, batch)
	})
}

// edit is a change of a batch whose checksum is renewed afterwards.
type edit func(b []byte) []byte

func set16(at int, v uint16) edit {
	return func(b []byte) []byte { binary.BigEndian.PutUint16(b[at:], v); return b }
}

func set32(at int, v uint32) edit {
	return func(b []byte) []byte { binary.BigEndian.PutUint32(b[at:], v); return b }
}

func set64(at int, v uint64) edit {
	return func(b []byte) []byte { binary.BigEndian.PutUint64(b[at:], v); return b }
}

func both(a, b edit) edit { return func(x []byte) []byte { return b(a(x)) } }

func TestCheckProducedRefuses(t *testing.T) {
	for _, codec := range append([]Codec{CodecNone}, compressing...) {
		_, good := benchBatch(t, codec, 10)
		attrs := uint16(codec)
		for name, c := range map[string]struct {
			edit edit
			err  error
		}{
			"nothing":                   {func(b []byte) []byte { return nil }, ErrInvalidRecord},
			"half a header":             {func(b []byte) []byte { return b[:40] }, ErrInvalidRecord},
			"cut":                       {func(b []byte) []byte { return b[:len(b)-1] }, ErrInvalidRecord},
			"a byte more":               {func(b []byte) []byte { return append(b, 0) }, ErrInvalidRecord},
			"two batches":               {func(b []byte) []byte { return append(b, b...) }, ErrInvalidRecord},
			"magic 1":                   {func(b []byte) []byte { b[16] = 1; return b }, ErrUnsupportedMagic},
			"length below a header":     {set32(8, 48), ErrInvalidRecord},
			"last offset delta below 0": {set32(23, 1<<31), ErrInvalidRecord},
			"count below 0":             {set32(57, 1<<31), ErrInvalidRecord},
			"base offset":               {set64(0, 1), ErrInvalidRecord},
			"no records":                {set32(57, 0), ErrInvalidRecord},
			"fewer records than deltas": {set32(23, 10), ErrInvalidRecord},
			"more records than deltas":  {set32(23, 8), ErrInvalidRecord},
			"overflowing count":         {both(set32(23, 1<<31-1), set32(57, 1<<31-1)), ErrInvalidRecord},
			"control":                   {set16(21, attrs|attrControl), ErrInvalidRecord},
			"delete horizon":            {set16(21, attrs|attrDeleteHorizon), ErrInvalidRecord},
			"log append time":           {set16(21, attrs|attrLogAppendTime), ErrInvalidTimestamp},
			"codec 5":                   {set16(21, 5), ErrUnknownCodec},
			"codec 7":                   {set16(21, 7), ErrUnknownCodec},
			"transaction of nobody":     {set16(21, attrs|attrTransactional), ErrInvalidRecord},
			"no sequence":               {both(set64(43, 5), set16(51, 0)), ErrInvalidRecord},
			"no producer epoch":         {both(set64(43, 5), set32(53, 0)), ErrInvalidRecord},
			"one record more":           {both(set32(23, 10), set32(57, 11)), ErrInvalidRecord},
			"one record less":           {both(set32(23, 8), set32(57, 9)), ErrInvalidRecord},
		} {
			t.Run(codec.String()+"/"+name, func(t *testing.T) {
				b := c.edit(slices.Clone(good))
				if len(b) >= BatchHeaderLen {
					RenewCRC(b)
				}
				_, err := CheckProduced(b, CheckOptions{WalkCompressed: true})
				require.ErrorIs(t, err, c.err)
				require.NotErrorIs(t, err, ErrCorruptBatch, "only a wrong checksum is worth another try")
			})
		}
		for i := crcStart; i < len(good); i += 7 {
			b := slices.Clone(good)
			b[i] ^= 1
			_, err := CheckProduced(b, CheckOptions{})
			require.ErrorIs(t, err, ErrCorruptBatch)
		}
	}
}

// TestMaxTimestampIsCorrected does what Kafka's validator does with such a batch.
func TestMaxTimestampIsCorrected(t *testing.T) {
	for _, codec := range []Codec{CodecNone, CodecZstd} {
		want, good := benchBatch(t, codec, 10)
		wrong := set64(35, 5)(slices.Clone(good))
		RenewCRC(wrong)
		h, err := CheckProduced(wrong, CheckOptions{WalkCompressed: true})
		require.NoError(t, err)
		require.Equal(t, good, wrong)
		require.Equal(t, want, h)
	}
	_, good := benchBatch(t, CodecZstd, 10)
	wrong := set64(35, 5)(slices.Clone(good))
	RenewCRC(wrong)
	h, err := CheckProduced(wrong, CheckOptions{})
	require.NoError(t, err)
	require.Equal(t, int64(5), h.MaxTimestamp, "what is not looked into is not corrected")
}

func TestCompressedBatchesAreLookedIntoOnRequest(t *testing.T) {
	_, batch := benchBatch(t, CodecZstd, 10)
	copy(batch[BatchHeaderLen:], "no frame of zstd")
	RenewCRC(batch)
	_, err := CheckProduced(batch, CheckOptions{})
	require.NoError(t, err)
	_, err = CheckProduced(batch, CheckOptions{WalkCompressed: true})
	require.ErrorIs(t, err, ErrCorruptCompression)
	_, err = CheckProduced(batch, CheckOptions{RequireKeys: true})
	require.ErrorIs(t, err, ErrCorruptCompression)

	_, batch = benchBatch(t, CodecZstd, 10)
	_, err = CheckProduced(batch, CheckOptions{WalkCompressed: true, MaxDecodedBytes: 100})
	require.ErrorIs(t, err, ErrTooLarge)
}

func TestRecordAtFault(t *testing.T) {
	var b BatchBuilder
	b.Reset(PlainBatch(0))
	b.Append([]byte("k"), nil, nil, 0)
	b.Append(nil, nil, nil, 0)
	b.Append([]byte("k"), nil, nil, 0)
	b.Append(nil, nil, nil, 0)
	batch := must1(b.Build(nil))
	_, err := CheckProduced(batch, CheckOptions{})
	require.NoError(t, err)
	_, err = CheckProduced(batch, CheckOptions{RequireKeys: true})
	var fault *RecordError
	require.ErrorAs(t, err, &fault)
	require.Equal(t, int32(1), fault.Index)
	require.Equal(t, []int32{3}, fault.More)
	require.Equal(t, "record 1: invalid record: it has no key, and a compacted topic needs one", err.Error())

	batch[len(batch)-1] = 2 // the last record announces a header
	RenewCRC(batch)
	_, err = CheckProduced(batch, CheckOptions{})
	require.ErrorAs(t, err, &fault)
	require.Equal(t, int32(3), fault.Index)
}
