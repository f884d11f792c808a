package assignor

import (
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// TestAreaModel holds areas against sets of units.
func TestAreaModel(t *testing.T) {
	const most = 40
	spans := rapid.SliceOfN(rapid.Custom(func(t *rapid.T) Span {
		return Span{rapid.Int64Range(0, most).Draw(t, "from"), rapid.Int64Range(0, most).Draw(t, "to")}
	}), 0, 6)
	rapid.Check(t, func(t *rapid.T) {
		draw := func(name string) (Area, map[int64]bool) {
			set := make(map[int64]bool)
			drawn := spans.Draw(t, name)
			for _, s := range drawn {
				for u := s.From; u < s.To; u++ {
					set[u] = true
				}
			}
			return NewArea(drawn...), set
		}
		a, inA := draw("a")
		b, inB := draw("b")
		copied := append(Area(nil), a...)
		for name, c := range map[string]struct {
			area Area
			in   func(u int64) bool
		}{
			"a":         {a, func(u int64) bool { return inA[u] }},
			"union":     {a.Union(b), func(u int64) bool { return inA[u] || inB[u] }},
			"intersect": {a.Intersect(b), func(u int64) bool { return inA[u] && inB[u] }},
			"minus":     {a.Minus(b), func(u int64) bool { return inA[u] && !inB[u] }},
		} {
			var n int64
			for u := int64(-1); u <= most; u++ {
				require.Equal(t, c.in(u), c.area.Contains(u), "%s of %v and %v: %v at %d", name, a, b, c.area, u)
				if c.in(u) {
					n++
				}
			}
			require.Equal(t, n, c.area.Len(), name)
			require.Equal(t, n == 0, c.area.Empty(), name)
			for i, s := range c.area {
				require.Less(t, s.From, s.To, "%s: %v", name, c.area)
				require.True(t, i == 0 || c.area[i-1].To < s.From, "%s: %v is not in its shortest form", name, c.area)
			}
		}
		require.Equal(t, copied, append(Area(nil), a...), "operations leave it as it is")
		same := true
		for u := int64(0); u < most; u++ {
			same = same && inA[u] == inB[u]
		}
		require.Equal(t, same, a.Equal(b))
	})
}
