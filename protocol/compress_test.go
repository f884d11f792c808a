package protocol

import (
	"bytes"
	stdgzip "compress/gzip"
	"encoding/binary"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/klauspost/compress/s2"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"go.uber.org/goleak"
	"pgregory.net/rapid"
)

var compressing = []Codec{CodecGzip, CodecSnappy, CodecLz4, CodecZstd}

// textOf is n bytes that compress as text does.
func textOf(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 1))
	var b []byte
	for len(b) < n {
		b = fmt.Appendf(b, `{"user":%d,"event":"view","page":"/item/%d","ok":true} `, rng.IntN(5000), rng.IntN(1e6))
	}
	return b[:n]
}

func noise(n int, seed uint64) []byte {
	rng := rand.New(rand.NewPCG(seed, 2))
	b := make([]byte, n)
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return b
}

// payloads are contents that bring out the branches of the codecs.
func payloads() map[string][]byte {
	return map[string][]byte{
		"empty":       {},
		"one byte":    {7},
		"short":       []byte("hello"),
		"64 KiB":      textOf(64<<10, 1),
		"64 KiB + 1":  textOf(64<<10+1, 2),
		"text":        textOf(300_000, 3),
		"noise":       noise(140_000, 4),
		"zeros":       make([]byte, 280_000),
		"mixed":       bytes.Join([][]byte{textOf(100_000, 5), noise(100_000, 6), make([]byte, 100_000)}, nil),
		"short match": []byte(strings.Repeat("ab", 40)),
	}
}

func TestCodecsRoundTrip(t *testing.T) {
	for _, codec := range compressing {
		for name, want := range payloads() {
			t.Run(codec.String()+"/"+name, func(t *testing.T) {
				prefix := []byte("kept")
				packed, err := CompressRecords(prefix, codec, want)
				require.NoError(t, err)
				require.Equal(t, "kept", string(packed[:4]))
				checkDecompress(t, codec, packed[4:], want)
			})
		}
	}
}

// checkDecompress decompresses packed into slices with and without room, with a limit
// that just suffices and with one that does not.
func checkDecompress(t require.TestingT, codec Codec, packed, want []byte) {
	for _, room := range []int{0, 1, len(want) / 2, len(want), len(want) + 1, 2*len(want) + 1000} {
		got, err := decompress(make([]byte, 0, room), codec, packed, len(want))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got), "other content with room %d", room)
	}
	if len(want) > 0 {
		_, err := decompress(nil, codec, packed, len(want)-1)
		require.ErrorIs(t, err, ErrTooLarge)
		_, err = decompress(make([]byte, 0, 2*len(want)), codec, packed, len(want)-1)
		require.ErrorIs(t, err, ErrTooLarge, "room that the slice has does not count")
		_, err = decompress(nil, codec, packed, 0)
		require.ErrorIs(t, err, ErrTooLarge)
	}
}

