package keyfilter

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestSlotVectors are the vectors of the wire format, which clients in other languages
// share.
func TestSlotVectors(t *testing.T) {
	for _, v := range []struct {
		key    []byte
		offset int64
		slot   uint16
	}{
		{[]byte{}, 7, 61254},
		{[]byte("a"), 7, 53838},
		{[]byte("order-1"), 7, 15279},
		{[]byte("order-2"), 7, 36751},
		{[]byte("user-42"), 7, 14718},
		{nil, 0, 13513},
		{nil, 1, 40735},
		{nil, 1000000, 20273},
	} {
		require.Equal(t, v.slot, Slot(v.key, v.offset), "key %q, offset %d", v.key, v.offset)
	}
}

// TestSlotOfNullKey holds that a null key is hashed as the bytes of its offset, and
// that the full hash agrees with the slot.
func TestSlotOfNullKey(t *testing.T) {
	for offset := int64(0); offset < 1000; offset++ {
		b := binary.BigEndian.AppendUint64(nil, uint64(offset))
		require.Equal(t, Hash(b, 0), Hash(nil, offset))
		require.Equal(t, Slot(b, 0), Slot(nil, offset))
		require.Equal(t, uint16(Hash(b, 0)>>48), Slot(b, 0))
	}
}

// TestSlotsAreSpread would catch a slot taken from badly mixed bits: 65536 keys over
// 16 equal ranges, each within 5 % of its share.
func TestSlotsAreSpread(t *testing.T) {
	var counts [16]int
	for i := range Slots {
		counts[Slot(binary.AppendVarint(nil, int64(i)), 0)>>12]++
	}
	for i, n := range counts {
		require.InDelta(t, Slots/16, n, Slots/16*0.05, "range %d", i)
	}
}

func BenchmarkSlot(b *testing.B) {
	key := []byte("user-0000042")
	b.ReportAllocs()
	var sum uint64
	for b.Loop() {
		sum += uint64(Slot(key, 0))
	}
	sink = sum
}

var sink uint64
