package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/s2"
)

// Java's clients frame snappy as snappy-java (by xerial) does: a header of
// 16 bytes, then blocks with a big endian length. Other clients send one raw block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderLen = 16 // the magic, a version and the oldest compatible version

var errXerialFraming = errors.New("bad block length")

// snappyMaxRatio is above what snappy can reach: its densest element makes 64 bytes
// of 3. A length beyond it is a lie, and is not allocated.
const snappyMaxRatio = 22

func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < xerialHeaderLen || !bytes.HasPrefix(src, xerialMagic) {
		n, err := snappyLen(src)
		if err != nil {
			return nil, err
		}
		if dst, err = reserve(dst, n, limit); err != nil {
			return nil, err
		}
		return unsnappyBlock(dst, src, n)
	}
	src = src[xerialHeaderLen:]
	total, err := xerialLen(src, limit-len(dst))
	if err != nil {
		return nil, err
	}
	if dst, err = reserve(dst, total, limit); err != nil {
		return nil, err
	}
	for len(src) > 0 {
		block := src[4 : 4+binary.BigEndian.Uint32(src)]
		src = src[4+len(block):]
		n, err := snappyLen(block)
		if err != nil {
			return nil, err
		}
		if dst, err = unsnappyBlock(dst, block, n); err != nil {
			return nil, err
		}
	}
	return dst, nil
}

// xerialLen checks the frames of src and sums what their blocks say that they
// decompress to. It stops when that is above limit.
func xerialLen(src []byte, limit int) (total int, err error) {
	for len(src) > 0 && total <= limit {
		if len(src) < 4 || uint64(binary.BigEndian.Uint32(src)) > uint64(len(src)-4) {
			return 0, corrupt(CodecSnappy, errXerialFraming)
		}
		end := 4 + int(binary.BigEndian.Uint32(src))
		n, err := snappyLen(src[4:end])
		if err != nil {
			return 0, err
		}
		total += n
		src = src[end:]
	}
	return total, nil
}

// snappyLen is what block says that it decompresses to.
func snappyLen(block []byte) (int, error) {
	n, err := s2.DecodedLen(block)
	if err == nil && n > snappyMaxRatio*len(block) {
		err = s2.ErrCorrupt
	}
	if err != nil {
		return 0, corrupt(CodecSnappy, err)
	}
	return n, nil
}

// unsnappyBlock appends block, which decompresses to n bytes, to dst, which has room.
func unsnappyBlock(dst, block []byte, n int) ([]byte, error) {
	end := len(dst) + n
	if _, err := s2.Decode(dst[len(dst):end:end], block); err != nil {
		return nil, corrupt(CodecSnappy, err)
	}
	return dst[:end], nil
}
