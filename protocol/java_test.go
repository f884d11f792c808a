package protocol

import (
	"fmt"
	"os"
	"testing"

	"github.com/stretchr/testify/require"
)

// The batches in testdata are made by Kafka's own classes; testdata/Vectors.java says how.

func javaBatch(t testing.TB, name string) (BatchHeader, []byte) {
	b, err := os.ReadFile("testdata/java-" + name + ".batch")
	require.NoError(t, err)
	h, err := ParseBatchHeader(b)
	require.NoError(t, err)
	require.NoError(t, VerifyCRC(&h, b))
	return h, b
}

const javaRecords = 400

// checkJavaRecord checks the i-th record against what Vectors.java wrote.
func checkJavaRecord(t testing.TB, i int, r *Record) {
	require.Equal(t, int64(1700000000000+(i*37%101)*10), r.TimestampMs)
	if i%7 == 3 {
		require.Nil(t, r.Key)
	} else {
		require.Equal(t, fmt.Sprintf("key-%d", i%31), string(r.Key))
	}
	switch {
	case i%11 == 5:
		require.Nil(t, r.Value)
	case i%50 == 49:
		require.Len(t, r.Value, 700)
	default:
		want := fmt.Sprintf("the quick brown fox %d jumps over the lazy dog %d times", i, i*i%97)
		require.Equal(t, want, string(r.Value))
	}
	var headers []Header
	for it := IterateHeaders(r.Headers); it.Next(); {
		headers = append(headers, it.Header())
	}
	if i%13 != 0 {
		require.Empty(t, headers)
		return
	}
	require.Equal(t, []Header{
		{Key: "trace", Value: fmt.Append(nil, "id-", i)},
		{Key: "none"},
		{Value: []byte{}},
	}, headers)
}

func TestJavaBatches(t *testing.T) {
	plainHeader, plain := javaBatch(t, "none")
	want, err := DecompressRecords(nil, &plainHeader, plain, 1<<20)
	require.NoError(t, err)
	for name, codec := range map[string]Codec{
		"none": CodecNone, "gzip": CodecGzip, "gzip-9": CodecGzip, "snappy": CodecSnappy,
		"lz4": CodecLz4, "lz4-17": CodecLz4, "zstd": CodecZstd, "zstd-22": CodecZstd,
	} {
		t.Run(name, func(t *testing.T) {
			_, b := javaBatch(t, name)
			h, err := CheckProduced(b, CheckOptions{WalkCompressed: true})
			require.NoError(t, err)
			require.Equal(t, codec, h.Codec())
			require.Equal(t, int64(4242), h.ProducerID)
			require.Equal(t, int16(3), h.ProducerEpoch)
			require.Equal(t, int32(100), h.BaseSequence)
			var d Decompressor
			records, err := d.Records(&h, b, len(want))
			require.NoError(t, err)
			require.Equal(t, want, records)
			it, n := IterateRecords(&h, records), 0
			for ; it.Next(); n++ {
				require.Equal(t, int64(n), it.Record().Offset)
				checkJavaRecord(t, n, it.Record())
			}
			require.NoError(t, it.Err())
			require.Equal(t, javaRecords, n)

			_, err = CheckProduced(b, CheckOptions{RequireKeys: true})
			var fault *RecordError
			require.ErrorAs(t, err, &fault)
			require.ErrorIs(t, err, ErrInvalidRecord)
			require.Equal(t, int32(3), fault.Index)
		})
	}
}

// TestJavaCleaned cleans a batch as Kafka's cleaner did and compares the bytes.
func TestJavaCleaned(t *testing.T) {
	h, b := javaBatch(t, "uncleaned")
	_, want := javaBatch(t, "cleaned")
	var builder BatchBuilder
	builder.RebuildCompacted(&h, 1700000160000)
	it := IterateRecords(&h, b[BatchHeaderLen:])
	for it.Next() {
		if r := it.Record(); r.Offset%3 == 0 {
			builder.Keep(r)
		}
	}
	require.NoError(t, it.Err())
	got, err := builder.Build(nil)
	require.NoError(t, err)
	require.Equal(t, want, got)

	h, err = ParseBatchHeader(got)
	require.NoError(t, err)
	horizon, ok := h.DeleteHorizon()
	require.True(t, ok)
	require.Equal(t, int64(1700000160000), horizon)
	for it := IterateRecords(&h, got[BatchHeaderLen:]); it.Next(); {
		i := int(it.Record().Offset - 1000)
		checkJavaRecord(t, i, it.Record())
	}
}

func TestJavaMarkers(t *testing.T) {
	for marker, commit := range map[string]bool{
		"000000000000000000000042ffffffff02a1902d420030000000000000018bcfe568000000018bcfe568000000000000001092" +
			"0003ffffffff000000012000000008000000000c00000000000900": false,
		"000000000000000000000042ffffffff0255aefb0a0030000000000000018bcfe568000000018bcfe568000000000000001092" +
			"0003ffffffff000000012000000008000000010c00000000000900": true,
	} {
		want := mustHex(t, marker)
		m := EndTxnMarker{ProducerID: 4242, ProducerEpoch: 3, Commit: commit, CoordinatorEpoch: 9}
		var b BatchBuilder
		got, err := b.AppendEndTxnMarker(nil, m, 1700000000000)
		require.NoError(t, err)
		SetLeaderEpoch(got, -1)
		require.Equal(t, want, got)

		h, err := ParseBatchHeader(want)
		require.NoError(t, err)
		require.NoError(t, VerifyCRC(&h, want))
		parsed, ok, err := ParseEndTxnMarker(&h, want[BatchHeaderLen:])
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, m, parsed)

		_, err = CheckProduced(want, CheckOptions{})
		require.ErrorIs(t, err, ErrInvalidRecord, "a client may not write it")
	}
}
