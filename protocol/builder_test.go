package protocol

import (
	"math"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// rebuild keeps the records of batch whose index is in kept.
func rebuild(t require.TestingT, b *BatchBuilder, begin func(*BatchHeader), batch []byte, kept func(int) bool) []byte {
	h, err := ParseBatchHeader(batch)
	require.NoError(t, err)
	records, err := DecompressRecords(nil, &h, batch, 1<<20)
	require.NoError(t, err)
	begin(&h)
	it := IterateRecords(&h, records)
	for i := 0; it.Next(); i++ {
		if kept(i) {
			b.Keep(it.Record())
		}
	}
	require.NoError(t, it.Err())
	out, err := b.Build(nil)
	require.NoError(t, err)
	return out
}

func TestRebuild(t *testing.T) {
	var b BatchBuilder
	rapid.Check(t, func(t *rapid.T) {
		records := drawRecords(t, rapid.Bool().Draw(t, "sparse"))
		batch := buildBatch(t, &b, drawOptions(t), records)
		if rapid.Bool().Draw(t, "log append time") {
			SetLogAppendTime(batch, 1<<43)
		}
		keep := rapid.SliceOfN(rapid.Bool(), len(records), len(records)).Draw(t, "keep")
		kept := func(i int) bool { return keep[i] }
		h, original := readBatch(t, batch)
		want := slices.Clone(original)[:0]
		for i, r := range original {
			if keep[i] {
				want = append(want, r)
			}
		}

		filtered, got := readBatch(t, rebuild(t, &b, b.Rebuild, batch, kept))
		require.Equal(t, want, append([]testRecord{}, got...))
		require.Equal(t, int32(len(want)), filtered.NumRecords)
		if len(want) == 0 {
			require.Equal(t, CodecNone, filtered.Codec())
			filtered.Attributes |= h.Attributes & attrCodecMask
		}
		filtered.Length, filtered.CRC, filtered.NumRecords = h.Length, h.CRC, h.NumRecords
		require.Equal(t, h, filtered, "nothing else of the header changes")

		horizon := rapid.SampledFrom([]int64{-1, 0, h.FirstTimestamp, 1 << 44}).Draw(t, "horizon")
		begin := func(h *BatchHeader) { b.RebuildCompacted(h, horizon) }
		compacted, got := readBatch(t, rebuild(t, &b, begin, batch, kept))
		require.Equal(t, want, append([]testRecord{}, got...), "records keep their times under a new base")
		maxTime := h.MaxTimestamp
		for i, r := range want {
			if i == 0 || r.timestamp > maxTime {
				maxTime = r.timestamp
			}
		}
		require.Equal(t, maxTime, compacted.MaxTimestamp)
		ms, ok := compacted.DeleteHorizon()
		require.Equal(t, horizon >= 0, ok)
		if ok {
			require.Equal(t, horizon, ms)
		}
		require.Equal(t, h.LastOffsetDelta, compacted.LastOffsetDelta)
	})
}

// TestEmptiedBatch is what the cleaner leaves to remember a producer's last sequence.
func TestEmptiedBatch(t *testing.T) {
	for _, codec := range append([]Codec{CodecNone}, compressing...) {
		h, batch := benchBatch(t, codec, 10)
		var b BatchBuilder
		empty := rebuild(t, &b, b.Rebuild, batch, func(int) bool { return false })
		require.Len(t, empty, BatchHeaderLen)
		got, records := readBatch(t, empty)
		require.Empty(t, records)
		require.Equal(t, h.LastOffset(), got.LastOffset())
		require.Equal(t, CodecNone, got.Codec(), "clients fail to decompress nothing")
	}
}

func TestKeepInNewBatch(t *testing.T) {
	h, batch := benchBatch(t, CodecNone, 10)
	var b BatchBuilder
	o := PlainBatch(0)
	o.Codec = CodecLz4
	b.Reset(o)
	for it := IterateRecords(&h, batch[BatchHeaderLen:]); it.Next(); {
		if it.Record().Offset >= 4 {
			b.Keep(it.Record())
		}
	}
	require.Equal(t, 6, b.Count())
	_, want := readBatch(t, batch)
	got, records := readBatch(t, must1(b.Build(nil)))
	require.Equal(t, want[4:], records)
	require.Equal(t, want[4].timestamp, got.FirstTimestamp)
	require.Equal(t, int32(9), got.LastOffsetDelta)
}

func TestBuildRefusesNothing(t *testing.T) {
	var b BatchBuilder
	b.Reset(PlainBatch(0))
	_, err := b.Build(nil)
	require.ErrorIs(t, err, ErrNoRecords)
	b.Append(nil, nil, nil, 0)
	require.Equal(t, BatchHeaderLen+7, b.Size())
	batch := must1(b.Build([]byte("kept")))
	require.Equal(t, "kept", string(batch[:4]))
	require.Len(t, batch[4:], b.Size())
	again := must1(b.Build(nil))
	require.Equal(t, batch[4:], again, "building again gives the same")
}

func TestExtremeTimes(t *testing.T) {
	var b BatchBuilder
	b.Reset(PlainBatch(math.MaxInt64 - 10))
	times := []int64{math.MinInt64, math.MaxInt64, 0, -1}
	for _, ms := range times {
		b.Append(nil, nil, nil, ms)
	}
	h, records := readBatch(t, must1(b.Build(nil)))
	for i, r := range records {
		require.Equal(t, times[i], r.timestamp, "deltas wrap and come back")
	}
	require.Equal(t, int64(math.MaxInt64), h.MaxTimestamp)
	require.Equal(t, int64(math.MaxInt64-7), h.LastOffset())
}

func TestMarkers(t *testing.T) {
	var b BatchBuilder
	control := func(key, value []byte) (BatchHeader, []byte) {
		o := PlainBatch(0)
		o.Control = true
		b.Reset(o)
		b.Append(key, value, nil, 0)
		batch := must1(b.Build(nil))
		return must1(ParseBatchHeader(batch)), batch[BatchHeaderLen:]
	}
	h, records := control([]byte{0, 0, 0, 2}, []byte("a leader change"))
	_, ok, err := ParseEndTxnMarker(&h, records)
	require.NoError(t, err)
	require.False(t, ok, "a control batch of another kind")

	h, records = control([]byte{0, 7, 0, 1, 9}, []byte{0, 7, 0, 0, 0, 5, 1, 2, 3})
	m, ok, err := ParseEndTxnMarker(&h, records)
	require.NoError(t, err)
	require.True(t, ok, "later versions add fields at the end")
	require.Equal(t, EndTxnMarker{ProducerID: -1, ProducerEpoch: -1, Commit: true, CoordinatorEpoch: 5}, m)

	for name, kv := range map[string][2][]byte{
		"short key":   {{0, 0, 0}, {0, 0, 0, 0, 0, 5}},
		"null key":    {nil, {0, 0, 0, 0, 0, 5}},
		"short value": {{0, 0, 0, 1}, {0, 0, 0, 0, 0}},
		"null value":  {{0, 0, 0, 1}, nil},
	} {
		h, records := control(kv[0], kv[1])
		_, _, err := ParseEndTxnMarker(&h, records)
		require.ErrorIs(t, err, ErrInvalidRecord, name)
	}
	h, records = control([]byte{0, 0, 0, 1}, []byte{0, 0, 0, 0, 0, 5})
	_, _, err = ParseEndTxnMarker(&h, records[:len(records)-1])
	require.ErrorIs(t, err, ErrInvalidRecord)
	h.NumRecords = 0
	_, ok, err = ParseEndTxnMarker(&h, nil)
	require.NoError(t, err)
	require.False(t, ok, "emptied by the cleaner")
	h.Attributes = 0
	_, ok, err = ParseEndTxnMarker(&h, records)
	require.NoError(t, err)
	require.False(t, ok, "no control batch")
}
