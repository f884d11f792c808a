package individualcommit

import (
	"encoding/binary"
	"errors"
	"fmt"
	"iter"
	"math"
	"math/bits"
)

// ErrCorrupt marks bytes that are not what they should be.
var ErrCorrupt = errors.New("corrupt individual commit record")

// Packed runs are how the internal log holds a list of runs:
//
//	PackedRuns => count UVARLONG [base INT64 block...]
//	block      => skips column, lengths column    of up to 128 runs
//	column     => mode UINT8, values
//
// The first run starts `skip` offsets after the base, each later one `skip` after the end
// of the one before, and has `length` offsets. Both are at least 1; v below is one less.
// An empty list has no base. In a column of mode 64 all v are the same UVARLONG. In one of
// mode k, 0 to 63, they are a stream of bits, the lowest bit of a byte first, filled up to
// a byte with zeros: each v is v>>k one-bits, a zero-bit and the low k bits of v, but if
// v>>k is 24 or more it is 24 one-bits and v in 63 bits. Random gaps are geometrically
// distributed, for which this Rice code comes within 16 % of the entropy, and within 4 %
// where they are sparse.
const (
	packBlock    = 128
	packConstant = 64
	packEscape   = 24
)

// packer writes packed runs; its block is kept between uses.
type packer struct {
	dst            []byte
	skips, lengths [packBlock]uint64
	n              int   // runs in the block
	at             int64 // the end of the last run
}

// appendRuns appends count runs, of which the first starts above base.
func (p *packer) appendRuns(dst []byte, count, base int64, runs iter.Seq[Run]) []byte {
	if count == 0 {
		return append(dst, 0)
	}
	p.begin(dst, count, base)
	for r := range runs {
		p.add(r)
	}
	return p.end()
}

// appendList appends a list of runs.
func (p *packer) appendList(dst []byte, runs []Run) []byte {
	if len(runs) == 0 {
		return append(dst, 0)
	}
	p.begin(dst, int64(len(runs)), runs[0].Start-1)
	for _, r := range runs {
		p.add(r)
	}
	return p.end()
}

func (p *packer) begin(dst []byte, count, base int64) {
	dst = binary.AppendUvarint(dst, uint64(count))
	p.dst = binary.BigEndian.AppendUint64(dst, uint64(base))
	p.n, p.at = 0, base
}

func (p *packer) add(r Run) {
	p.skips[p.n] = uint64(r.Start - p.at - 1)
	p.lengths[p.n] = uint64(r.End - r.Start - 1)
	p.at = r.End
	if p.n++; p.n == packBlock {
		p.flush()
	}
}

func (p *packer) end() []byte {
	p.flush()
	dst := p.dst
	p.dst = nil
	return dst
}

func (p *packer) flush() {
	if p.n > 0 {
		p.dst = appendColumn(p.dst, p.skips[:p.n])
		p.dst = appendColumn(p.dst, p.lengths[:p.n])
	}
	p.n = 0
}

func appendColumn(dst []byte, values []uint64) []byte {
	k, constant := columnMode(values)
	if constant {
		dst = append(dst, packConstant)
		return binary.AppendUvarint(dst, values[0])
	}
	dst = append(dst, byte(k))
	w := bitWriter{dst: dst}
	for _, v := range values {
		if q := v >> k; q < packEscape {
			w.write(1<<q-1, int(q)+1)
			w.write(v&(1<<k-1), k)
		} else {
			w.write(1<<packEscape-1, packEscape)
			w.write(v, 63)
		}
	}
	return w.flush()
}

// columnMode picks the Rice parameter that takes the fewest bits, of the three around
// the logarithm of the mean, and tells whether all values are the same.
func columnMode(values []uint64) (k int, constant bool) {
	constant = true
	all := 0.0
	for _, v := range values {
		constant = constant && v == values[0]
		all += float64(v)
	}
	middle := max(bits.Len64(uint64(all/float64(len(values))))-1, 0)
	best := math.MaxInt
	for c := max(middle-1, 0); c <= middle+1; c++ {
		size := 0
		for _, v := range values {
			if q := v >> c; q < packEscape {
				size += int(q) + 1 + c
			} else {
				size += packEscape + 63
			}
		}
		if size < best {
			k, best = c, size
		}
	}
	return k, constant
}

// bitWriter appends numbers of a few bits, the lowest bit first.
type bitWriter struct {
	dst  []byte
	word uint64
	n    int // bits in word, below 8 between writes
}

// write appends the low n bits of v, which has no others; n is at most 63.
func (w *bitWriter) write(v uint64, n int) {
	if n > 56 {
		w.write(v&(1<<32-1), 32)
		v, n = v>>32, n-32
	}
	w.word |= v << w.n
	for w.n += n; w.n >= 8; w.n -= 8 {
		w.dst = append(w.dst, byte(w.word))
		w.word >>= 8
	}
}

