package main

import (
	"math/bits"
	"strings"

	"github.com/lacunamq/lacuna/client"
)

// shades draws how much of a cell is committed, from all of it to nothing. A cell is only
// drawn as the first if nothing in it is open, and as the last if all of it is, so that a
// single open offset among a million is seen.
type shades struct {
	all, most, half, some, none, beyond rune
	acquired, pending                   rune // below a cell that holds something of the kind
}

var (
	blockShades = shades{all: '█', most: '▓', half: '▒', some: '░', none: '·', beyond: ' ', acquired: '▲', pending: '◆'}
	asciiShades = shades{all: '#', most: '+', half: '=', some: '-', none: '.', beyond: ' ', acquired: '^', pending: '~'}
)

// gapBar draws a range of offsets as a row of cells. Open runs are added one by one, so
// that a ledger of a million gaps needs no more memory than the row.
type gapBar struct {
	start, end int64   // the offsets it covers, half-open
	open       []int64 // open offsets in each cell
	marks      []rune  // below the cells, 0: none; nil: none at all
}

// newGapBar covers [start, end) with at most width cells, each of one offset or more.
func newGapBar(start, end int64, width int) *gapBar {
	n := min(int64(max(width, 1)), max(end-start, 0))
	return &gapBar{start: start, end: end, open: make([]int64, n)}
}

// cellStart is the first offset of cell i, or the end for the number of cells.
func (b *gapBar) cellStart(i int) int64 {
	return b.start + scale(b.end-b.start, int64(i), int64(len(b.open)))
}

// cellOf is the cell that offset is in.
func (b *gapBar) cellOf(offset int64) int {
	i := int(scale(offset-b.start, int64(len(b.open)), b.end-b.start))
	// Rounding down twice may name the cell before.
	for i+1 < len(b.open) && b.cellStart(i+1) <= offset {
		i++
	}
	return i
}

// addOpen counts the offsets of r as open; what lies outside of the bar is ignored.
func (b *gapBar) addOpen(r client.Run) {
	from, to := max(r.Start, b.start), min(r.End, b.end)
	for from < to {
		i := b.cellOf(from)
		next := min(to, b.cellStart(i+1))
		b.open[i] += next - from
		from = next
	}
}

// mark puts a sign below the cells that hold offsets of r, in place of another.
func (b *gapBar) mark(r client.Run, sign rune) {
	from, to := max(r.Start, b.start), min(r.End, b.end)
	if from >= to {
		return
	}
	if b.marks == nil {
		b.marks = make([]rune, len(b.open))
	}
	for i := b.cellOf(from); i <= b.cellOf(to-1); i++ {
		b.marks[i] = sign
	}
}

// drawMarks returns the row of marks, "" if there are none.
func (b *gapBar) drawMarks(s shades) string {
	var row strings.Builder
	for _, sign := range b.marks {
		if sign == 0 {
			sign = s.beyond
		}
		row.WriteRune(sign)
	}
	return strings.TrimRight(row.String(), string(s.beyond))
}

// draw returns the row.
func (b *gapBar) draw(s shades) string {
	var row strings.Builder
	for i, open := range b.open {
		size := b.cellStart(i+1) - b.cellStart(i)
		row.WriteRune(s.of(open, size))
	}
	return row.String()
}

// of is the shade of a cell of size offsets, of which some are open.
func (s shades) of(open, size int64) rune {
	switch {
	case open == 0:
		return s.all
	case open == size:
		return s.none
	case open <= size/3:
		return s.most
	case open <= size/3*2:
		return s.half
	}
	return s.some
}

// scale is a*b/c for non-negative numbers, without overflow of the product.
func scale(a, b, c int64) int64 {
	hi, lo := bits.Mul64(uint64(a), uint64(b))
	q, _ := bits.Div64(hi, lo, uint64(c))
	return int64(q)
}
