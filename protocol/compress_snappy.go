package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"

	"github.com/klauspost/compress/s2"
)

// Java's clients frame snappy as the snappy-java library (by xerial) does: a header of
// 16 bytes, then blocks with a big endian length. Other clients send one raw block.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderLen = 16 // the magic, a version and the oldest compatible version

var errXerialFraming = errors.New("bad block length")

// snappyMaxRatio is above what snappy can reach: its densest element makes 64 bytes
// of 3. A length beyond it is a lie, and is not allocated.
const snappyMaxRatio = 22

func unsnappy(dst, src []byte, limit int) ([]byte, error) {
	if len(src) < xerialHeaderLen || !bytes.HasPrefix(src, xerialMagic) {
		return unsnappyBlock(dst, src, limit)
	}
	src = src[xerialHeaderLen:]
	for len(src) > 0 {
		if len(src) < 4 {
			return nil, corrupt(CodecSnappy, errXerialFraming)
		}
		n := binary.BigEndian.Uint32(src)
		src = src[4:]
		if uint64(n) > uint64(len(src)) {
			return nil, corrupt(CodecSnappy, errXerialFraming)
		}
		var err error
		if dst, err = unsnappyBlock(dst, src[:n], limit); err != nil {
			return nil, err
		}
		src = src[n:]
	}
	return dst, nil
}

func unsnappyBlock(dst, block []byte, limit int) ([]byte, error) {
	n, err := s2.DecodedLen(block)
	if err != nil {
		return nil, corrupt(CodecSnappy, err)
	}
	if n > snappyMaxRatio*len(block) {
		return nil, corrupt(CodecSnappy, s2.ErrCorrupt)
	}
	if dst, err = reserve(dst, n, limit); err != nil {
		return nil, err
	}
	end := len(dst) + n
	if _, err := s2.Decode(dst[len(dst):end:end], block); err != nil {
		return nil, corrupt(CodecSnappy, err)
	}
	return dst[:end], nil
}
