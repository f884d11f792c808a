package bench

import (
	"bytes"
	"fmt"
	"go/build"
	"os"
	"path/filepath"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

const (
	batchBytes = 16 << 10 // before compression
	valueBytes = 100
	keys       = 1_000_000
)

var codecs = []protocol.Codec{protocol.CodecNone, protocol.CodecGzip, protocol.CodecSnappy, protocol.CodecLz4, protocol.CodecZstd}

// prose is real text: the sources of Go's own net and runtime packages.
var prose = sync.OnceValues(func() ([]byte, error) {
	var all bytes.Buffer
	for _, folder := range []string{"net", "runtime"} {
		paths, err := filepath.Glob(filepath.Join(build.Default.GOROOT, "src", folder, "*.go"))
		if err != nil {
			return nil, err
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			all.Write(text)
		}
	}
	if all.Len() < 1<<20 {
		return nil, fmt.Errorf("Go's sources are not in %s", build.Default.GOROOT)
	}
	return all.Bytes(), nil
})

// keyOf is the key of the record at an offset: 12 bytes, one of a million in turn, so
// that neighbours have different slots.
func keyOf(dst []byte, offset int) []byte {
	return fmt.Appendf(dst, "key-%08d", offset*7919%keys)
}

// batches are what a topic partition is filled with, and what is to be known of it.
type batches struct {
	stored  [][]byte
	first   []int // offset of each batch
	records int
}

// text makes batches of 16 KiB before compression, of at least so many records: 100 bytes
// of text with a key of 12.
func text(tb testing.TB, codec protocol.Codec, records int) *batches {
	tb.Helper()
	words, err := prose()
	require.NoError(tb, err)
	var b batches
	var build protocol.BatchBuilder
	var key []byte
	o := protocol.PlainBatch(0)
	o.Codec = codec
	for b.records < records {
		b.first = append(b.first, b.records)
		build.Reset(o)
		for build.Size() < batchBytes {
			key = keyOf(key[:0], b.records)
			at := b.records * valueBytes % (len(words) - valueBytes)
			build.Append(key, words[at:at+valueBytes], nil, 1_700_000_000_000+int64(b.records)/100)
			b.records++
		}
		batch, err := build.Build(nil)
		require.NoError(tb, err)
		b.stored = append(b.stored, batch)
	}
	return &b
}

// tiny is one batch of as many records without a key or value, for ledgers that only need
// offsets.
func tiny(tb testing.TB, records int) []byte {
	tb.Helper()
	var build protocol.BatchBuilder
	o := protocol.PlainBatch(0)
	o.Codec = protocol.CodecZstd
	build.Reset(o)
	for range records {
		build.Append(nil, nil, nil, 1_700_000_000_000)
	}
	batch, err := build.Build(nil)
	require.NoError(tb, err)
	return batch
}

// share is what a filter leaves of batches.
type share struct {
	records int
	batches int     // that hold one of them
	bytes   int     // of the records, uncompressed
	stored  float64 // of the records, their part of each stored batch's records
	mayHold int     // batches with a record that matches, or of the slot of a key that is asked for
}

// shareOf works it out record by record.
func shareOf(tb testing.TB, b *batches, f protocol.KeyFilter) (s share) {
	tb.Helper()
	filter, err := keyfilter.New(f)
	require.NoError(tb, err)
	slots := make(map[uint16]bool)
	for _, key := range f.Keys {
		slots[keyfilter.Slot(key, 0)] = true
	}
	var d protocol.Decompressor
	for _, batch := range b.stored {
		h, err := protocol.ParseBatchHeader(batch)
		require.NoError(tb, err)
		records, err := d.Records(&h, batch, protocol.DefaultMaxDecodedBytes)
		require.NoError(tb, err)
		matching, near := 0, false
		for r := protocol.IterateRecords(&h, records); r.Next(); {
			near = near || slots[keyfilter.Slot(r.Record().Key, 0)]
			if filter.Match(r.Record().Key, r.Record().Offset) {
				s.records++
				matching += len(r.Record().Raw)
			}
		}
		if matching > 0 {
			s.batches++
			s.bytes += matching
			s.stored += float64(matching) / float64(len(records)) * float64(len(batch)-protocol.BatchHeaderLen)
		}
		if matching > 0 || near {
			s.mayHold++
		}
	}
	return s
}

// sixteenth asks for one of 16 equal ranges of slots.
func sixteenth(i int) protocol.KeyFilter {
	return protocol.KeyFilter{Ranges: []protocol.SlotRange{{Lo: uint16(i * 4096), Hi: uint16(i*4096 + 4095)}}}
}
