package filter

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

// scan is one fetch of one partition.
type scan struct {
	reader    *Reader
	partition *partition
	log       Log
	filter    *keyfilter.Filter
	options   Options
	from      int64
	visit     func(*keyfilter.Decoded) // nil: what matches is sent

	dst   []byte
	start int   // what dst held before
	next  int64 // matching records below are in dst

	// The segment being scanned.
	state *segment
	info  commitlog.SegmentInfo

	matching  int   // bytes sent, but for control batches
	scanned   int64 // bytes looked at
	full      bool  // no more may be sent
	atEnd     bool  // what follows is beyond UpTo
	scanBound bool  // as much has been looked at as one fetch may

	// Kept for the next fetch.
	rebuilder keyfilter.Rebuilder
	window    window
}

var scans = sync.Pool{New: func() any { return new(scan) }}

func (s *scan) begin(r *Reader, log Log, dst []byte, from int64, f *keyfilter.Filter, o Options) {
	*s = scan{
		reader: r, partition: r.partition(log), log: log, filter: f, options: o,
		from: from, dst: dst, start: len(dst), next: from,
		rebuilder: s.rebuilder, window: s.window,
	}
}

func (s *scan) release() {
	*s = scan{rebuilder: s.rebuilder, window: s.window}
	s.window.reset(nil, commitlog.SegmentInfo{}, nil)
	scans.Put(s)
}

func (s *scan) stopped() bool {
	return s.full || s.atEnd || s.scanBound || s.next >= s.options.UpTo
}

// goneTries is how often a fetch begins anew because a segment was deleted or compacted
// under it.
const goneTries = 10

// run scans segment after segment.
func (s *scan) run() error {
	for try := 0; ; try++ {
		if start := s.log.Bounds().Start; s.next < start {
			return fmt.Errorf("%w: the log starts at %d", commitlog.ErrOffsetOutOfRange, start)
		}
		err := s.segments(s.log.Segments())
		if !errors.Is(err, commitlog.ErrSegmentGone) || try == goneTries {
			return err
		}
		if err := s.log.Err(); errors.Is(err, commitlog.ErrClosed) {
			return err
		}
	}
}

func (s *scan) segments(list []commitlog.SegmentInfo) error {
	for i, info := range list {
		if s.stopped() {
			return nil
		}
		end := info.Next
		if i+1 < len(list) {
			end = list[i+1].Base // offsets between two segments hold nothing
		}
		if s.next >= end {
			continue
		}
		if err := s.segment(info, list, end); err != nil {
			return err
		}
	}
	return nil
}

