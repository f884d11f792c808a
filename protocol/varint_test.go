package protocol

import (
	"encoding/binary"
	"math"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// interestingInt64 draws numbers around the lengths that varints can have.
func interestingInt64() *rapid.Generator[int64] {
	return rapid.Custom(func(t *rapid.T) int64 {
		v := int64(1) << rapid.IntRange(0, 63).Draw(t, "shift")
		return v + rapid.Int64Range(-2, 2).Draw(t, "near")
	})
}

func TestVarints(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		v := interestingInt64().Draw(t, "v")
		pad := rapid.IntRange(0, 3).Draw(t, "pad")
		b := binary.AppendVarint(nil, v)
		n := len(b)
		require.Equal(t, n, varintLen(v))
		b = append(b, make([]byte, pad)...)

		got, next := varlong(b, 0)
		require.Equal(t, v, got)
		require.Equal(t, n, next)
		got32, next := varint(b, 0)
		if v < math.MinInt32 || v > math.MaxInt32 {
			require.Negative(t, next)
		} else {
			require.Equal(t, int32(v), got32)
			require.Equal(t, n, next)
		}
		for cut := range n {
			_, next := varlong(b[:cut], 0)
			require.Negative(t, next)
			_, next = varint(b[:cut], 0)
			require.Negative(t, next)
			_, next = uvarint32(b[:cut], 0)
			require.Negative(t, next)
		}
	})
}

func TestVarintOverflow(t *testing.T) {
	for name, b := range map[string][]byte{
		"33 bits":            {0xff, 0xff, 0xff, 0xff, 0x1f},
		"zero in six bytes":  {0x80, 0x80, 0x80, 0x80, 0x80, 0x00},
		"no end":             {0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80, 0x80},
		"more than 64 bits":  {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02},
		"index past the end": nil,
	} {
		_, next := varint(b, 0)
		require.Negative(t, next, name)
		_, next = uvarint32(b, 0)
		require.Negative(t, next, name)
	}
	_, next := varlong([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x02}, 0)
	require.Negative(t, next)
	v, next := varlong([]byte{0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, 0)
	require.Equal(t, int64(math.MinInt64), v)
	require.Equal(t, 10, next)
}
