package tests

import (
	"encoding/binary"
	"math"
	"slices"
)

// mutateFrame damages a request on its way: its content, its length, or both.
func (g *generator) mutateFrame(frame []byte) []byte {
	size, body := frame[:4], frame[4:]
	switch g.rng.IntN(8) {
	case 0: // announces more than it sends
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(body)+1+g.rng.IntN(1<<20))), body...)
	case 1: // announces less than it sends
		return append(binary.BigEndian.AppendUint32(nil, uint32(g.rng.IntN(len(body)))), body...)
	case 2: // any length
		return append(binary.BigEndian.AppendUint32(nil, g.rng.Uint32()), body...)
	case 3: // cut off on the way
		return slices.Clone(frame[:g.rng.IntN(len(frame))])
	case 4: // the header
		body = slices.Clone(body)
		body[g.rng.IntN(min(len(body), 14))] = byte(g.rng.Uint32())
		return append(slices.Clone(size), body...)
	}
	body = append(slices.Clone(body[:8]), g.mutateBytes(body[8:])...)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(body))), body...)
}

// mutateBytes returns a damaged copy of b.
func (g *generator) mutateBytes(b []byte) []byte {
	b = slices.Clone(b)
	for range 1 + g.rng.IntN(3) {
		b = g.mutateOnce(b)
	}
	return b
}

// extremes are bytes that mean much as lengths and counts.
var extremes = [][]byte{
	{0xff, 0xff, 0xff, 0xff}, {0x7f, 0xff, 0xff, 0xff}, {0x80, 0, 0, 0}, {0, 0, 0, 0}, {0, 0xff, 0xff, 0xff},
	{0xff, 0xff}, {0x7f, 0xff}, {0x80, 0},
	{0xff, 0xff, 0xff, 0xff, 0x0f}, {0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01}, {0x80, 0x80, 0x80, 0x80, 0x08},
	{0xff}, {0x7f}, {0x80}, {0}, {1},
}

func (g *generator) mutateOnce(b []byte) []byte {
	if len(b) == 0 {
		return g.bytes(10)
	}
	at := g.rng.IntN(len(b))
	switch g.rng.IntN(7) {
	case 0: // a bit
		b[at] ^= 1 << g.rng.IntN(8)
	case 1: // a number
		copy(b[at:], extremes[g.rng.IntN(len(extremes))])
	case 2: // the length of what follows, or about
		n := uint32(len(b)-at) + g.rng.Uint32N(5) - 2
		if g.rng.IntN(2) == 0 && n < math.MaxUint8 {
			b[at] = byte(n)
		} else if at+4 <= len(b) {
			binary.BigEndian.PutUint32(b[at:], n)
		}
	case 3: // the end
		return b[:at]
	case 4: // more than there is room for
		return append(b, g.bytes(40)...)
	case 5: // a piece twice
		end := at + g.rng.IntN(min(len(b)-at, 30)+1)
		return slices.Insert(b, at, slices.Clone(b[at:end])...)
	case 6: // a piece missing
		end := at + g.rng.IntN(min(len(b)-at, 30)+1)
		return slices.Delete(b, at, end)
	}
	return b
}