// otherEncoders compress as other clients do.
func otherEncoders() map[string]struct {
	codec  Codec
	encode func([]byte) []byte
} {
	type encoder = struct {
		codec  Codec
		encode func([]byte) []byte
	}
	all := map[string]encoder{
		"xerial":      {CodecSnappy, xerial},
		"gzip in two": {CodecGzip, gzipInTwo},
		"zstd stream": {CodecZstd, zstdStream},
		"zstd in two": {CodecZstd, zstdInTwo},
	}
	for _, c := range []kgo.CompressionCodec{kgo.GzipCompression(), kgo.SnappyCompression(), kgo.Lz4Compression(), kgo.ZstdCompression()} {
		compressor, err := kgo.DefaultCompressor(c)
		if err != nil {
			panic(err)
		}
		_, codec := compressor.Compress(new(bytes.Buffer), []byte("x"))
		all["kgo "+Codec(codec).String()] = encoder{Codec(codec), func(b []byte) []byte {
			out, _ := compressor.Compress(new(bytes.Buffer), b)
			return out
		}}
	}
	for name, options := range map[string][]lz4.Option{
		"linked blocks":  {lz4.BlockSizeOption(lz4.Block64Kb)},
		"checksums":      {lz4.BlockChecksumOption(true), lz4.ChecksumOption(true), lz4.BlockSizeOption(lz4.Block256Kb)},
		"no checksums":   {lz4.ChecksumOption(false), lz4.BlockSizeOption(lz4.Block1Mb)},
		"level 9":        {lz4.CompressionLevelOption(lz4.Level9), lz4.BlockSizeOption(lz4.Block4Mb)},
		"content length": {lz4.SizeOption(1)}, // set below to the real one
	} {
		all["lz4 "+name] = encoder{CodecLz4, func(b []byte) []byte {
			var out bytes.Buffer
			w := lz4.NewWriter(&out)
			if name == "content length" {
				options = []lz4.Option{lz4.SizeOption(uint64(len(b)))}
			}
			must(w.Apply(options...))
			must1(w.Write(b))
			must(w.Close())
			return out.Bytes()
		}}
	}
	return all
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

func must1[T any](v T, err error) T {
	must(err)
	return v
}

// xerial frames blocks as snappy-java does.
func xerial(b []byte) []byte {
	out := append([]byte{}, xerialMagic...)
	out = append(out, 0, 0, 0, 1, 0, 0, 0, 1)
	for len(b) > 0 {
		n := min(len(b), 32<<10)
		block := s2.EncodeSnappy(nil, b[:n])
		out = binary.BigEndian.AppendUint32(out, uint32(len(block)))
		out = append(out, block...)
		b = b[n:]
	}
	return out
}

func gzipInTwo(b []byte) []byte {
	var out bytes.Buffer
	for _, part := range [][]byte{b[:len(b)/3], b[len(b)/3:]} {
		w := stdgzip.NewWriter(&out)
		w.Name, w.Comment = "name", "comment"
		must1(w.Write(part))
		must(w.Close())
	}
	return out.Bytes()
}

// zstdStream names a large window and no content size, as Java does.
func zstdStream(b []byte) []byte {
	var out bytes.Buffer
	w := must1(zstd.NewWriter(&out, zstd.WithWindowSize(8<<20), zstd.WithEncoderConcurrency(1)))
	for len(b) > 0 { // in pieces, or the writer knows the size
		n := min(len(b), 10_000)
		must1(w.Write(b[:n]))
		b = b[n:]
	}
	must(w.Close())
	return out.Bytes()
}

// zstdInTwo has two frames with a skippable one between them.
func zstdInTwo(b []byte) []byte {
	w := must1(zstd.NewWriter(nil, zstd.WithEncoderConcurrency(1)))
	out := w.EncodeAll(b[:len(b)/3], nil)
	out = append(out, 0x5a, 0x2a, 0x4d, 0x18, 3, 0, 0, 0, 'a', 'b', 'c')
	return w.EncodeAll(b[len(b)/3:], out)
}

func TestOtherEncoders(t *testing.T) {
	for name, e := range otherEncoders() {
		for kind, want := range payloads() {
			t.Run(name+"/"+kind, func(t *testing.T) {
				packed := e.encode(want)
				if len(packed) == 0 {
					t.Skip("no frame for no content")
				}
				checkDecompress(t, e.codec, packed, want)
			})
		}
	}
}

func TestOtherDecoders(t *testing.T) {
	d := kgo.DefaultDecompressor()
	for _, codec := range compressing {
		for name, want := range payloads() {
			packed, err := CompressRecords(nil, codec, want)
			require.NoError(t, err)
			got, err := d.Decompress(packed, kgo.CompressionCodecType(codec))
			require.NoError(t, err, "%s of %s", codec, name)
			require.True(t, bytes.Equal(want, got), "%s of %s", codec, name)
		}
	}
}

// TestLinkedLz4 is a frame whose second block refers to the first, which no Go encoder
// makes.
func TestLinkedLz4(t *testing.T) {
	frame := []byte{0x04, 0x22, 0x4d, 0x18, lz4Version << 6, 4 << 4}
	frame = append(frame, byte(xxh32Short(frame[4:])>>8))
	first := []byte{0x90, 'a', 'b', 'c', 'd', 'e', 'f', 'g', 'h', 'i'} // nine literals
	second := []byte{0x04, 9, 0, 0x10, '!'}                            // eight bytes from nine back, one literal
	for _, block := range [][]byte{first, second} {
		frame = binary.LittleEndian.AppendUint32(frame, uint32(len(block)))
		frame = append(frame, block...)
	}
	frame = append(frame, 0, 0, 0, 0)
	want := "abcdefghiabcdefgh!"
	checkDecompress(t, CodecLz4, frame, []byte(want))
	got, err := io.ReadAll(lz4.NewReader(bytes.NewReader(frame)))
	require.NoError(t, err)
	require.Equal(t, want, string(got))

	frame[4] |= lz4FlagIndependent
	frame[6] = byte(xxh32Short(frame[4:6]) >> 8)
	_, err = decompress(nil, CodecLz4, frame, 100)
	require.ErrorIs(t, err, ErrCorruptCompression, "an independent block may not refer back")
}

// bombs are small and decompress to a lot.
func bombs(t *testing.T, size int) map[Codec][][]byte {
	zeros := make([]byte, size)
	all := make(map[Codec][][]byte)
	for _, codec := range compressing {
		packed, err := CompressRecords(nil, codec, zeros)
		require.NoError(t, err)
		all[codec] = append(all[codec], packed)
	}
	for _, e := range otherEncoders() {
		all[e.codec] = append(all[e.codec], e.encode(zeros))
	}
	// lengths that are lies
	snappyLie := binary.AppendUvarint(nil, 1<<32-1)
	all[CodecSnappy] = append(all[CodecSnappy], append(snappyLie, 0, 'x'))
	all[CodecGzip] = append(all[CodecGzip], append(all[CodecGzip][0][:len(all[CodecGzip][0])-4:len(all[CodecGzip][0])-4], 0xff, 0xff, 0xff, 0xff))
	zstdLie := []byte{0x28, 0xb5, 0x2f, 0xfd, 0xe0, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x7f, 1, 0, 0}
	zstdRLE := []byte{0x28, 0xb5, 0x2f, 0xfd, 0x00, 0x58}
	for range 10_000 {
		zstdRLE = append(zstdRLE, 0x02, 0x00, 0x10, 'z') // 128 KiB each
	}
	zstdRLE = append(zstdRLE, 1, 0, 0)
	all[CodecZstd] = append(all[CodecZstd], zstdLie, zstdRLE)
	return all
}

// TestBombs checks that neither memory nor output passes the limit.
func TestBombs(t *testing.T) {
	const limit = 1 << 20
	for codec, packed := range bombs(t, 6<<20) {
		for i, b := range packed {
			t.Run(fmt.Sprintf("%s/%d", codec, i), func(t *testing.T) {
				_, _ = decompress(nil, codec, b, limit) // fill the pools
				var before, after runtime.MemStats
				runtime.ReadMemStats(&before)
				_, err := decompress(nil, codec, b, limit)
				runtime.ReadMemStats(&after)
				require.Error(t, err)
				if !strings.Contains(err.Error(), ErrCorruptCompression.Error()) {
					require.ErrorIs(t, err, ErrTooLarge)
				}
				if !raceEnabled { // under it pools drop values at random
					require.Less(t, after.TotalAlloc-before.TotalAlloc, uint64(3*limit))
				}
			})
		}
	}
}

func TestCorruptCompression(t *testing.T) {
	text := textOf(1500, 9)
	for _, codec := range compressing {
		packed, err := CompressRecords(nil, codec, text)
		require.NoError(t, err)
		for n := range packed {
			_, err := decompress(nil, codec, packed[:n], 1<<20)
			require.ErrorIs(t, err, ErrCorruptCompression, "%s cut to %d of %d", codec, n, len(packed))
		}
	}
	for _, codec := range []Codec{5, 6, 7} {
		_, err := decompress(nil, codec, text, 1<<20)
		require.ErrorIs(t, err, ErrUnknownCodec)
		_, err = CompressRecords(nil, codec, text)
		require.ErrorIs(t, err, ErrUnknownCodec)
	}
	framed := xerial(text)
	for n := xerialHeaderLen + 1; n < len(framed); n++ {
		_, err := decompress(nil, CodecSnappy, framed[:n], 1<<20)
		require.ErrorIs(t, err, ErrCorruptCompression, "xerial cut to %d of %d", n, len(framed))
	}
	framed[xerialHeaderLen] = 0xff
	_, err := decompress(nil, CodecSnappy, framed, 1<<20)
	require.ErrorIs(t, err, ErrCorruptCompression, "a block of 4 GiB")
	for name, frame := range map[string][]byte{
		"block too large":  {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 1, 0, 1, 0x80},
		"no block ends it": {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 5, 0, 0, 0, 0x50, 'a', 'b', 'c', 'd', 0, 0, 0, 0},
		"only a match":     {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 3, 0, 0, 0, 0x00, 1, 0, 0, 0, 0, 0},
		"offset 0":         {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x82, 6, 0, 0, 0, 0x10, 'a', 0, 0, 0x10, 'b', 0, 0, 0, 0},
		"trailing bytes":   append(must1(CompressRecords(nil, CodecLz4, text)), 0),
		"another magic":    {0x02, 0x21, 0x4c, 0x18, 0x60, 0x40, 0x82, 0, 0, 0, 0},
		"header checksum":  {0x04, 0x22, 0x4d, 0x18, 0x60, 0x40, 0x83, 0, 0, 0, 0},
		"block size below": {0x04, 0x22, 0x4d, 0x18, 0x60, 0x30, byte(xxh32Short([]byte{0x60, 0x30}) >> 8), 0, 0, 0, 0},
		"a dictionary":     {0x04, 0x22, 0x4d, 0x18, 0x61, 0x40, byte(xxh32Short([]byte{0x61, 0x40}) >> 8), 0, 0, 0, 0},
	} {
		_, err := decompress(nil, CodecLz4, frame, 1<<20)
		require.ErrorIs(t, err, ErrCorruptCompression, name)
	}
}

// TestMutatedCompression flips bytes and compares with other decoders where the content
// still decodes.
func TestMutatedCompression(t *testing.T) {
	text := textOf(3000, 10)
	reference := kgo.DefaultDecompressor()
	rapid.Check(t, func(t *rapid.T) {
		codec := rapid.SampledFrom(compressing).Draw(t, "codec")
		packed := must1(CompressRecords(nil, codec, text))
		for range rapid.IntRange(1, 3).Draw(t, "flips") {
			packed[rapid.IntRange(0, len(packed)-1).Draw(t, "at")] ^= byte(rapid.IntRange(1, 255).Draw(t, "by"))
		}
		got, err := decompress(nil, codec, packed, 1<<20)
		if err != nil {
			return
		}
		want, err := reference.Decompress(packed, kgo.CompressionCodecType(codec))
		require.NoError(t, err)
		require.True(t, bytes.Equal(want, got))
	})
}

func TestDecompressorKeepsItsBuffer(t *testing.T) {
	var b BatchBuilder
	build := func(codec Codec, value string) (BatchHeader, []byte) {
		o := PlainBatch(0)
		o.Codec = codec
		b.Reset(o)
		b.Append(nil, []byte(value), nil, 1)
		batch := must1(b.Build(nil))
		return must1(ParseBatchHeader(batch)), batch
	}
	var d Decompressor
	plainHeader, plain := build(CodecNone, "plain")
	before := append([]byte{}, plain...)
	_, err := d.Records(&plainHeader, plain, 100)
	require.NoError(t, err)
	zstdHeader, packed := build(CodecZstd, "packed")
	_, err = d.Records(&zstdHeader, packed, 100)
	require.NoError(t, err)
	require.Equal(t, before, plain, "a batch is not used as a buffer")

	_, err = d.Records(&zstdHeader, packed[:len(packed)-1], 100)
	require.ErrorIs(t, err, ErrCorruptBatch)
}

func TestCodecsDoNotAllocate(t *testing.T) {
	if raceEnabled {
		t.Skip("pools drop values at random under the race detector")
	}
	text := textOf(200_000, 11)
	for _, codec := range compressing {
		packed := must1(CompressRecords(nil, codec, text))
		dst := make([]byte, 0, 2*len(text))
		require.LessOrEqual(t, testing.AllocsPerRun(50, func() {
			dst = must1(decompress(dst[:0], codec, packed, 1<<20))
		}), 0.5, "decompress %s", codec)
		require.LessOrEqual(t, testing.AllocsPerRun(50, func() {
			dst = must1(CompressRecords(dst[:0], codec, text))
		}), 0.5, "compress %s", codec)
	}
}

// TestCodecsStartNoGoroutine uses the codecs from several goroutines and looks for any
// that are left.
func TestCodecsStartNoGoroutine(t *testing.T) {
	defer goleak.VerifyNone(t, goleak.IgnoreCurrent())
	text := textOf(50_000, 12)
	var users sync.WaitGroup
	for _, codec := range append(compressing, compressing...) {
		users.Go(func() {
			for range 10 {
				packed, err := CompressRecords(nil, codec, text)
				assert.NoError(t, err)
				got, err := decompress(nil, codec, packed, len(text))
				assert.NoError(t, err)
				assert.True(t, bytes.Equal(text, got))
			}
		})
	}
	users.Wait()
}

func TestCodecNames(t *testing.T) {
	for c := CodecNone; c <= CodecZstd; c++ {
		got, err := ParseCodec(c.String())
		require.NoError(t, err)
		require.Equal(t, c, got)
	}
	_, err := ParseCodec("brotli")
	require.ErrorIs(t, err, ErrUnknownCodec)
}
