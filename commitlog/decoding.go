package commitlog

import (
	"runtime"

	"github.com/lacunamq/lacuna/protocol"
)

// DecodeLimiter bounds the memory of batches that are decompressed to be looked into: how
// large one may become, and how many there are at a time. Logs share one.
type DecodeLimiter struct {
	maxBytes int
	slots    chan *protocol.Decompressor // those that nobody uses
}

// keptDecodedBytes is the largest buffer that a slot keeps for its next batch.
const keptDecodedBytes = 4 << 20

// NewDecodeLimiter makes a limiter for n batches at once, n at least 1, that decompress to
// at most maxBytes each; 0 stands for protocol.DefaultMaxDecodedBytes.
func NewDecodeLimiter(n, maxBytes int) *DecodeLimiter {
	if maxBytes <= 0 {
		maxBytes = protocol.DefaultMaxDecodedBytes
	}
	d := &DecodeLimiter{maxBytes: maxBytes, slots: make(chan *protocol.Decompressor, max(n, 1))}
	for range cap(d.slots) {
		d.slots <- new(protocol.Decompressor)
	}
	return d
}

// decodeLimiterByDefault is that of a log which is given none. More batches at a time than
// there are processors would not be faster.
func decodeLimiterByDefault() *DecodeLimiter {
	return NewDecodeLimiter(runtime.GOMAXPROCS(0), 0)
}

// Begin waits for a slot, for a batch that the caller decompresses to at most MaxBytes, and
// returns what frees it. Nothing may be waited for in between.
func (d *DecodeLimiter) Begin() (end func()) {
	slot := <-d.slots
	return func() { d.slots <- slot }
}

// MaxBytes is what one batch may decompress to.
func (d *DecodeLimiter) MaxBytes() int { return d.maxBytes }

// Records has use look at the records of batch, which is exactly one batch with header h.
// They are gone when use returns, which must not wait for anything. Errors are those of
// protocol.DecompressRecords, and of use. Records that are not compressed need no slot.
func (d *DecodeLimiter) Records(h *protocol.BatchHeader, batch []byte, use func(records []byte) error) error {
	if h.Codec() == protocol.CodecNone {
		records, err := protocol.DecompressRecords(nil, h, batch, d.maxBytes)
		if err != nil {
			return err
		}
		return use(records)
	}
	slot := <-d.slots
	records, err := slot.Records(h, batch, d.maxBytes)
	if err == nil {
		err = use(records)
	}
	if cap(records) > keptDecodedBytes {
		slot = new(protocol.Decompressor)
	}
	d.slots <- slot
	return err
}
