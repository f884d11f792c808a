package keyfilter

import (
	"encoding/binary"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/protocol"
)

func TestNewRefuses(t *testing.T) {
	for name, asked := range map[string]protocol.KeyFilter{
		"neither ranges nor keys":         {},
		"a range that ends before it has": {Ranges: []protocol.SlotRange{{Lo: 0, Hi: 9}, {Lo: 5, Hi: 4}}},
	} {
		_, err := New(asked)
		require.ErrorIs(t, err, ErrInvalidFilter, name)
	}
}

// TestFilterMatchesItsDefinition compares with loops over the ranges and keys.
func TestFilterMatchesItsDefinition(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		asked := drawFilter(t)
		f := mustFilter(t, asked)
		for range 100 {
			key, offset := drawKey(t), rapid.Int64Range(0, 1<<40).Draw(t, "offset")
			want := naiveMatch(asked, key, offset)
			require.Equal(t, want, f.Match(key, offset), "key %q at %d", key, offset)
			if want {
				require.True(t, f.MayMatch(Slot(key, offset)))
			}
		}
	})
}

// TestSlotSetAllSlots compares with a map over all slots, for sets whose ranges touch,
// overlap, end on word boundaries and lie at both ends.
func TestSlotSetAllSlots(t *testing.T) {
	for _, ranges := range [][]protocol.SlotRange{
		nil,
		{{Lo: 0, Hi: Slots - 1}},
		{{Lo: 5, Hi: 5}},
		{{Lo: 0, Hi: 0}, {Lo: Slots - 1, Hi: Slots - 1}},
		{{Lo: 10, Hi: 20}, {Lo: 21, Hi: 30}},
		{{Lo: 0, Hi: 63}, {Lo: 128, Hi: 191}, {Lo: 300, Hi: 300}},
		{{Lo: 100, Hi: 1000}, {Lo: 50, Hi: 200}, {Lo: 60000, Hi: Slots - 1}, {Lo: 150, Hi: 160}},
	} {
		in := map[uint16]bool{}
		for _, r := range ranges {
			for slot := int(r.Lo); slot <= int(r.Hi); slot++ {
				in[uint16(slot)] = true
			}
		}
		s := newSlotSet(append([]protocol.SlotRange(nil), ranges...))
		for slot := range Slots {
			if in[uint16(slot)] != s.contains(uint16(slot)) {
				t.Fatalf("slot %d of %v: want %v", slot, ranges, in[uint16(slot)])
			}
		}
		require.Equal(t, len(in) == Slots, s.full(), "%v", ranges)
	}
}

// TestSlotSetNext compares the searches, of which the one for a single slot looks at
// four at a time, with a loop.
func TestSlotSetNext(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		// Slots one apart and with extreme bytes are where a borrow between lanes would show.
		some := rapid.SampledFrom([]uint16{0, 1, 2, 0x7fff, 0x8000, 0x8001, 0xfffe, 0xffff, 300})
		var ranges []protocol.SlotRange
		for range rapid.IntRange(0, 3).Draw(t, "ranges") {
			lo := some.Draw(t, "lo")
			ranges = append(ranges, protocol.SlotRange{Lo: lo, Hi: max(lo, some.Draw(t, "hi"))})
		}
		if len(ranges) == 1 && rapid.Bool().Draw(t, "single") {
			ranges[0].Hi = ranges[0].Lo
		}
		s := newSlotSet(ranges)
		var slots []byte
		for range rapid.IntRange(0, 40).Draw(t, "n") {
			slots = binary.LittleEndian.AppendUint16(slots, some.Draw(t, "slot"))
		}
		n := len(slots) / 2
		for from := range n + 1 {
			want := from
			for want < n && !s.contains(slotAt(slots, want)) {
				want++
			}
			require.Equal(t, want, s.next(slots, from), "from %d", from)
		}
	})
}

// TestKeySetOfMany holds that 100,000 keys, the most that a request may name, are told
// from as many others, and that twins are one.
func TestKeySetOfMany(t *testing.T) {
	var keys [][]byte
	for i := range 100_000 {
		keys = append(keys, fmt.Appendf(nil, "key-%d", i))
	}
	keys = append(keys, keys[:10]...)
	f := mustFilter(t, protocol.KeyFilter{Keys: keys})
	require.Len(t, f.keys.keys, 100_000)
	for i := range 200_000 {
		if f.Match(fmt.Appendf(nil, "key-%d", i), 0) != (i < 100_000) {
			t.Fatalf("key-%d: want %v", i, i < 100_000)
		}
	}
	require.False(t, f.Match(nil, 0))
	require.False(t, f.Match([]byte{}, 0))
}

// TestKeySetTellsKeysOfOneHash puts two keys of the same hash into the table.
func TestKeySetTellsKeysOfOneHash(t *testing.T) {
	s := newKeySet([][]byte{[]byte("a")})
	hash := s.keys[0].hash
	require.True(t, s.contains(hash, []byte("a")))
	require.False(t, s.contains(hash, []byte("b")), "the hash alone does not do")
	at, ok := s.find(hash, []byte("b"))
	require.False(t, ok)
	s.keys = append(s.keys, hashedKey{hash, []byte("b")})
	s.table[at] = 2
	require.True(t, s.contains(hash, []byte("a")))
	require.True(t, s.contains(hash, []byte("b")))
	require.False(t, s.contains(hash, []byte("c")))
}

// TestSlotSetAdd adds slot after slot and compares with a map.
func TestSlotSetAdd(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		some := rapid.Uint16Range(0, 130)
		s := newSlotSet(nil)
		in := map[uint16]bool{}
		if rapid.Bool().Draw(t, "ranges") {
			lo := some.Draw(t, "lo")
			hi := max(lo, some.Draw(t, "hi"))
			s = newSlotSet([]protocol.SlotRange{{Lo: lo, Hi: hi}})
			for slot := lo; slot <= hi; slot++ {
				in[slot] = true
			}
		}
		for range rapid.IntRange(0, 5).Draw(t, "adds") {
			before := s.clone()
			was := before.contains(7)
			slot := some.Draw(t, "slot")
			s.add(slot)
			in[slot] = true
			require.Equal(t, was, before.contains(7), "the one before is as it was")
			for slot := range uint16(200) {
				require.Equal(t, in[slot], s.contains(slot), "slot %d", slot)
			}
		}
	})
}

func BenchmarkNew(b *testing.B) {
	for _, c := range []struct {
		name         string
		ranges, keys int
	}{{"ranges=1", 1, 0}, {"ranges=8", 8, 0}, {"keys=1", 0, 1}, {"keys=100", 0, 100}, {"keys=100000", 0, 100000}} {
		b.Run(c.name, func(b *testing.B) {
			var asked protocol.KeyFilter
			for i := range c.ranges {
				asked.Ranges = append(asked.Ranges, protocol.SlotRange{Lo: uint16(i * 8000), Hi: uint16(i*8000 + 99)})
			}
			for i := range c.keys {
				asked.Keys = append(asked.Keys, fmt.Appendf(nil, "key-%d", i))
			}
			b.ReportAllocs()
			for b.Loop() {
				if _, err := New(asked); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}
