package keyfilter

import (
	"bytes"
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/protocol"
)

// TestRebuildAgainstNaive compares, for any batch and filter, what a client reads of
// the batch sent with what it would read of the stored one and keep.
func TestRebuildAgainstNaive(t *testing.T) {
	var r Rebuilder // one for all, so that what it keeps from one batch would show in the next
	var d Decoded
	rapid.Check(t, func(t *rapid.T) {
		base := rapid.Int64Range(0, 1<<40).Draw(t, "base")
		batch := drawBatch(t, base)
		stored := bytes.Clone(batch)
		asked := drawFilter(t)
		from := base + rapid.Int64Range(-2, 70).Draw(t, "from")

		require.NoError(t, d.Decode(batch, testDecodeLimit))
		require.NoError(t, d.Err())
		out, verdict := r.Append([]byte("before"), &d, mustFilter(t, asked), from)
		require.Equal(t, "before", string(out[:6]))
		require.Equal(t, stored, batch, "what is stored is not written to")
		out = out[6:]

		all := readByKgo(t, batch)
		matching, wanted := 0, []*kgo.Record{}
		for _, rec := range all {
			if naiveMatch(asked, rec.Key, rec.Offset) {
				matching++
				if rec.Offset >= from {
					wanted = append(wanted, rec)
				}
			}
		}
		switch {
		case len(wanted) == 0:
			require.Equal(t, None, verdict)
			require.Empty(t, out)
		case matching == len(all):
			require.Equal(t, All, verdict)
			require.Equal(t, batch, out, "passed through untouched")
		default:
			require.Equal(t, Some, verdict)
			require.Equal(t, wanted, readByKgo(t, out))
			requireSameHeader(t, batch, out, len(wanted))
		}
	})
}

// requireSameHeader holds that a rebuilt batch keeps all of the header but length,
// count and checksum, and that those are right.
func requireSameHeader(t require.TestingT, stored, sent []byte, count int) {
	want, err := protocol.ParseBatchHeader(stored)
	require.NoError(t, err)
	got, err := protocol.ParseBatchHeader(sent)
	require.NoError(t, err)
	require.NoError(t, protocol.VerifyCRC(&got, sent))
	require.EqualValues(t, count, got.NumRecords)
	want.NumRecords, want.Length, want.CRC = got.NumRecords, got.Length, got.CRC
	require.Equal(t, want, got)
}

// TestDecodedKnowsItsRecords holds that slots and offsets are those of the records.
func TestDecodedKnowsItsRecords(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		batch := drawBatch(t, rapid.Int64Range(0, 1<<40).Draw(t, "base"))
		d := mustDecode(t, batch)
		all := readByKgo(t, batch)
		require.Equal(t, len(all), d.Len())
		for i, rec := range all {
			require.Equal(t, rec.Offset, d.Offset(i))
			require.Equal(t, Slot(rec.Key, rec.Offset), d.Slot(i))
			require.Equal(t, rec.Key, d.key(i))
			require.Equal(t, rec.Key == nil, d.key(i) == nil)
		}
		first := 0
		for offset := d.Header().BaseOffset - 1; offset <= d.Header().NextOffset(); offset++ {
			for first < len(all) && all[first].Offset < offset {
				first++
			}
			require.Equal(t, first, d.firstAt(offset))
		}
	})
}

// TestDecodeIndexed comes to the same as Decode, from the slots that an index kept.
func TestDecodeIndexed(t *testing.T) {
	var again Decoded
	rapid.Check(t, func(t *rapid.T) {
		batch := drawBatch(t, rapid.Int64Range(0, 1<<40).Draw(t, "base"))
		d := mustDecode(t, batch)
		x := NewSlotIndex(0, 0)
		require.NoError(t, x.Append(d))
		b, _ := x.Last()
		require.NoError(t, again.DecodeIndexed(batch, testDecodeLimit, b))
		requireSameDecoded(t, d, &again)
	})
}