// segment scans one segment, whose offsets end at end.
func (s *scan) segment(info commitlog.SegmentInfo, list []commitlog.SegmentInfo, end int64) error {
	s.state, s.info = s.partition.segment(info, list), info
	s.partition.loadIndex(s.state, info)
	s.window.reset(s.log, info, &s.reader.counts)
	defer func() { s.reader.indexes.use(s.state, s.state.bytes()) }()
	for !s.stopped() && s.next < end {
		var err error
		if x, ok := s.state.indexAt(s.next); ok {
			err = s.byIndex(&x)
		} else {
			err = s.byReading(end)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// byIndex goes through what the index covers, and reads only batches that may match.
func (s *scan) byIndex(x *keyfilter.SlotIndex) error {
	cursor := x.From(s.next)
	before := cursor.Records()
	for !s.stopped() {
		b, ok := cursor.Next(s.filter)
		s.look(2 * int64(cursor.Records()-before))
		before = cursor.Records()
		if !ok {
			_, end := x.End()
			s.passTo(end)
			return nil
		}
		s.passTo(b.BaseOffset)
		if b.NextOffset > s.options.UpTo {
			s.atEnd = true
			return nil
		}
		e, err := s.indexed(b)
		if errors.Is(err, protocol.ErrCorruptBatch) {
			// If it is not the index that is wrong but the log, reading on without one tells.
			s.partition.fault("the slot index of a segment was wrong and is built anew", s.info, err)
			s.state.forgetIndex()
			return nil
		}
		if err != nil {
			return err
		}
		s.take(&e.batch)
		s.reader.decoded.release(e)
	}
	return nil
}

// byReading reads batch after batch, until it comes to what an index covers, and adds
// them to the index.
func (s *scan) byReading(end int64) error {
	if s.next >= s.info.Next {
		s.passTo(end) // the cleaner took what was there
		return nil
	}
	position, ok := s.state.endAt(s.next)
	if !ok {
		var err error
		if position, err = s.log.Position(s.info, s.next); err != nil {
			return err
		}
	}
	for at := (place{position, s.next, !ok}); !s.stopped(); {
		if at.position >= s.info.SizeBytes {
			s.passTo(end)
			return nil
		}
		e, err := s.unindexed(at)
		if err != nil || e == nil {
			return err
		}
		h := e.batch.Header()
		s.state.note(at.position, &e.batch)
		s.passTo(h.BaseOffset)
		s.take(&e.batch)
		at = place{at.position + int64(h.Size()), h.NextOffset(), false}
		s.reader.decoded.release(e)
		if _, ok := s.state.indexAt(s.next); ok {
			return nil
		}
	}
	return nil
}

// place is where a batch begins.
type place struct {
	position int64
	next     int64 // the offset expected there
	first    bool  // ... which may be within the batch
}

// passTo notes that there is nothing to send up to offset.
func (s *scan) passTo(offset int64) {
	s.next = max(s.next, min(offset, s.options.UpTo))
}

// look notes that bytes were looked at.
func (s *scan) look(bytes int64) {
	s.scanned += bytes
	s.scanBound = s.options.MaxScanBytes > 0 && s.scanned >= s.options.MaxScanBytes
}

// take sends what the filter leaves of the batch, if there is room for it.
func (s *scan) take(d *keyfilter.Decoded) {
	if s.visit != nil {
		s.visit(d)
		s.passTo(d.Header().NextOffset())
		s.look(int64(len(d.Batch())))
		return
	}
	before := len(s.dst)
	var verdict keyfilter.Verdict
	s.dst, verdict = s.rebuilder.Append(s.dst, d, s.filter, s.from)
	sent := len(s.dst) - s.start
	if verdict != keyfilter.None && sent > s.options.MaxBytes && (before > s.start || !s.options.MinOne) {
		s.dst, s.full = s.dst[:before], true
		return
	}
	s.full = sent >= s.options.MaxBytes && sent > 0
	if !d.Header().Control() {
		s.matching += len(s.dst) - before
	}
	s.passTo(d.Header().NextOffset())
	s.look(int64(len(d.Batch())))
}

// indexed is the batch that an index tells of.
func (s *scan) indexed(b keyfilter.IndexedBatch) (*decodedBatch, error) {
	e, err := s.acquire(b)
	if err != nil {
		return nil, err
	}
	if h := e.batch.Header(); h.BaseOffset != b.BaseOffset || h.NextOffset() != b.NextOffset {
		s.reader.decoded.release(e)
		return nil, fmt.Errorf("%w: batch with base offset %d where the slot index has %d", protocol.ErrCorruptBatch, h.BaseOffset, b.BaseOffset)
	}
	return e, nil
}

// unindexed is the batch at a place, nil if it reaches beyond UpTo, and then the fetch is
// at its end.
func (s *scan) unindexed(at place) (*decodedBatch, error) {
	// A batch in the cache need not be read even for its header.
	e := s.reader.decoded.find(batchKey{s.state, at.position})
	if e == nil {
		b, err := s.window.ahead(at.position, protocol.BatchHeaderLen)
		if err != nil {
			return nil, err
		}
		if err := s.log.CheckBatch(s.info, b, at.next, at.first); err != nil {
			return nil, err
		}
		h, err := protocol.ParseBatchHeader(b)
		if err != nil {
			return nil, fmt.Errorf("segment %d at position %d: %w", s.info.Base, at.position, err)
		}
		if s.beyond(&h) {
			return nil, nil
		}
		if _, err := s.window.ahead(at.position, h.Size()); err != nil {
			return nil, err
		}
		return s.acquire(keyfilter.IndexedBatch{Position: at.position, Size: h.Size(), BaseOffset: h.BaseOffset})
	}
	err := e.err
	if err == nil && !s.beyond(e.batch.Header()) {
		return e, nil
	}
	s.reader.decoded.release(e)
	return nil, err
}

// beyond tells whether a batch, with nothing to send before it, reaches beyond UpTo.
func (s *scan) beyond(h *protocol.BatchHeader) bool {
	if h.NextOffset() <= s.options.UpTo {
		return false
	}
	s.passTo(h.BaseOffset)
	s.atEnd = true
	return true
}

// acquire is the batch that b says where to find, from the cache or the log.
func (s *scan) acquire(b keyfilter.IndexedBatch) (*decodedBatch, error) {
	cache := s.reader.decoded
	e, load := cache.acquire(batchKey{s.state, b.Position})
	if load {
		e.err = s.load(e, b)
		cache.loaded(e)
	}
	if err := e.err; err != nil {
		cache.release(e)
		return nil, err
	}
	return e, nil
}

// load reads and decodes a batch.
func (s *scan) load(e *decodedBatch, b keyfilter.IndexedBatch) error {
	e.buf = slices.Grow(e.buf[:0], b.Size)[:b.Size]
	if err := s.window.copyTo(e.buf, b.Position); err != nil {
		return err
	}
	if err := s.log.CheckBatch(s.info, e.buf, b.BaseOffset, false); err != nil {
		return err
	}
	if err := s.decode(e, b); err != nil {
		return err
	}
	s.reader.counts.decodes.Add(1)
	if e.batch.Err() != nil {
		s.reader.counts.undecodable.Add(1)
	}
	return nil
}

// decode decodes the batch that e has read. Those that are compressed wait their turn.
func (s *scan) decode(e *decodedBatch, b keyfilter.IndexedBatch) error {
	d := s.reader.config.Decoding
	if h, err := protocol.ParseBatchHeader(e.buf); err == nil && h.Codec() != protocol.CodecNone {
		defer d.Begin()()
	}
	return e.batch.DecodeIndexed(e.buf, d.MaxBytes(), b)
}
