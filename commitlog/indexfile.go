package commitlog

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"math"
)

// The index file of a segment, big endian (docs/storage.md):
//
//	header, 80 bytes
//	entries:   count times (offset u32, pos u32, before i64), crc32c u32
//	aborted:   count times (producer i64, first i64, last i64, stable i64), crc32c u32
//	producers: bytes of a producer snapshot, crc32c u32
const (
	indexMagic      = 0x4c434958 // "LCIX"
	indexVersion    = 1
	indexHeaderLen  = 80
	indexEntryLen   = 16
	abortedTxnLen   = 32
	sectionTrailer  = 4
	flagSealed      = 1
	flagCompacted   = 2
	flagProducers   = 4
	indexFileMaxLen = 1 << 31
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// indexHeader is the fixed part of an index file. What it says of the segment is true
// of its first dataBytes bytes, which were durable before the file was written.
type indexHeader struct {
	sealed       bool // nothing follows dataBytes
	hasProducers bool
	base         int64
	dataBytes    int64
	next         int64
	stats        segmentStats

	entries   int // counts of the sections
	aborted   int
	producers int // bytes
}

func (h *indexHeader) fileLen() int64 {
	return indexHeaderLen + int64(h.entries)*indexEntryLen + int64(h.aborted)*abortedTxnLen +
		int64(h.producers) + 3*sectionTrailer
}

// appendIndexFile appends the whole file.
func appendIndexFile(dst []byte, h indexHeader, entries []indexEntry, aborted []abortedTxn, producers []byte) []byte {
	h.entries, h.aborted, h.producers = len(entries), len(aborted), len(producers)
	h.hasProducers = producers != nil
	be := binary.BigEndian
	dst = h.appendTo(dst)
	start := len(dst)
	for _, e := range entries {
		dst = be.AppendUint32(dst, e.offset)
		dst = be.AppendUint32(dst, e.pos)
		dst = be.AppendUint64(dst, uint64(e.before))
	}
	dst = appendSum(dst, start)
	start = len(dst)
	for _, a := range aborted {
		dst = be.AppendUint64(dst, uint64(a.producerID))
		dst = be.AppendUint64(dst, uint64(a.first))
		dst = be.AppendUint64(dst, uint64(a.last))
		dst = be.AppendUint64(dst, uint64(a.stable))
	}
	dst = appendSum(dst, start)
	start = len(dst)
	dst = append(dst, producers...)
	return appendSum(dst, start)
}

func appendSum(dst []byte, from int) []byte {
	return binary.BigEndian.AppendUint32(dst, crc32.Checksum(dst[from:], castagnoli))
}

func (h *indexHeader) appendTo(dst []byte) []byte {
	var flags uint16
	if h.sealed {
		flags |= flagSealed
	}
	if h.stats.compacted {
		flags |= flagCompacted
	}
	if h.hasProducers {
		flags |= flagProducers
	}
	be := binary.BigEndian
	start := len(dst)
	dst = be.AppendUint32(dst, indexMagic)
	dst = be.AppendUint16(dst, indexVersion)
	dst = be.AppendUint16(dst, flags)
	dst = be.AppendUint64(dst, uint64(h.base))
	dst = be.AppendUint64(dst, uint64(h.dataBytes))
	dst = be.AppendUint64(dst, uint64(h.next))
	dst = be.AppendUint64(dst, uint64(h.stats.firstTimestamp))
	dst = be.AppendUint64(dst, uint64(h.stats.maxTimestamp))
	dst = be.AppendUint32(dst, uint32(h.stats.lastEpoch))
	dst = be.AppendUint32(dst, uint32(h.entries))
	dst = be.AppendUint32(dst, uint32(h.aborted))
	dst = be.AppendUint32(dst, uint32(h.producers))
	dst = append(dst, make([]byte, indexHeaderLen-sectionTrailer-(len(dst)-start))...)
	return appendSum(dst, start)
}

// parseIndexHeader reads the header at the start of b and checks that the numbers in
// it agree; fileLen is the length of the whole file.
func parseIndexHeader(b []byte, base, fileLen int64) (indexHeader, error) {
	be := binary.BigEndian
	if len(b) < indexHeaderLen {
		return indexHeader{}, fmt.Errorf("%w: an index of %d bytes", errCorruptFile, len(b))
	}
	b = b[:indexHeaderLen]
	body := b[:indexHeaderLen-sectionTrailer]
	if crc32.Checksum(body, castagnoli) != be.Uint32(b[len(body):]) {
		return indexHeader{}, fmt.Errorf("%w: checksum of an index header", errCorruptFile)
	}
	if be.Uint32(b) != indexMagic || be.Uint16(b[4:]) != indexVersion {
		return indexHeader{}, fmt.Errorf("%w: index of version %d", errCorruptFile, be.Uint16(b[4:]))
	}
	flags := be.Uint16(b[6:])
	h := indexHeader{
		sealed:       flags&flagSealed != 0,
		hasProducers: flags&flagProducers != 0,
		base:         int64(be.Uint64(b[8:])),
		dataBytes:    int64(be.Uint64(b[16:])),
		next:         int64(be.Uint64(b[24:])),
		stats: segmentStats{
			firstTimestamp: int64(be.Uint64(b[32:])),
			maxTimestamp:   int64(be.Uint64(b[40:])),
			lastEpoch:      int32(be.Uint32(b[48:])),
			compacted:      flags&flagCompacted != 0,
		},
		entries:   int(be.Uint32(b[52:])),
		aborted:   int(be.Uint32(b[56:])),
		producers: int(be.Uint32(b[60:])),
	}
	if h.base != base || h.next < base || h.dataBytes < 0 || h.dataBytes > math.MaxUint32 || h.fileLen() != fileLen {
		return indexHeader{}, fmt.Errorf("%w: index header of segment %d in the index of %d, %d bytes", errCorruptFile, h.base, base, fileLen)
	}
	return h, nil
}

// indexFile is a whole index file, read.
type indexFile struct {
	header    indexHeader
	index     *segmentIndex
	producers []byte // nil: none, or bad; they are found from the batches then
}

// parseIndexFile reads a whole index file of the segment at base.
func parseIndexFile(file []byte, base int64) (indexFile, error) {
	h, err := parseIndexHeader(file, base, int64(len(file)))
	if err != nil {
		return indexFile{}, err
	}
	rest := file[indexHeaderLen:]
	entryBytes, rest, ok := section(rest, h.entries*indexEntryLen)
	abortedBytes, rest, ok2 := section(rest, h.aborted*abortedTxnLen)
	if !ok || !ok2 {
		return indexFile{}, fmt.Errorf("%w: checksum of an index", errCorruptFile)
	}
	x := indexFile{header: h, index: &segmentIndex{}}
	if err := x.index.parseEntries(entryBytes, &h); err != nil {
		return indexFile{}, err
	}
	x.index.parseAborted(abortedBytes)
	if producers, _, ok := section(rest, h.producers); ok && h.hasProducers {
		x.producers = producers
	}
	return x, nil
}

// section splits a section of n bytes off b and checks its sum.
func section(b []byte, n int) (body, rest []byte, ok bool) {
	if len(b) < n+sectionTrailer {
		return nil, nil, false
	}
	body, rest = b[:n:n], b[n+sectionTrailer:]
	return body, rest, crc32.Checksum(body, castagnoli) == binary.BigEndian.Uint32(b[n:])
}

func (x *segmentIndex) parseEntries(b []byte, h *indexHeader) error {
	be := binary.BigEndian
	entries := make([]indexEntry, 0, len(b)/indexEntryLen)
	for ; len(b) > 0; b = b[indexEntryLen:] {
		e := indexEntry{offset: be.Uint32(b), pos: be.Uint32(b[4:]), before: int64(be.Uint64(b[8:]))}
		if n := len(entries); n > 0 && (e.offset <= entries[n-1].offset || e.pos <= entries[n-1].pos || e.before < entries[n-1].before) {
			return fmt.Errorf("%w: index entries out of order", errCorruptFile)
		}
		if int64(e.pos) >= h.dataBytes || h.base+int64(e.offset) >= h.next {
			return fmt.Errorf("%w: index entry past the end of its segment", errCorruptFile)
		}
		entries = append(entries, e)
	}
	x.entries.set(entries)
	return nil
}

func (x *segmentIndex) parseAborted(b []byte) {
	be := binary.BigEndian
	for ; len(b) > 0; b = b[abortedTxnLen:] {
		x.aborted.append(abortedTxn{
			producerID: int64(be.Uint64(b)),
			first:      int64(be.Uint64(b[8:])),
			last:       int64(be.Uint64(b[16:])),
			stable:     int64(be.Uint64(b[24:])),
		})
	}
}

// readIndexHeader reads only what an index file says in sum.
func (d *disk) readIndexHeader(base int64) (indexHeader, error) {
	name := segmentName(base, indexExt)
	f, err := d.fs.Open(d.path(name))
	if err != nil {
		return indexHeader{}, fmt.Errorf("open %s: %w", d.path(name), err)
	}
	defer f.Close()
	size, err := fileSize(f)
	if err != nil {
		return indexHeader{}, err
	}
	b := make([]byte, min(size, indexHeaderLen))
	if err := readFull(f, b, 0); err != nil {
		return indexHeader{}, fmt.Errorf("read %s: %w", d.path(name), err)
	}
	h, err := parseIndexHeader(b, base, size)
	if err != nil {
		return h, fmt.Errorf("%s: %w", d.path(name), err)
	}
	return h, nil
}

// readIndex reads an index file, under its own name or that of a swap. A missing one is
// errCorruptFile too: it is made anew in the same way.
func (d *disk) readIndex(base int64, ext string) (indexFile, error) {
	name := segmentName(base, ext)
	data, err := d.read(name, indexFileMaxLen)
	if errors.Is(err, fs.ErrNotExist) {
		return indexFile{}, fmt.Errorf("%w: %s is missing", errCorruptFile, d.path(name))
	}
	if err != nil {
		return indexFile{}, err
	}
	x, err := parseIndexFile(data, base)
	if err != nil {
		return indexFile{}, fmt.Errorf("%s: %w", d.path(name), err)
	}
	return x, nil
}
