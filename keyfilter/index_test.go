package keyfilter

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/protocol"
)

// indexed is a batch as a test knows it.
type indexed struct {
	IndexedBatch
	decoded *Decoded
}

// drawSegment draws batches that follow each other in a segment, some of them control
// batches, and indexes them.
func drawSegment(t *rapid.T, x *SlotIndex) []indexed {
	var all []indexed
	position, base := x.End()
	for range rapid.IntRange(0, 150).Draw(t, "batches") {
		if rapid.IntRange(0, 9).Draw(t, "gap") == 0 {
			base += rapid.Int64Range(1, 1000).Draw(t, "gap length")
		}
		batch := drawSmallBatch(t, base)
		d := mustDecode(t, batch)
		require.NoError(t, x.Append(d))
		next := d.Header().NextOffset()
		all = append(all, indexed{IndexedBatch{position, len(batch), base, next, d.Opaque(), d.Len(), nil}, d})
		position += int64(len(batch))
		base = next
	}
	return all
}

func drawSmallBatch(t *rapid.T, base int64) []byte {
	var b protocol.BatchBuilder
	o := protocol.PlainBatch(base)
	o.Control = rapid.IntRange(0, 9).Draw(t, "control") == 0
	b.Reset(o)
	delta := int32(0)
	for range rapid.IntRange(1, 4).Draw(t, "records") {
		delta += int32(rapid.IntRange(0, 1).Draw(t, "hole"))
		b.AppendAt(delta, drawKey(t), nil, nil, 0)
		delta++
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}

// mayMatch is what the cursor has to decide, from the batch itself. Of a batch with
// holes the index does not know which record has which offset.
func (b indexed) mayMatch(f *Filter, from int64) bool {
	if b.NextOffset <= from {
		return false
	}
	dense := int64(b.Records) == b.NextOffset-b.BaseOffset
	for i := range b.decoded.Len() {
		if f.MayMatch(b.decoded.Slot(i)) && (!dense || b.decoded.Offset(i) >= from) {
			return true
		}
	}
	return b.Opaque
}

// TestIndexAgainstBatches compares searches of an index, of its snapshot while it grew,
// and of one decoded again, with looking at all batches.
func TestIndexAgainstBatches(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewSlotIndex(rapid.Int64Range(0, 1<<40).Draw(t, "position"), rapid.Int64Range(0, 1<<40).Draw(t, "offset"))
		start, startOffset := x.Start()
		early := drawSegment(t, x)
		snapshot := *x
		all := append(early, drawSegment(t, x)...)

		checkIndex(t, x, all)
		checkIndex(t, &snapshot, early)

		encoded := x.AppendTo([]byte("xyz"), 42)[3:]
		require.Len(t, encoded, x.EncodedLen())
		decoded, stamp, err := DecodeSlotIndex(encoded)
		require.NoError(t, err)
		require.EqualValues(t, 42, stamp)
		checkIndex(t, decoded, all)
		require.Equal(t, encoded, decoded.AppendTo(nil, 42))
		position, offset := decoded.Start()
		require.Equal(t, start, position)
		require.Equal(t, startOffset, offset)

		// A decoded one grows, too, and does not write to the bytes it came from.
		stored := bytes.Clone(encoded)
		checkIndex(t, decoded, append(all, drawSegment(t, decoded)...))
		require.Equal(t, stored, encoded)
	})
}

func checkIndex(t *rapid.T, x *SlotIndex, all []indexed) {
	records := 0
	for _, b := range all {
		records += b.Records
	}
	require.Equal(t, len(all), x.Batches())
	require.Equal(t, records, x.Records())
	first, last := x.start.offset, x.end.offset
	final, ok := x.Last()
	require.Equal(t, len(all) > 0, ok)
	if ok {
		final.slots = nil
		require.Equal(t, all[len(all)-1].IndexedBatch, final)
	}
	for range 5 {
		f := mustFilter(t, drawFilter(t))
		from := rapid.Int64Range(first-1, last+1).Draw(t, "from")
		c := x.From(from)
		for _, b := range all {
			if !b.mayMatch(f, from) {
				continue
			}
			got, ok := c.Next(f)
			require.True(t, ok)
			require.Equal(t, string(b.decoded.slots), string(got.slots))
			got.slots = nil
			require.Equal(t, b.IndexedBatch, got)
		}
		_, ok := c.Next(f)
		require.False(t, ok)
		require.Equal(t, records, c.Records())
		_, ok = c.Next(f)
		require.False(t, ok, "and stays at the end")
	}
}

// TestIndexAppendIndex joins two indexes of neighbouring parts of a segment.
func TestIndexAppendIndex(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		x := NewSlotIndex(0, 100)
		all := drawSegment(t, x)
		position, offset := x.End()
		y := NewSlotIndex(position, offset+rapid.Int64Range(0, 5).Draw(t, "gap"))
		all = append(all, drawSegment(t, y)...)
		require.NoError(t, x.AppendIndex(y))
		checkIndex(t, x, all)
		if y.Batches() > 0 {
			require.Equal(t, y.end, x.end)
		}
	})
	x, y := NewSlotIndex(0, 0), NewSlotIndex(100, 0)
	require.ErrorIs(t, x.AppendIndex(y), ErrIndexOrder)
}