// TestDecodeIndexedOfAnother: an index that has a batch wrong changes no record's place
// and passes on none that is malformed.
func TestDecodeIndexedOfAnother(t *testing.T) {
	x := NewSlotIndex(0, 0)
	require.NoError(t, x.Append(mustDecode(t, plainBatch(t, 0, protocol.CodecNone, 10, 10, 20))))
	b, _ := x.Last()
	for _, n := range []int{1, 9, 11} {
		batch := plainBatch(t, 0, protocol.CodecLz4, n, 10, 20)
		var d Decoded
		require.NoError(t, d.DecodeIndexed(batch, testDecodeLimit, b))
		requireSameDecoded(t, mustDecode(t, batch), &d)
	}
	for at := protocol.BatchHeaderLen; at < protocol.BatchHeaderLen+40; at++ {
		batch := plainBatch(t, 0, protocol.CodecNone, 10, 10, 20)
		batch[at] ^= 0x22
		protocol.RenewCRC(batch)
		var d Decoded
		require.NoError(t, d.DecodeIndexed(batch, testDecodeLimit, b))
		if d.Err() == nil {
			require.Equal(t, 10, d.Len())
			require.EqualValues(t, len(d.records), d.starts[10])
		}
	}
}

func requireSameDecoded(t require.TestingT, want, got *Decoded) {
	require.Equal(t, want.Header(), got.Header())
	require.Equal(t, want.records, got.records)
	require.Equal(t, want.starts, got.starts)
	require.Equal(t, string(want.slots), string(got.slots))
	require.Equal(t, want.Opaque(), got.Opaque())
	for i := range want.Len() {
		require.Equal(t, want.Offset(i), got.Offset(i))
	}
}

// TestOpaqueBatchesPass: a control batch, and whatever cannot be decoded, goes to every
// reader as it is stored.
func TestOpaqueBatchesPass(t *testing.T) {
	nothing := mustFilter(t, protocol.KeyFilter{Keys: [][]byte{[]byte("nobody has this")}})
	damaged := plainBatch(t, 100, protocol.CodecNone, 10, 10, 20)
	damaged[80] ^= 1
	badCompression := plainBatch(t, 100, protocol.CodecGzip, 10, 10, 20)
	clear(badCompression[protocol.BatchHeaderLen:])
	protocol.RenewCRC(badCompression)
	lyingCount := plainBatch(t, 100, protocol.CodecNone, 10, 10, 20)
	binary.BigEndian.PutUint32(lyingCount[57:], 1<<31-1)
	protocol.RenewCRC(lyingCount)
	unknownCodec := plainBatch(t, 100, protocol.CodecNone, 10, 10, 20)
	unknownCodec[22] |= 7
	protocol.RenewCRC(unknownCodec)
	bomb := plainBatch(t, 100, protocol.CodecZstd, 1000, 1, 2000)

	for name, c := range map[string]struct {
		batch []byte
		err   error
	}{
		"control":              {marker(t, 100), nil},
		"wrong checksum":       {damaged, protocol.ErrCorruptBatch},
		"bad compression":      {badCompression, protocol.ErrCorruptCompression},
		"unknown codec":        {unknownCodec, protocol.ErrUnknownCodec},
		"a count that lies":    {lyingCount, protocol.ErrInvalidRecord},
		"more than the limit":  {bomb, protocol.ErrTooLarge},
		"another one, to keep": {marker(t, 5), nil},
	} {
		d := mustDecode(t, plainBatch(t, 0, protocol.CodecNone, 5, 5, 5)) // leaves something behind
		require.NoError(t, d.Decode(c.batch, testDecodeLimit), name)
		require.True(t, d.Opaque(), name)
		require.Zero(t, d.Len(), name)
		if c.err == nil {
			require.NoError(t, d.Err(), name)
		} else {
			require.ErrorIs(t, d.Err(), c.err, name)
		}
		var r Rebuilder
		out, verdict := r.Append(nil, d, nothing, 0)
		require.Equal(t, All, verdict, name)
		require.Equal(t, c.batch, out, name)
	}
}

// TestDecodeNeedsAHeader: without one there is not even a batch to pass.
func TestDecodeNeedsAHeader(t *testing.T) {
	batch := plainBatch(t, 0, protocol.CodecNone, 3, 3, 3)
	for name, b := range map[string][]byte{
		"nothing":       nil,
		"half a header": batch[:30],
		"cut off":       batch[:len(batch)-1],
		"two":           append(bytes.Clone(batch), batch...),
	} {
		var d Decoded
		require.ErrorIs(t, d.Decode(b, testDecodeLimit), protocol.ErrCorruptBatch, name)
	}
}

// TestEmptyBatchIsSkipped: the cleaner leaves batches without records for the sake of
// producers' sequence numbers; no reader wants one.
func TestEmptyBatchIsSkipped(t *testing.T) {
	stored := plainBatch(t, 10, protocol.CodecZstd, 3, 3, 3)
	h, err := protocol.ParseBatchHeader(stored)
	require.NoError(t, err)
	var b protocol.BatchBuilder
	b.Rebuild(&h)
	empty, err := b.Build(nil)
	require.NoError(t, err)
	d := mustDecode(t, empty)
	require.False(t, d.Opaque())
	var r Rebuilder
	out, verdict := r.Append(nil, d, mustFilter(t, protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 0, Hi: Slots - 1}}}), 0)
	require.Equal(t, None, verdict)
	require.Empty(t, out)
}

