package protocol

import (
	"encoding/binary"
	"errors"
	"slices"

	"github.com/pierrec/lz4/v4"
)

// The frame format of lz4 is read and written here, over the block codec of pierrec/lz4, so that
// blocks are decoded into their destination: its frame reader takes a
// buffer of the size that a frame's header names, 4 MiB with many producers, for a
// batch of any size.
//
// Checksums of content and blocks are not verified, since the batch's own checksum
// covers the same bytes.

const (
	lz4Magic = 0x184D2204

	// flags of the descriptor's first byte
	lz4FlagDictID          = 1 << 0
	lz4FlagContentChecksum = 1 << 2
	lz4FlagContentSize     = 1 << 3
	lz4FlagBlockChecksum   = 1 << 4
	lz4FlagIndependent     = 1 << 5
	lz4Version             = 1 // in the top two bits

	lz4RawBlock    = 1 << 31  // in a block's length: stored, not compressed
	lz4WriteBlock  = 64 << 10 // the block size that we write, Java's too
	lz4Window      = 64 << 10 // how far a linked block may refer back
	lz4ChecksumLen = 4
)

// lz4Header is that of the frames that we write: independent blocks of 64 KiB without
// checksums; the last byte is the header's own checksum.
var lz4Header = []byte{0x04, 0x22, 0x4d, 0x18, lz4Version<<6 | lz4FlagIndependent, 4 << 4, 0x82}

var errLz4Frame = corrupt(CodecLz4, errors.New("bad frame"))

var lz4Compressors = newPool(func() *lz4.Compressor { return new(lz4.Compressor) })

// lz4Frame is a frame that is being read.
type lz4Frame struct {
	rest         []byte // what was not read yet
	blockMax     int    // no block holds more, compressed or not
	linked       bool   // blocks refer to those before
	blockTrailer int    // bytes after each block
	trailer      int    // bytes after the end mark
}

func unlz4(dst, src []byte, limit int) ([]byte, error) {
	f, err := parseLz4Header(src)
	if err != nil {
		return nil, err
	}
	total, err := f.measure(limit - len(dst))
	if err != nil {
		return nil, err
	}
	if dst, err = reserve(dst, total, limit); err != nil {
		return nil, err
	}
	start := len(dst)
	for {
		block, raw, err := f.next()
		if err != nil || block == nil {
			return dst, err
		}
		if raw {
			dst = append(dst, block...)
			continue
		}
		var dict []byte
		if f.linked {
			dict = dst[max(start, len(dst)-lz4Window):]
		}
		end := start + total
		n, err := lz4.UncompressBlockWithDict(block, dst[len(dst):end:end], dict)
		if err != nil {
			return nil, errLz4Frame
		}
		dst = dst[:len(dst)+n]
	}
}

// measure sums what the blocks decompress to, and stops when that is above limit. It
// leaves the frame where it is.
func (f lz4Frame) measure(limit int) (total int, err error) {
	for total <= limit {
		block, raw, err := f.next()
		if err != nil || block == nil {
			return total, err
		}
		n := len(block)
		if !raw {
			n = lz4BlockLen(block)
		}
		if n < 0 || n > f.blockMax {
			return 0, errLz4Frame
		}
		total += n
	}
	return total, nil
}

// next is the next block, nil at the end of the frame; raw ones are not compressed.
func (f *lz4Frame) next() (block []byte, raw bool, err error) {
	if len(f.rest) < 4 {
		return nil, false, errLz4Frame
	}
	head := binary.LittleEndian.Uint32(f.rest)
	f.rest = f.rest[4:]
	if head == 0 {
		if len(f.rest) != f.trailer {
			return nil, false, errLz4Frame
		}
		return nil, false, nil
	}
	size := int(head &^ lz4RawBlock)
	if size > f.blockMax || size+f.blockTrailer > len(f.rest) {
		return nil, false, errLz4Frame
	}
	block = f.rest[:size:size]
	f.rest = f.rest[size+f.blockTrailer:]
	return block, head&lz4RawBlock != 0, nil
}

