package protocol

import (
	"errors"
	"math"
	"slices"

	"github.com/klauspost/compress/zstd"
)

// zstdMaxWindow is the largest window that a frame may ask for: the limit of zstd's
// own decoders, and what Kafka's highest level uses. Whole frames are decoded into
// their destination, so that no window is allocated for it.
const zstdMaxWindow = 128 << 20

const (
	zstdMaxBlock      = 128 << 10
	zstdBlockTypeRaw  = 0
	zstdBlockTypeRLE  = 1
	zstdFrameCheckLen = 4
)

// Decoders and encoders have a concurrency of one, with which they start no goroutine.
var (
	zstdDecoders = newPool(func() *zstd.Decoder {
		d, err := zstd.NewReader(nil,
			zstd.WithDecoderConcurrency(1),
			zstd.WithDecoderLowmem(true),
			zstd.WithDecoderMaxWindow(zstdMaxWindow),
			zstd.WithDecodeAllCapLimit(true))
		if err != nil {
			panic(err) // the options are constants
		}
		return d
	})
	zstdEncoders = newPool(func() *zstd.Encoder {
		e, err := zstd.NewWriter(nil,
			zstd.WithEncoderConcurrency(1),
			zstd.WithEncoderLevel(zstd.SpeedFastest),
			zstd.WithLowerEncoderMem(true),
			zstd.WithWindowSize(1<<20),
			zstd.WithEncoderCRC(false))
		if err != nil {
			panic(err) // the options are constants
		}
		return e
	})
)

var errZstdFraming = errors.New("bad framing")

// unzstd bounds the output by giving the decoder no more room than the blocks of src
// can need and the limit allows, rather than by the decoder's own limit, which would also
// refuse small batches that name a large window, as all of Java's do.
func unzstd(dst, src []byte, limit int) ([]byte, error) {
	n, exact, err := zstdRoom(src)
	if err != nil {
		return nil, corrupt(CodecZstd, err)
	}
	rest := limit - len(dst)
	cut := n > rest
	if cut && exact {
		return nil, errOver(limit)
	}
	if cut { // a block that begins within the limit is to end properly
		n = rest + zstdMaxBlock
	}
	dst = slices.Grow(dst, n)
	d := zstdDecoders.get()
	defer zstdDecoders.put(d)
	out, err := d.DecodeAll(src, dst[:len(dst):len(dst)+n])
	if len(out) > limit {
		return nil, errOver(limit)
	}
	if err != nil {
		return nil, corrupt(CodecZstd, err)
	}
	if len(out) <= cap(dst) && len(out) > 0 && &out[0] == &dst[:1][0] {
		out = dst[:len(out)] // with the rest of its room, for the next batch
	}
	return out, nil
}

// zstdRoom is an upper bound of what src decompresses to: the sizes that its frames
// name, or what their blocks can hold at most. It is exact if all frames name theirs.
func zstdRoom(src []byte) (total int, exact bool, err error) {
	if len(src) == 0 {
		return 0, false, errZstdFraming
	}
	exact = true
	for len(src) > 0 {
		var h zstd.Header
		rest, err := h.DecodeAndStrip(src)
		if err != nil {
			return 0, false, err
		}
		if h.Skippable {
			if uint64(h.SkippableSize) > uint64(len(rest)) {
				return 0, false, errZstdFraming
			}
			src = rest[h.SkippableSize:]
			continue
		}
		size, rest, err := zstdBlocks(rest, h.HasCheckSum)
		if err != nil {
			return 0, false, err
		}
		if h.HasFCS && h.FrameContentSize < uint64(size) {
			size = int(h.FrameContentSize)
		}
		exact = exact && h.HasFCS
		total = min(total+size, math.MaxInt32)
		src = rest
	}
	return total, exact, nil
}

// zstdBlocks walks the blocks of one frame and returns the most that they can hold,
// and what follows the frame.
func zstdBlocks(src []byte, checksum bool) (size int, rest []byte, err error) {
	for last := false; !last; {
		if len(src) < 3 {
			return 0, nil, errZstdFraming
		}
		header := uint32(src[0]) | uint32(src[1])<<8 | uint32(src[2])<<16
		last = header&1 != 0
		n := int(header >> 3)
		stored := n
		switch header >> 1 & 3 {
		case zstdBlockTypeRaw:
			size += n
		case zstdBlockTypeRLE:
			size += n
			stored = 1
		default:
			size += zstdMaxBlock
		}
		if stored > len(src)-3 {
			return 0, nil, errZstdFraming
		}
		src = src[3+stored:]
	}
	if checksum {
		if len(src) < zstdFrameCheckLen {
			return 0, nil, errZstdFraming
		}
		src = src[zstdFrameCheckLen:]
	}
	return size, src, nil
}

func appendZstd(dst, records []byte) []byte {
	e := zstdEncoders.get()
	defer zstdEncoders.put(e)
	return e.EncodeAll(records, dst)
}
