package commitlog

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// Recovery is what Open found. After a clean stop it is zero but for End.
type Recovery struct {
	Unclean      bool // the last stop was not clean, or the files contradict that it was
	CheckedBytes int64
	End          int64     // log end offset
	Dropped      []Dropped // what was not believed
	Rebuilt      []string  // files that were missing or bad, and were made anew
}

// Dropped is bytes of a segment that are not part of the log. They stay in the file.
type Dropped struct {
	Segment int64 // base offset of the segment
	Offset  int64 // what it may have held begins here
	Bytes   int64
	Reason  string
}

// Open opens the log in o.Dir, making it if it is not there.
func Open(o Options) (*Log, error) {
	o = o.withDefaults()
	l := &Log{opts: o, logger: o.Logger}
	l.disk.fs, l.disk.dir, l.disk.syncs = o.FS, o.Dir, o.Syncs
	l.mu.config = o.Config
	l.setSegments(nil)
	err := l.recover()
	if err == nil {
		err = l.deleteBelowStart() // a crash may have undone a deletion
	}
	if err != nil {
		_ = l.closeFiles()
		return nil, fmt.Errorf("open %s in %s: %w", o.Name, o.Dir, err)
	}
	return l, nil
}

// recover loads what the directory holds.
func (l *Log) recover() error {
	names, err := l.disk.open()
	if err != nil {
		return err
	}
	state, hasState, err := l.disk.readState()
	switch {
	case errors.Is(err, errCorruptFile):
		l.logger.Error("rebuild the state of a partition", zap.String("partition", l.opts.Name), zap.Error(err))
	case err != nil:
		return err
	}
	r := &loader{log: l, state: state, hasState: hasState, nowMs: l.nowMs(), unclean: l.opts.Unclean}
	r.epochsLost = err != nil
	l.disk.parentDirty.Store(!hasState)
	if err := r.load(names); err != nil {
		return err
	}
	l.install(r)
	return nil
}

// loader is one Open at work.
type loader struct {
	log        *Log
	state      logState
	hasState   bool
	epochsLost bool
	unclean    bool
	nowMs      int64

	segments    []*segment
	hasIndex    map[int64]bool
	headers     map[int64]indexHeader // of the index files that are good
	producers   *producers            // after segment producersAt, once one was scanned
	producersAt int
	open        bool // the last segment takes appends
	synced      bool // the end is known to be durable
	report      Recovery
}

func (r *loader) load(names []string) error {
	names, err := r.finishSwap(names)
	if err != nil {
		return err
	}
	if err := r.collect(names); err != nil {
		return err
	}
	if err := r.readHeaders(); err != nil {
		return err
	}
	if err := r.findEpochs(); err != nil {
		return err
	}
	for i := 0; i < len(r.segments); i++ { // a crash may end the list early
		if err := r.loadSegment(i); err != nil {
			return err
		}
	}
	return r.finish()
}

// collect lists the segments and removes what a crash left of unfinished work.
func (r *loader) collect(names []string) error {
	d := &r.log.disk
	r.hasIndex = make(map[int64]bool)
	var strays []string
	bases := make(map[int64]bool)
	for _, name := range names {
		if base, ext, ok := parseSegmentName(name); ok && ext == logExt {
			bases[base] = true
			r.segments = append(r.segments, newSegment(d, base))
		}
	}
	for _, name := range names {
		base, ext, ok := parseSegmentName(name)
		switch {
		case strings.HasSuffix(name, tmpSuffix), ok && ext == cleanedExt, ok && !bases[base] && ext != droppedExt:
			strays = append(strays, name)
		case ok && ext == indexExt:
			r.hasIndex[base] = true
		}
	}
	slices.SortFunc(r.segments, func(a, b *segment) int { return compareInts(a.base, b.base, 0, 0) })
	for _, name := range strays {
		if err := d.remove(name); err != nil {
			return err
		}
	}
	return nil
}

// readHeaders reads what the index files say of their segments.
func (r *loader) readHeaders() error {
	r.headers = make(map[int64]indexHeader)
	for _, s := range r.segments {
		if !r.hasIndex[s.base] {
			continue
		}
		h, err := r.log.disk.readIndexHeader(s.base)
		switch {
		case errors.Is(err, errCorruptFile):
			r.log.logger.Warn("rebuild an index", zap.String("partition", r.log.opts.Name), zap.Error(err))
		case err != nil:
			return err
		default:
			r.headers[s.base] = h
		}
	}
	return nil
}

// limit is the offset that ends segment i.
func (r *loader) limit(i int) int64 {
	if i+1 < len(r.segments) {
		return r.segments[i+1].base
	}
	return math.MaxInt64
}

// loadSegment finds out what segment i holds.
func (r *loader) loadSegment(i int) error {
	s, last := r.segments[i], i+1 == len(r.segments)
	size, err := r.sizeOf(s)
	if err != nil {
		return err
	}
	h, ok := r.headers[s.base]
	if ok && (h.dataBytes > size || h.next > r.limit(i)) {
		ok = false // of another file; scanned below
		delete(r.headers, s.base)
		r.report.Unclean = true
	}
	if ok {
		s.size.Store(h.dataBytes)
		s.next.Store(h.next)
		s.stats = h.stats
		s.aborted = h.aborted
	}
	switch {
	case ok && h.sealed:
		s.sealed.Store(true)
		s.indexed.Store(true)
		if r.holeAfter(i) {
			if err := r.dropAfter(i); err != nil {
				return err
			}
		}
		r.synced = i+1 == len(r.segments)
		return nil
	case ok && last && h.dataBytes == size:
		r.open, r.synced = true, true
		return r.reopen(s, size)
	}
	return r.scan(i, size)
}

// sizeOf is how many bytes of the segment's file are looked at.
func (r *loader) sizeOf(s *segment) (int64, error) {
	info, err := r.log.disk.fs.Stat(r.log.disk.path(s.name(logExt)))
	if err != nil {
		return 0, fmt.Errorf("stat %s: %w", r.log.disk.path(s.name(logExt)), err)
	}
	size := info.Size()
	if s.base == r.state.suspectBase && size > r.state.suspectBytes {
		r.drop(s, s.base, size-r.state.suspectBytes, "its fsync failed")
		size = r.state.suspectBytes
	}
	return size, nil
}

// reopen checks the index of the segment that was active at a clean stop. It is loaded
// when somebody reads or appends.
func (r *loader) reopen(s *segment, size int64) error {
	_, err := r.log.disk.readIndex(s.base, indexExt)
	if errors.Is(err, errCorruptFile) {
		delete(r.headers, s.base)
		r.forget(s)
		return r.scan(len(r.segments)-1, size)
	}
	return err
}

func (r *loader) forget(s *segment) {
	s.size.Store(0)
	s.next.Store(s.base)
	s.stats = emptyStats()
	r.open, r.synced = false, false
}

func (r *loader) drop(s *segment, offset, bytes int64, reason string) {
	r.report.Dropped = append(r.report.Dropped, Dropped{Segment: s.base, Offset: offset, Bytes: bytes, Reason: reason})
}
