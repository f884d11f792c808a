package protocol

import (
	"bytes"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func FuzzFrame(f *testing.F) {
	f.Add(frameOf([]byte("body")), 100)
	f.Add([]byte{0x7f, 0xff, 0xff, 0xff}, 1<<30)
	f.Fuzz(func(t *testing.T, b []byte, limit int) {
		frame, err := ReadFrame(bytes.NewReader(b), nil, limit)
		if err == nil {
			require.LessOrEqual(t, len(frame), limit)
			require.Equal(t, b[:FramePrefixLen+len(frame)], frameOf(frame))
		}
	})
}

func FuzzRequestHeader(f *testing.F) {
	formatter := kmsg.NewRequestFormatter(kmsg.FormatterClientID("client"))
	for key := int16(0); key <= kmsg.MaxKey; key++ {
		if req := kmsg.RequestForKey(key); req != nil {
			req.SetVersion(req.MaxVersion())
			f.Add(formatter.AppendRequest(nil, req, 1)[FramePrefixLen:], FlexibleFrom(req))
		}
	}
	f.Fuzz(func(t *testing.T, frame []byte, flexible int16) {
		h, body, err := ParseRequestHeader(frame, flexible)
		if err != nil {
			require.ErrorIs(t, err, ErrMalformedFrame)
			return
		}
		require.GreaterOrEqual(t, min(h.APIKey, h.APIVersion), int16(0))
		require.True(t, bytes.HasSuffix(frame, body))
	})
}

// addBatches seeds a fuzz test with batches of every codec.
func addBatches(f *testing.F, add func(codec Codec, batch []byte)) {
	for _, codec := range append([]Codec{CodecNone}, compressing...) {
		_, batch := benchBatch(f, codec, 3)
		add(codec, batch)
	}
	add(CodecNone, mustHex(f, goldenBatch))
}

// FuzzCheckProduced makes the length and the checksum right, so that what they cover is
// reached.
func FuzzCheckProduced(f *testing.F) {
	addBatches(f, func(_ Codec, batch []byte) { f.Add(batch) })
	f.Fuzz(func(t *testing.T, b []byte) {
		_, _ = CheckProduced(slices.Clone(b), CheckOptions{WalkCompressed: true, MaxDecodedBytes: 1 << 20})
		if len(b) < BatchHeaderLen {
			return
		}
		b[8], b[9], b[10], b[11] = 0, 0, byte((len(b)-batchPrefixLen)>>8), byte(len(b)-batchPrefixLen)
		RenewCRC(b)
		h, err := CheckProduced(b, CheckOptions{WalkCompressed: true, MaxDecodedBytes: 1 << 20})
		if err != nil {
			return
		}
		// What is accepted can be read, also by others, and is left alone from then on.
		got, records := readBatch(t, b)
		require.Equal(t, h, got)
		require.Len(t, records, int(h.NumRecords))
		part, _ := kgo.ProcessFetchPartition(kgo.ProcessFetchPartitionOpts{},
			&kmsg.FetchResponseTopicPartition{RecordBatches: b}, kgo.DefaultDecompressor(), nil)
		if h.Codec() != CodecLz4 || part.Err == nil { // it looks at checksums of the content
			require.NoError(t, part.Err)
			require.Len(t, part.Records, len(records))
		}
		before := slices.Clone(b)
		_, err = CheckProduced(b, CheckOptions{WalkCompressed: true, MaxDecodedBytes: 1 << 20})
		require.NoError(t, err)
		require.Equal(t, before, b)
	})
}

func FuzzRecords(f *testing.F) {
	addBatches(f, func(codec Codec, batch []byte) {
		if codec == CodecNone {
			h := must1(ParseBatchHeader(batch))
			f.Add(batch[BatchHeaderLen:], h.NumRecords, h.LastOffsetDelta)
		}
	})
	f.Fuzz(func(t *testing.T, b []byte, count, last int32) {
		h := BatchHeader{NumRecords: count, LastOffsetDelta: last, BaseOffset: 100}
		it := IterateRecords(&h, b)
		var raw []byte
		n, previous := int32(0), int64(99)
		for it.Next() {
			r := it.Record()
			require.Greater(t, r.Offset, previous)
			previous = r.Offset
			raw = append(raw, r.Raw...)
			headers := IterateHeaders(r.Headers)
			for left := headers.Len(); left > 0; left-- {
				require.True(t, headers.Next(), "headers have been checked")
			}
			require.False(t, headers.Next())
			n++
		}
		require.True(t, bytes.HasPrefix(b, raw))
		if it.Err() == nil {
			require.Equal(t, count, n)
			require.Len(t, raw, len(b))
			if n > 0 {
				require.LessOrEqual(t, previous, h.LastOffset())
			}
		}
	})
}

func fuzzDecompress(f *testing.F, codec Codec) {
	for _, content := range [][]byte{{}, []byte("hello hello hello hello"), textOf(5000, 31), noise(200, 32)} {
		f.Add(must1(CompressRecords(nil, codec, content)), uint16(len(content)))
		for _, e := range otherEncoders() {
			if e.codec == codec {
				f.Add(e.encode(content), uint16(len(content)))
			}
		}
	}
	reference := kgo.DefaultDecompressor()
	f.Fuzz(func(t *testing.T, b []byte, max uint16) {
		limit := int(max)
		got, err := decompress(nil, codec, b, limit)
		if err != nil {
			return
		}
		require.LessOrEqual(t, len(got), limit)
		want, err := reference.Decompress(b, kgo.CompressionCodecType(codec))
		if err != nil && (codec == CodecLz4 || bytes.HasPrefix(b, xerialMagic) && len(got) == 0) {
			return // it looks at checksums of the content, and wants a block
		}
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	})
}

func FuzzGzip(f *testing.F)   { fuzzDecompress(f, CodecGzip) }
func FuzzSnappy(f *testing.F) { fuzzDecompress(f, CodecSnappy) }
func FuzzLz4(f *testing.F)    { fuzzDecompress(f, CodecLz4) }
func FuzzZstd(f *testing.F)   { fuzzDecompress(f, CodecZstd) }

func FuzzCompress(f *testing.F) {
	f.Add([]byte("hello hello hello hello"))
	f.Fuzz(func(t *testing.T, content []byte) {
		for _, codec := range compressing {
			packed := must1(CompressRecords(nil, codec, content))
			got, err := decompress(nil, codec, packed, len(content))
			require.NoError(t, err)
			require.True(t, bytes.Equal(content, got))
		}
	})
}

func FuzzEndTxnMarker(f *testing.F) {
	for _, commit := range []bool{true, false} {
		var b BatchBuilder
		f.Add(must1(b.AppendEndTxnMarker(nil, EndTxnMarker{Commit: commit, CoordinatorEpoch: 9}, 1)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		h, err := ParseBatchHeader(b)
		if err != nil {
			return
		}
		m, ok, err := ParseEndTxnMarker(&h, b[BatchHeaderLen:])
		if err != nil || !ok {
			return
		}
		var builder BatchBuilder
		again := must1(builder.AppendEndTxnMarker(nil, m, 0))
		h = must1(ParseBatchHeader(again))
		got, ok, err := ParseEndTxnMarker(&h, again[BatchHeaderLen:])
		require.NoError(t, err)
		require.True(t, ok)
		require.Equal(t, m, got)
	})
}

// fuzzField checks that what parses is written and parsed as the same again.
func fuzzField[T any](f *testing.F, parse func([]byte) (T, error), appendTo func(*T, []byte) []byte, seeds ...T) {
	for i := range seeds {
		f.Add(appendTo(&seeds[i], nil))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		v, err := parse(b)
		if err != nil {
			require.ErrorIs(t, err, ErrInvalidExtension)
			return
		}
		again := appendTo(&v, nil)
		require.LessOrEqual(t, len(again), len(b)+2, "only unknown tags and long numbers get lost")
		got, err := parse(again)
		require.NoError(t, err)
		require.Equal(t, v, got)
	})
}

func FuzzKeyFilter(f *testing.F) {
	fuzzField(f, ParseKeyFilter, (*KeyFilter).AppendTo,
		KeyFilter{Ranges: []SlotRange{{0, 99}, {65535, 65535}}, Keys: [][]byte{[]byte("order-1"), {}}})
}

func FuzzIndividualOffsets(f *testing.F) {
	fuzzField(f, ParseIndividualOffsets, (*IndividualOffsets).AppendTo,
		IndividualOffsets{Commit: []Run{{5, 7}, {9, 10}, {300, 1300}}, Reopen: []Run{{7, 8}}, Origin: NoOrigin},
		IndividualOffsets{Origin: 7})
}

func FuzzIndividualState(f *testing.F) {
	fuzzField(f, ParseIndividualState, (*IndividualState).AppendTo, IndividualState{Stable: 4, MaxCommit: 9})
}

func FuzzGapsRequest(f *testing.F) {
	fuzzField(f, ParseGapsRequest, (*GapsRequest).AppendTo, GapsRequest{}, GapsRequest{From: 7, MaxRuns: 100}, GapsRequest{MaxRuns: 1, MaxPending: 100})
}

func FuzzIndividualGaps(f *testing.F) {
	fuzzField(f, ParseIndividualGaps, (*IndividualGaps).AppendTo,
		IndividualGaps{MaxCommit: 12, Gaps: []Run{{3, 4}, {7, 9}}, CompleteTo: GapsComplete},
		IndividualGaps{MaxCommit: -1, CompleteTo: 5},
		IndividualGaps{MaxCommit: 9, CompleteTo: GapsComplete, Pending: &Pending{CompleteTo: 12, Transactions: []PendingCommit{
			{ProducerID: 77, ProducerEpoch: 1, Offset: NoOffset, Runs: []Run{{5, 7}, {10, 11}}}, {ProducerID: 78, Offset: 7}}}})
}

func FuzzScannedTo(f *testing.F) {
	fuzzField(f, ParseScannedTo, (*ScannedTo).AppendTo, ScannedTo{Next: 255})
}

func FuzzFilterApplied(f *testing.F) {
	fuzzField(f, ParseFilterApplied, (*FilterApplied).AppendTo, FilterApplied{})
}
