package commitlog

import (
	"fmt"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

const (
	logExt   = ".log"
	indexExt = ".index"

	// baseDigits is how many digits a base offset has in a file name, as in Kafka.
	baseDigits = 20
)

func segmentName(base int64, ext string) string {
	return fmt.Sprintf("%0*d%s", baseDigits, base, ext)
}

// parseSegmentName splits a file name into base offset and extension, dot included.
func parseSegmentName(name string) (base int64, ext string, ok bool) {
	if len(name) <= baseDigits || name[baseDigits] != '.' {
		return 0, "", false
	}
	base, err := strconv.ParseInt(name[:baseDigits], 10, 64)
	if err != nil || base < 0 || strings.HasPrefix(name, "+") || strings.HasPrefix(name, "-") {
		return 0, "", false
	}
	return base, name[baseDigits:], true
}

// segment is one file of record batches. A log's last segment may be active, that is
// appended to; all others are sealed and never change. Compaction makes new segments.
type segment struct {
	base       int64
	generation uint32 // how often the log has replaced the segment at this base, since it was opened
	disk       *disk

	size  atomic.Int64 // bytes of whole batches; the file may be longer
	next  atomic.Int64 // one past the last offset that the segment stands for, base when empty
	used  atomic.Bool  // read or appended to since the last release of idle files
	index atomic.Pointer[segmentIndex]

	aborted int // aborted transactions whose marker is in it, once it is sealed

	// stats is of the appender's lock while the segment is active, and fixed afterwards.
	stats segmentStats

	sealed  atomic.Bool // no append can come here any more
	indexed atomic.Bool // sealed, durable, and its index file says so

	loading sync.Mutex // held while the index is loaded

	handle struct {
		sync.RWMutex // shared while the file is read
		file         vfs.File
		gone         bool // deleted, replaced or closed: the file must not be opened by name again
	}
}

// segmentStats sums up a segment's batches.
type segmentStats struct {
	firstTimestamp int64 // max timestamp of the first batch, which segment.ms counts from; -1 when empty
	maxTimestamp   int64 // -1 when empty
	lastEpoch      int32 // leader epoch of the last batch, -1 when empty
	compacted      bool  // offsets may be missing
}

func emptyStats() segmentStats {
	return segmentStats{firstTimestamp: -1, maxTimestamp: -1, lastEpoch: -1}
}

func newSegment(d *disk, base int64) *segment {
	s := &segment{base: base, disk: d, stats: emptyStats()}
	s.next.Store(base)
	return s
}

func (s *segment) name(ext string) string { return segmentName(s.base, ext) }

// readAt fills a prefix of p from pos on and returns its length, which is shorter than
// p only at the end of the good data. ErrSegmentGone if the segment is no longer
// there.
func (s *segment) readAt(p []byte, pos int64) (int, error) {
	if left := s.size.Load() - pos; int64(len(p)) > left {
		p = p[:max(left, 0)]
	}
	if len(p) == 0 {
		return 0, nil
	}
	if err := s.readExact(p, pos); err != nil {
		return 0, err
	}
	return len(p), nil
}

// readExact fills p from pos on, past the good data too.
func (s *segment) readExact(p []byte, pos int64) error {
	if !s.used.Load() {
		s.used.Store(true)
	}
	f, err := s.share()
	if err != nil {
		return err
	}
	defer s.handle.RUnlock()
	if err := readFull(f, p, pos); err != nil {
		return fmt.Errorf("read %s at %d: %w", s.disk.path(s.name(logExt)), pos, err)
	}
	return nil
}

// share returns the open file with the handle locked for reading; the caller unlocks.
func (s *segment) share() (vfs.File, error) {
	for {
		s.handle.RLock()
		if s.handle.file != nil {
			return s.handle.file, nil
		}
		s.handle.RUnlock()
		if err := s.open(); err != nil {
			return nil, err
		}
	}
}

// open makes sure that the file is open, or says why it cannot be.
func (s *segment) open() error {
	s.handle.RLock()
	open := s.handle.file != nil
	s.handle.RUnlock()
	if open {
		return nil // without waiting for reads to end
	}
	s.handle.Lock()
	defer s.handle.Unlock()
	if s.handle.gone {
		return ErrSegmentGone
	}
	if s.handle.file != nil {
		return nil
	}
	f, err := s.disk.fs.Open(s.disk.path(s.name(logExt)))
	if err != nil {
		return fmt.Errorf("open %s: %w", s.disk.path(s.name(logExt)), err)
	}
	s.handle.file = f
	return nil
}

// openForAppend opens the file for WriteAt too; it stays open until the segment is
// sealed and idle.
func (s *segment) openForAppend() error {
	f, err := s.disk.fs.OpenReadWrite(s.disk.path(s.name(logExt)), vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("open %s: %w", s.disk.path(s.name(logExt)), err)
	}
	s.handle.Lock()
	defer s.handle.Unlock()
	old := s.handle.file
	s.handle.file = f
	if old != nil {
		return old.Close()
	}
	return nil
}

// release closes the file of a sealed segment that nobody read since the last call,
// and forgets its index; both are opened again on demand.
func (s *segment) release() error {
	if !s.indexed.Load() || s.used.Swap(false) {
		return nil
	}
	s.index.Store(nil)
	return s.closeFile(false)
}

// leave makes the segment unreadable once the reads in flight are done. Its files may
// be removed or replaced then.
func (s *segment) leave() error { return s.closeFile(true) }

func (s *segment) closeFile(gone bool) error {
	s.handle.Lock()
	defer s.handle.Unlock()
	s.handle.gone = s.handle.gone || gone
	f := s.handle.file
	s.handle.file = nil
	if f == nil {
		return nil
	}
	return f.Close()
}

// file is the open file of the active segment, for the appender, who knows that nobody
// closes it meanwhile.
func (s *segment) file() (vfs.File, error) {
	f, err := s.share()
	if err == nil {
		s.handle.RUnlock()
	}
	return f, err
}