// TestRebuildBytesSent holds the budget of bytes: at most 1.1 times those of the
// matching records plus 61 per batch without compression.
func TestRebuildBytesSent(t *testing.T) {
	f := sixteenth(t, 0)
	var r Rebuilder
	var sent, want int
	for base := int64(0); base < 100*137; base += 137 {
		d := mustDecode(t, plainBatch(t, base, protocol.CodecNone, 137, 1000, 100))
		out, _ := r.Append(nil, d, f, 0)
		sent += len(out)
		if len(out) > 0 {
			want += protocol.BatchHeaderLen
		}
		for i := range d.Len() {
			if f.MayMatch(d.Slot(i)) {
				want += int(d.starts[i+1] - d.starts[i])
			}
		}
	}
	require.Positive(t, want)
	require.Equal(t, want, sent, "no byte more than the records and a header per batch")
}

// TestRebuildBytesSentCompressed holds the budget of bytes in a codec: a sixteenth of the
// records of a batch of 16 KiB of text takes at most 1.8 times its share of the stored
// batch, the 61 bytes of a header included.
func TestRebuildBytesSentCompressed(t *testing.T) {
	f := sixteenth(t, 0)
	var r Rebuilder
	for _, codec := range codecs[1:] {
		var sent, share float64
		for base := int64(0); base < 100*137; base += 137 {
			batch := plainBatch(t, base, codec, 137, 1000, 100)
			d := mustDecode(t, batch)
			out, _ := r.Append(nil, d, f, 0)
			sent += float64(len(out))
			for i := range d.Len() {
				if f.MayMatch(d.Slot(i)) {
					share += float64(d.starts[i+1]-d.starts[i]) / float64(len(d.records)) * float64(len(batch))
				}
			}
		}
		require.LessOrEqual(t, sent, 1.8*share, "%s: %.2f times", codec, sent/share)
	}
}

// TestRebuildAllocatesNothing in steady state, in any codec.
func TestRebuildAllocatesNothing(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop at random under the race detector")
	}
	for _, codec := range codecs {
		batch := plainBatch(t, 0, codec, 137, 1000, 100)
		f := sixteenth(t, 0)
		var d Decoded
		var r Rebuilder
		var out []byte
		got := testing.AllocsPerRun(100, func() {
			if err := d.Decode(batch, testDecodeLimit); err != nil {
				t.Fatal(err)
			}
			out, _ = r.Append(out[:0], &d, f, 0)
		})
		require.Less(t, got, 1.0, "%s: allocations per batch of 137 records", codec)
	}
}

// sixteenth is a filter of one sixteenth of the slots.
func sixteenth(t testing.TB, i int) *Filter {
	return mustFilter(t, protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: uint16(i << 12), Hi: uint16(i<<12 + 4095)}}})
}

// FuzzDecode throws bytes at Decode; what it accepts must be filtered without harm, and
// what it passes or builds must be a batch again.
func FuzzDecode(f *testing.F) {
	for _, codec := range codecs {
		f.Add(plainBatch(f, 100, codec, 20, 5, 10), uint16(0), uint16(30000), int64(105))
	}
	f.Add(marker(f, 9), uint16(1), uint16(1), int64(0))
	f.Fuzz(func(t *testing.T, batch []byte, lo, hi uint16, from int64) {
		if len(batch) > protocol.BatchHeaderLen {
			protocol.RenewCRC(batch) // or nearly nothing gets past the checksum
		}
		var d Decoded
		if d.Decode(batch, testDecodeLimit) != nil {
			return
		}
		flt := mustFilter(t, protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: min(lo, hi), Hi: max(lo, hi)}}, Keys: [][]byte{[]byte("key-00000001")}})
		var r Rebuilder
		out, verdict := r.Append(nil, &d, flt, from)
		if verdict == None {
			require.Empty(t, out)
			return
		}
		again := mustDecode(t, out)
		if verdict == All {
			require.Equal(t, batch, out)
			return
		}
		require.NoError(t, again.Err())
		require.LessOrEqual(t, again.Len(), d.Len())
		_, verdict = r.Append(nil, again, flt, from)
		require.Equal(t, All, verdict, "what was kept matches")
	})
}