func (w *bitWriter) flush() []byte {
	if w.n > 0 {
		w.dst = append(w.dst, byte(w.word))
	}
	return w.dst
}

// unpackRuns reads packed runs from the start of b, hands them to each in order, and
// returns what follows. Each may have been called before a fault is found.
func unpackRuns(b []byte, each func(Run)) (base int64, rest []byte, err error) {
	count, n := binary.Uvarint(b)
	if n <= 0 {
		return 0, nil, fmt.Errorf("%w: number of runs does not fit", ErrCorrupt)
	}
	if b = b[n:]; count == 0 {
		return 0, b, nil
	}
	// A block takes four bytes at least, so the length bounds what follows.
	if len(b) < 8 || count > uint64(len(b)/4)*packBlock {
		return 0, nil, fmt.Errorf("%w: %d runs in %d bytes", ErrCorrupt, count, len(b))
	}
	base = int64(binary.BigEndian.Uint64(b))
	if b = b[8:]; base < -1 || base == math.MaxInt64 {
		return 0, nil, fmt.Errorf("%w: runs from %d on", ErrCorrupt, base)
	}
	var skips, lengths [packBlock]uint64
	for at := base; count > 0; {
		block := int(min(count, packBlock))
		count -= uint64(block)
		if b, err = unpackColumn(b, skips[:block]); err != nil {
			return 0, nil, err
		}
		if b, err = unpackColumn(b, lengths[:block]); err != nil {
			return 0, nil, err
		}
		for i := range block {
			r, ok := stepRun(at, skips[i], lengths[i])
			if !ok {
				return 0, nil, fmt.Errorf("%w: run beyond the last offset", ErrCorrupt)
			}
			each(r)
			at = r.End
		}
	}
	return base, b, nil
}

// stepRun is the run that starts skip+1 after at and has length+1 offsets.
func stepRun(at int64, skip, length uint64) (r Run, ok bool) {
	if skip >= math.MaxInt64 || length >= math.MaxInt64 {
		return Run{}, false
	}
	r.Start = at + int64(skip) + 1
	if r.Start < 0 || r.Start < at {
		return Run{}, false
	}
	r.End = r.Start + int64(length) + 1
	return r, r.End > r.Start
}

func unpackColumn(b []byte, values []uint64) (rest []byte, err error) {
	if len(b) == 0 {
		return nil, fmt.Errorf("%w: column does not fit", ErrCorrupt)
	}
	mode := int(b[0])
	if b = b[1:]; mode == packConstant {
		v, n := binary.Uvarint(b)
		if n <= 0 {
			return nil, fmt.Errorf("%w: column does not fit", ErrCorrupt)
		}
		for i := range values {
			values[i] = v
		}
		return b[n:], nil
	}
	if mode > packConstant {
		return nil, fmt.Errorf("%w: column of mode %d", ErrCorrupt, mode)
	}
	r := bitReader{b: b}
	for i := range values {
		values[i] = r.rice(mode)
	}
	return r.rest()
}

// bitReader reads what bitWriter wrote. Past the end it reads zeros, which rest tells.
type bitReader struct {
	b   []byte
	pos int // in bits
}

// peek gives at least the next 56 bits, in the low bits of a word.
func (r *bitReader) peek() uint64 {
	i := r.pos / 8
	if i+8 <= len(r.b) {
		return binary.LittleEndian.Uint64(r.b[i:]) >> (r.pos % 8)
	}
	var last [8]byte
	if i < len(r.b) {
		copy(last[:], r.b[i:])
	}
	return binary.LittleEndian.Uint64(last[:]) >> (r.pos % 8)
}

// read gives the next n bits, of which there may be 63.
func (r *bitReader) read(n int) uint64 {
	if n > 56 {
		low := r.read(32)
		return low | r.read(n-32)<<32
	}
	v := r.peek() & (1<<n - 1)
	r.pos += n
	return v
}

// rice reads one value of a column of mode k. One too large for 63 bits is given as
// math.MaxUint64.
func (r *bitReader) rice(k int) uint64 {
	q := bits.TrailingZeros64(^r.peek())
	if q >= packEscape {
		r.pos += packEscape
		return r.read(63)
	}
	r.pos += q + 1
	if bits.Len64(uint64(q))+k > 63 {
		r.pos += k
		return math.MaxUint64
	}
	return uint64(q)<<k | r.read(k)
}

// rest checks that the bits ended where they should, and gives the bytes that follow.
func (r *bitReader) rest() ([]byte, error) {
	end := (r.pos + 7) / 8
	if end > len(r.b) {
		return nil, fmt.Errorf("%w: column does not fit", ErrCorrupt)
	}
	if used := r.pos % 8; used > 0 && r.b[end-1]>>used != 0 {
		return nil, fmt.Errorf("%w: bits after the end of a column", ErrCorrupt)
	}
	return r.b[end:], nil
}
