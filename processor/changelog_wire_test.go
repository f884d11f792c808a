package processor

import (
	"bytes"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/client"
)

func TestChangesAreReadAsTheyWereWritten(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := entryChange{slot: rapid.Uint16().Draw(t, "slot"), key: rapid.SliceOf(rapid.Byte()).Draw(t, "key")}
		var value []byte
		if want.gone = rapid.Bool().Draw(t, "gone"); !want.gone {
			want.value = rapid.SliceOf(rapid.Byte()).Draw(t, "value")
			value = appendEntryValue(nil, want.value)
		}
		got, err := decodeEntry(appendEntryKey(nil, want.slot, want.key), value)
		require.NoError(t, err)
		require.Equal(t, want.gone, got.gone)
		require.Equal(t, want.slot, got.slot)
		require.True(t, bytes.Equal(want.key, got.key) && bytes.Equal(want.value, got.value))
	})
	rapid.Check(t, func(t *rapid.T) {
		lo := rapid.Uint16().Draw(t, "lo")
		want := progressChange{topic: [16]byte(rapid.SliceOfN(rapid.Byte(), 16, 16).Draw(t, "topic")),
			partition: rapid.Int32Min(0).Draw(t, "partition"), slots: client.SlotRange{Lo: lo, Hi: rapid.Uint16Min(lo).Draw(t, "hi")},
			next: rapid.Int64Min(0).Draw(t, "next"), partitions: rapid.Int32Min(1).Draw(t, "partitions")}
		got, err := decodeProgress(want.appendKey(nil), want.appendValue(nil))
		require.NoError(t, err)
		require.Equal(t, want, got)
	})
}

// FuzzChange: what can be read is written as it was, and nothing else panics.
func FuzzChange(f *testing.F) {
	p := progressChange{partition: 1, slots: client.SlotRange{Hi: 9}, next: 7, partitions: 2}
	f.Add(p.appendKey(nil), p.appendValue(nil), false)
	f.Add(appendEntryKey(nil, 300, []byte("store\x00key")), appendEntryValue(nil, []byte("value")), false)
	f.Add(appendEntryKey(nil, 0, nil), []byte(nil), true)
	f.Fuzz(func(t *testing.T, key, value []byte, null bool) {
		if null {
			value = nil
		}
		if e, err := decodeEntry(key, value); err == nil && len(key) > 0 && key[0] == changeEntry {
			require.Equal(t, key, appendEntryKey(nil, e.slot, e.key))
			require.Equal(t, value == nil, e.gone)
			if !e.gone {
				require.Equal(t, value, appendEntryValue(nil, e.value))
			}
		}
		if p, err := decodeProgress(key, value); err == nil && key[0] == changeProgress {
			require.Equal(t, key, p.appendKey(nil))
			require.Equal(t, value, p.appendValue(nil))
		}
	})
}