// lz4BlockLen is what a compressed block decompresses to, -1 if it is malformed. It
// looks at the tokens only.
func lz4BlockLen(b []byte) int {
	total := 0
	for i := 0; i < len(b); {
		token := b[i]
		literals, next := lz4Length(b, i+1, int(token>>4))
		if next < 0 || literals > len(b)-next {
			return -1
		}
		total += literals
		i = next + literals
		if i == len(b) {
			return total // the last sequence has no match
		}
		if len(b)-i < 2 {
			return -1
		}
		match, next := lz4Length(b, i+2, int(token&0x0f))
		if next < 0 {
			return -1
		}
		total += match + 4
		i = next
	}
	return -1
}

// lz4Length reads the bytes that continue a token's length of 15.
func lz4Length(b []byte, i, n int) (length, next int) {
	if n != 15 {
		return n, i
	}
	for i < len(b) {
		c := b[i]
		i++
		n += int(c)
		if c != 255 {
			return n, i
		}
	}
	return 0, -1
}

// parseLz4Header begins to read a frame.
func parseLz4Header(src []byte) (f lz4Frame, err error) {
	if len(src) < 7 || binary.LittleEndian.Uint32(src) != lz4Magic {
		return f, errLz4Frame
	}
	flags, size := src[4], src[5]
	if flags>>6 != lz4Version || flags&(lz4FlagDictID|1<<1) != 0 || size&0x8f != 0 || size>>4 < 4 {
		return f, errLz4Frame
	}
	end := 6
	if flags&lz4FlagContentSize != 0 {
		end += 8
	}
	if len(src) < end+1 || src[end] != byte(xxh32Short(src[4:end])>>8) {
		return f, errLz4Frame
	}
	f = lz4Frame{
		rest:     src[end+1:],
		blockMax: 1 << (8 + 2*(size>>4)),
		linked:   flags&lz4FlagIndependent == 0,
	}
	if flags&lz4FlagBlockChecksum != 0 {
		f.blockTrailer = lz4ChecksumLen
	}
	if flags&lz4FlagContentChecksum != 0 {
		f.trailer = lz4ChecksumLen
	}
	return f, nil
}

// xxh32Short is xxHash32 with seed 0 of fewer than 16 bytes.
func xxh32Short(b []byte) uint32 {
	const (
		prime1 = 2654435761
		prime2 = 2246822519
		prime3 = 3266489917
		prime4 = 668265263
		prime5 = 374761393
	)
	h := uint32(prime5) + uint32(len(b))
	for ; len(b) >= 4; b = b[4:] {
		h += binary.LittleEndian.Uint32(b) * prime3
		h = (h<<17 | h>>15) * prime4
	}
	for _, c := range b {
		h += uint32(c) * prime5
		h = (h<<11 | h>>21) * prime1
	}
	h = (h ^ h>>15) * prime2
	h = (h ^ h>>13) * prime3
	return h ^ h>>16
}

func appendLz4(dst, records []byte) ([]byte, error) {
	c := lz4Compressors.get()
	defer lz4Compressors.put(c)
	dst = append(dst, lz4Header...)
	for len(records) > 0 {
		chunk := records[:min(len(records), lz4WriteBlock)]
		records = records[len(chunk):]
		bound := lz4.CompressBlockBound(len(chunk))
		dst = slices.Grow(dst, 4+bound)
		at := len(dst) + 4
		n, err := c.CompressBlock(chunk, dst[at:at+bound])
		if err != nil {
			return nil, err
		}
		if n == 0 || n >= len(chunk) {
			dst = binary.LittleEndian.AppendUint32(dst, uint32(len(chunk))|lz4RawBlock)
			dst = append(dst, chunk...)
			continue
		}
		dst = binary.LittleEndian.AppendUint32(dst, uint32(n))
		dst = dst[:at+n]
	}
	return append(dst, 0, 0, 0, 0), nil // the end mark
}
