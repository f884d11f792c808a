package protocol

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// pickable is a batch of n records with values that tell them apart, with its records.
func pickable(codec Codec, n int) (h BatchHeader, batch, records []byte) {
	var b BatchBuilder
	b.Reset(BatchOptions{BaseOffset: 1000, Codec: codec, ProducerID: 7, ProducerEpoch: 2, BaseSequence: 40})
	for i := range n {
		b.Append(fmt.Appendf(nil, "key-%d", i), fmt.Appendf(nil, "value-%d", i), nil, int64(5000+i))
	}
	batch = must1(b.Build(nil))
	h = must1(ParseBatchHeader(batch))
	return h, batch, must1(DecompressRecords(nil, &h, batch, 1<<20))
}

// What is picked is in the new batch, as it was, and nothing else is.
func TestPick(t *testing.T) {
	var picker Picker
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(append([]Codec{CodecNone}, compressing...)).Draw(t, "codec")
		n := rapid.IntRange(1, 60).Draw(t, "records")
		h, batch, records := pickable(codec, n)
		edges := rapid.SliceOfNDistinct(rapid.Int64Range(990, 1000+int64(n)+10), 0, 12, rapid.ID).Draw(t, "edges")
		slices.Sort(edges)
		var runs []Run
		for i := 0; i+1 < len(edges); i += 2 {
			runs = append(runs, Run{Start: edges[i], End: edges[i+1]})
		}
		before := []byte("before")
		got, err := picker.Append(slices.Clone(before), &h, batch, records, runs)
		require.NoError(t, err)
		require.Equal(t, before, got[:len(before)])
		made := got[len(before):]
		mh, err := ParseBatchHeader(made)
		require.NoError(t, err)
		require.NoError(t, VerifyCRC(&mh, made))
		require.Equal(t, len(made), mh.Size())
		var want, is []string
		for it := IterateRecords(&h, records); it.Next(); {
			r := it.Record()
			if slices.ContainsFunc(runs, func(run Run) bool { return run.Start <= r.Offset && r.Offset < run.End }) {
				want = append(want, fmt.Sprint(r.Offset, r.TimestampMs, string(r.Key), string(r.Value)))
			}
		}
		it := IterateRecords(&mh, must1(DecompressRecords(nil, &mh, made, 1<<20)))
		for it.Next() {
			r := it.Record()
			is = append(is, fmt.Sprint(r.Offset, r.TimestampMs, string(r.Key), string(r.Value)))
		}
		require.NoError(t, it.Err())
		require.Equal(t, want, is)
		mh.Length, mh.NumRecords, mh.CRC = h.Length, h.NumRecords, h.CRC
		require.Equal(t, h, mh)
	})
}

// A new checksum does not make good what is damaged.
func TestPickOfADamagedBatch(t *testing.T) {
	h, batch, records := pickable(CodecNone, 3)
	batch[len(batch)-3] ^= 1
	var picker Picker
	got, err := picker.Append([]byte("x"), &h, batch, records, []Run{{Start: 1000, End: 1001}})
	require.ErrorIs(t, err, ErrCorruptBatch)
	require.Equal(t, []byte("x"), got)
}

func BenchmarkPick(b *testing.B) {
	for _, codec := range []Codec{CodecNone, CodecLz4} {
		b.Run(fmt.Sprintf("codec=%v", codec), func(b *testing.B) {
			h, batch, records := pickable(codec, 150)
			var picker Picker
			var dst []byte
			b.ReportAllocs()
			b.SetBytes(int64(len(records)))
			for b.Loop() {
				dst, _ = picker.Append(dst[:0], &h, batch, records, []Run{{Start: 1040, End: 1060}})
			}
		})
	}
}
