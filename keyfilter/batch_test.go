package keyfilter

import (
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"pgregory.net/rapid"

	"github.com/lacunamq/lacuna/protocol"
)

const testDecodeLimit = 1 << 20

// codecs are all that a batch can have.
var codecs = []protocol.Codec{
	protocol.CodecNone, protocol.CodecGzip, protocol.CodecSnappy, protocol.CodecLz4, protocol.CodecZstd,
}

// drawKey draws a key from few enough that they meet again; nil is a null one.
func drawKey(t *rapid.T) []byte {
	switch n := rapid.IntRange(-2, 20).Draw(t, "key"); n {
	case -2:
		return nil
	case -1:
		return []byte{}
	default:
		return fmt.Appendf(nil, "key-%d", n)
	}
}

// drawBatch draws a batch as a producer may have written it, or the cleaner may have
// left it.
func drawBatch(t *rapid.T, base int64) []byte {
	var b protocol.BatchBuilder
	o := protocol.PlainBatch(base)
	o.Codec = rapid.SampledFrom(codecs).Draw(t, "codec")
	o.LeaderEpoch = rapid.Int32Range(0, 9).Draw(t, "leader epoch")
	if rapid.Bool().Draw(t, "idempotent") {
		o.ProducerID, o.ProducerEpoch, o.BaseSequence = 7, 3, rapid.Int32Range(0, 1<<30).Draw(t, "sequence")
		o.Transactional = rapid.Bool().Draw(t, "transactional")
	}
	b.Reset(o)
	delta := int32(0)
	holes := rapid.Bool().Draw(t, "compacted")
	for range rapid.IntRange(1, 60).Draw(t, "records") {
		if holes {
			delta += rapid.Int32Range(0, 3).Draw(t, "hole")
		}
		var headers []protocol.Header
		if rapid.IntRange(0, 4).Draw(t, "headers") == 0 {
			headers = []protocol.Header{{Key: "h", Value: []byte("v")}, {Key: "null"}}
		}
		value := rapid.SliceOfN(rapid.Byte(), 0, 30).Draw(t, "value")
		if len(value) == 3 {
			value = nil
		}
		b.AppendAt(delta, drawKey(t), value, headers, 1_700_000_000_000+rapid.Int64Range(-5000, 5000).Draw(t, "ms"))
		delta++
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	if rapid.IntRange(0, 3).Draw(t, "log append time") == 0 {
		protocol.SetLogAppendTime(batch, 1_700_000_123_456)
	}
	return batch
}

// drawFilter draws a filter that hits some of the keys that drawKey draws.
func drawFilter(t *rapid.T) protocol.KeyFilter {
	var f protocol.KeyFilter
	for len(f.Ranges)+len(f.Keys) == 0 {
		for range rapid.IntRange(0, 3).Draw(t, "ranges") {
			lo := rapid.Uint16().Draw(t, "lo")
			f.Ranges = append(f.Ranges, protocol.SlotRange{Lo: lo, Hi: rapid.Uint16Range(lo, Slots-1).Draw(t, "hi")})
		}
		for range rapid.IntRange(0, 3).Draw(t, "keys") {
			if key := drawKey(t); key != nil {
				f.Keys = append(f.Keys, key)
			}
		}
	}
	return f
}

// naiveMatch is the definition of a filter, and nothing clever.
func naiveMatch(f protocol.KeyFilter, key []byte, offset int64) bool {
	for _, k := range f.Keys {
		if key != nil && string(k) == string(key) {
			return true
		}
	}
	slot := Slot(key, offset)
	for _, r := range f.Ranges {
		if r.Lo <= slot && slot <= r.Hi {
			return true
		}
	}
	return false
}

// readByKgo reads batches as a client does.
func readByKgo(t require.TestingT, batches []byte) []*kgo.Record {
	p, _ := kgo.ProcessFetchPartition(
		kgo.ProcessFetchPartitionOpts{KeepControlRecords: true},
		&kmsg.FetchResponseTopicPartition{RecordBatches: batches},
		kgo.DefaultDecompressor(), nil)
	require.NoError(t, p.Err)
	return p.Records
}

func mustDecode(t require.TestingT, batch []byte) *Decoded {
	var d Decoded
	require.NoError(t, d.Decode(batch, testDecodeLimit))
	return &d
}

func mustFilter(t require.TestingT, asked protocol.KeyFilter) *Filter {
	f, err := New(asked)
	require.NoError(t, err)
	return f
}

// marker is a control batch.
func marker(t testing.TB, base int64) []byte {
	var b protocol.BatchBuilder
	batch, err := b.AppendEndTxnMarker(nil, protocol.EndTxnMarker{ProducerID: 7, Commit: true}, 1)
	require.NoError(t, err)
	protocol.SetBaseOffset(batch, base)
	return batch
}

// plainBatch is a batch of n records with keys key-0, key-1, ..., modulo keys, and
// values that compress as text does.
func plainBatch(t testing.TB, base int64, codec protocol.Codec, n, keys, valueLen int) []byte {
	var b protocol.BatchBuilder
	o := protocol.PlainBatch(base)
	o.Codec = codec
	b.Reset(o)
	for i := range n {
		offset := base + int64(i)
		b.Append(fmt.Appendf(nil, "key-%08d", offset*7919%int64(keys)), text(offset, valueLen), nil, 1_700_000_000_000+offset/10)
	}
	batch, err := b.Build(nil)
	require.NoError(t, err)
	return batch
}

// text is n bytes of words, the same for the same seed.
func text(seed int64, n int) []byte {
	words := [...]string{"order", "placed", "by", "customer", "item", "quantity", "price", "total", "shipped", "status", "pending", "warehouse"}
	var b []byte
	x := uint64(seed)*0x9E3779B97F4A7C15 + 1
	for len(b) < n {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		if x%3 == 0 {
			b = fmt.Appendf(b, "%d ", x%100000)
			continue
		}
		b = append(append(b, words[x>>32%uint64(len(words))]...), ' ')
	}
	return b[:n]
}