func TestIndexAppendRefuses(t *testing.T) {
	x := NewSlotIndex(0, 100)
	require.NoError(t, x.Append(mustDecode(t, plainBatch(t, 100, protocol.CodecNone, 5, 5, 5))))
	before := x.AppendTo(nil, 0)
	for name, base := range map[string]int64{"the same again": 100, "one that overlaps": 104, "one before": 0} {
		require.ErrorIs(t, x.Append(mustDecode(t, plainBatch(t, base, protocol.CodecNone, 5, 5, 5))), ErrIndexOrder, name)
	}
	require.ErrorIs(t, x.Append(mustDecode(t, plainBatch(t, math.MaxInt64-2, protocol.CodecNone, 5, 5, 5))), ErrIndexOrder, "offsets overflow")
	require.Equal(t, before, x.AppendTo(nil, 0), "nothing of them was added")
}

// TestDecodeSlotIndexFindsAnyDamage flips each byte and cuts at each length.
func TestDecodeSlotIndexFindsAnyDamage(t *testing.T) {
	x := NewSlotIndex(0, 0)
	for base := int64(0); base < 100; base += 10 {
		require.NoError(t, x.Append(mustDecode(t, plainBatch(t, base, protocol.CodecNone, 10, 5, 5))))
	}
	encoded := x.AppendTo(nil, 7)
	for i := range encoded {
		damaged := bytes.Clone(encoded)
		damaged[i] ^= 0x41
		_, _, err := DecodeSlotIndex(damaged)
		require.ErrorIs(t, err, ErrCorruptIndex, "byte %d", i)
		_, _, err = DecodeSlotIndex(encoded[:i])
		require.ErrorIs(t, err, ErrCorruptIndex, "%d bytes", i)
	}
	_, _, err := DecodeSlotIndex(append(encoded, 0))
	require.ErrorIs(t, err, ErrCorruptIndex)
}

// TestIndexIsSmall: 2 bytes per record and a few per batch.
func TestIndexIsSmall(t *testing.T) {
	for _, records := range []int{1, 137} {
		x := NewSlotIndex(0, 0)
		const batches = 200
		for i := range batches {
			require.NoError(t, x.Append(mustDecode(t, plainBatch(t, int64(i*records), protocol.CodecNone, records, 1000, 100))))
		}
		require.LessOrEqual(t, x.EncodedLen(), batches*(2*records+6)+indexHeaderLen+indexCRCLen, "%d records a batch", records)
	}
}

// FuzzDecodeSlotIndex gives mutated indexes a right checksum; what is accepted must be
// searchable and encode to the same bytes.
func FuzzDecodeSlotIndex(f *testing.F) {
	x := NewSlotIndex(0, 100)
	f.Add(x.AppendTo(nil, 1))
	for base := int64(100); base < 200; base += 11 {
		require.NoError(f, x.Append(mustDecode(f, plainBatch(f, base, protocol.CodecNone, 10, 5, 5))))
	}
	require.NoError(f, x.Append(mustDecode(f, marker(f, 300))))
	f.Add(x.AppendTo(nil, 2))
	f.Fuzz(func(t *testing.T, b []byte) {
		if len(b) > indexCRCLen {
			body := b[:len(b)-indexCRCLen]
			binary.LittleEndian.PutUint32(b[len(body):], crc32.Checksum(body, castagnoli))
		}
		x, _, err := DecodeSlotIndex(b)
		if err != nil {
			require.ErrorIs(t, err, ErrCorruptIndex)
			return
		}
		flt := mustFilter(t, protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 0, Hi: Slots - 1}}})
		_, last := x.End()
		c, next := x.From(0), int64(-1)
		for {
			got, ok := c.Next(flt)
			if !ok {
				break
			}
			require.Greater(t, got.BaseOffset, next-1)
			require.LessOrEqual(t, got.NextOffset, last)
			next = got.NextOffset
		}
		require.Equal(t, x.Records(), c.Records())
	})
}

// BenchmarkIndexNext passes over an index of 10 million records for one rare key, and for a
// range that half of the batches have nothing of.
func BenchmarkIndexNext(b *testing.B) {
	const batches, records = 73_000, 137
	x := NewSlotIndex(0, 0)
	for i := range batches {
		slots := make([]byte, 0, 2*records)
		for j := range records {
			slots = binary.LittleEndian.AppendUint16(slots, uint16(crc32.ChecksumIEEE(binary.AppendVarint(nil, int64(i*records+j)))>>16))
		}
		base := int64(i * records)
		if err := x.append(entry{size: 16 << 10, base: base, next: base + records, slots: slots}); err != nil {
			b.Fatal(err)
		}
	}
	for _, c := range []struct {
		name  string
		asked protocol.KeyFilter
	}{
		{"slots=1", protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 4711, Hi: 4711}}}},
		{"slots=300", protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 1000, Hi: 1299}}}},
		{"slots=3apart", protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 1, Hi: 1}, {Lo: 99, Hi: 99}, {Lo: 4711, Hi: 4711}}}},
		{"slots=4096", protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: 0, Hi: 4095}}}},
	} {
		b.Run(c.name, func(b *testing.B) {
			f := mustFilter(b, c.asked)
			b.ReportAllocs()
			hits := 0
			for b.Loop() {
				c := x.From(0)
				for hits = 0; ; hits++ {
					if _, ok := c.Next(f); !ok {
						break
					}
				}
			}
			b.ReportMetric(float64(hits), "batches")
			b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N*x.Records()), "ns/record")
		})
	}
}
