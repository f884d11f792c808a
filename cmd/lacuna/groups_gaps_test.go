package main

import (
	"strings"
	"testing"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
)

// draw draws a ledger with gaps as read from a broker.
func draw(l client.Ledger, gaps []client.Run, width, limit int) drawing {
	l.Group, l.Topic = "billing", "orders"
	for _, gap := range gaps {
		l.Gaps++
		l.Open += gap.End - gap.Start
		if gap.End-gap.Start > l.LongestGap.End-l.LongestGap.Start {
			l.LongestGap = gap
		}
	}
	d := drawing{ledger: &l, limit: limit, shades: asciiShades, width: width}
	d.bar = newGapBar(max(l.Stable, 0), max(l.MaxCommit, 0), width)
	for _, gap := range gaps {
		d.bar.addOpen(gap)
		if limit == 0 || len(d.gaps) < limit {
			d.gaps = append(d.gaps, gap)
		}
	}
	return d
}

func TestGapsDrawing(t *testing.T) {
	d := draw(client.Ledger{Stable: 1000, MaxCommit: 2000, LogEnd: 2500},
		[]client.Run{{Start: 1000, End: 1001}, {Start: 1500, End: 1600}, {Start: 1777, End: 1778}}, 40, 2)
	require.Equal(t, strings.TrimLeft(`
group billing, orders[0]

1,000                              1,999
+###################....#######+########
# committed  +=- partly  . open; a cell is 25 offsets

  stable offset                1,000   all below is committed
  max commit offset            2,000   nothing from here on is
  log                              0   to 2,500
  committed                      898   in the window
  open                           102   in 3 gaps; the longest is 1500-1599, 100 offsets
  lag                            602   open, and what lies beyond the window

FIRST   LAST  OFFSETS
1,000  1,000        1
1,500  1,599      100
and 1 more gap; --limit 0 lists all
`, "\n"), d.text())
}

func TestGapsDrawingOfALedgerWithoutGaps(t *testing.T) {
	d := draw(client.Ledger{Stable: 7, MaxCommit: 7, LogEnd: 9}, nil, 40, 10)
	text := d.text()
	require.NotContains(t, text, "#", "there is no window to draw")
	require.Contains(t, text, "in 0 gaps")
}

func TestGapsDrawingOfNothing(t *testing.T) {
	d := draw(client.Ledger{Stable: -1, MaxCommit: -1, LogEnd: 9}, nil, 40, 10)
	require.Equal(t, "group billing, orders[0]\n  nothing is committed; 9 offsets are in the log\n", d.text())
}

func TestGapsDrawingInANarrowPlace(t *testing.T) {
	d := draw(client.Ledger{Stable: 1_000_000, MaxCommit: 2_000_000, LogEnd: 2_000_000},
		[]client.Run{{Start: 1_000_000, End: 1_000_001}}, 10, 10)
	require.Contains(t, d.text(), "\n1,000,000\n+#########\n")
}

func TestExplain(t *testing.T) {
	l := &client.Ledger{Stable: 10, MaxCommit: 20, LogStart: 5, LogEnd: 25}
	gap := []client.Run{{Start: 14, End: 17}}
	for offset, want := range map[int64]string{
		4: "gone", 9: "committed", 12: "committed", 14: "open", 16: "open", 20: "open", 25: "not written",
	} {
		require.Equal(t, want, explain(l, gap, offset).State, "offset %d", offset)
	}
	require.Contains(t, explain(l, gap, 14).Why, "gap 14-16")
	require.Equal(t, "open", explain(&client.Ledger{Stable: -1, MaxCommit: -1, LogEnd: 9}, nil, 3).State)
}
