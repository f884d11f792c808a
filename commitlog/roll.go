package commitlog

import "go.uber.org/zap"

// indexImage is an index file to write: what is true of a segment at one moment.
type indexImage struct {
	header    indexHeader
	entries   []indexEntry
	aborted   []abortedTxn
	producers []byte
}

func (m *indexImage) encode() []byte {
	return appendIndexFile(nil, m.header, m.entries, m.aborted, m.producers)
}

// imageLocked takes the image of the active segment.
func (l *Log) imageLocked(s *segment, sealed bool) (*indexImage, error) {
	x, err := l.indexOf(s)
	if err != nil {
		return nil, err
	}
	return &indexImage{
		header: indexHeader{
			sealed:    sealed,
			base:      s.base,
			dataBytes: s.size.Load(),
			next:      s.next.Load(),
			stats:     s.stats,
		},
		entries:   x.entries.view(),
		aborted:   x.aborted.view(),
		producers: l.mu.producers.appendTo(nil),
	}, nil
}

// writeIndex replaces the segment's index file. The data that the image vouches for
// must be durable.
func (l *Log) writeIndex(s *segment, m *indexImage) error {
	return l.disk.replace(s.name(indexExt), m.encode())
}

// roomLocked is the segment that the batch goes to, open for writing. All that must be
// durable before the batch may be is written.
func (l *Log) roomLocked(e *entry) (*segment, error) {
	if s := l.mu.active; s != nil && l.mustRollLocked(s, e) {
		if err := l.sealLocked(); err != nil {
			return nil, err
		}
	}
	if l.mu.active == nil {
		return l.beginLocked()
	}
	if err := l.persistEpochLocked(); err != nil {
		return nil, err
	}
	s := l.mu.active
	if _, err := l.indexOf(s); err != nil {
		return nil, err
	}
	if !l.mu.opened {
		if err := s.openForAppend(); err != nil {
			return nil, err
		}
		l.mu.opened = true
	}
	return s, nil
}

// mustRollLocked is Kafka's LogSegment.shouldRoll, and true after a torn write.
func (l *Log) mustRollLocked(s *segment, e *entry) bool {
	if l.mu.tornTail {
		return true
	}
	size := s.size.Load()
	if size == 0 {
		return false
	}
	waited := e.nowMs - l.mu.createdMs
	if first := s.stats.firstTimestamp; first >= 0 {
		waited = max(e.h.MaxTimestamp, first) - first
	}
	return size > l.mu.config.segmentBytes()-int64(len(e.bytes)) ||
		waited > l.mu.config.rollAgeMs() ||
		!canHold(s.base, e.h.LastOffset())
}

// persistEpochLocked makes a leader epoch that began at Open durable.
func (l *Log) persistEpochLocked() error {
	if !l.mu.epochNew {
		return nil
	}
	if err := l.disk.writeState(&l.mu.state); err != nil {
		return err
	}
	l.mu.epochNew = false
	return nil
}

// sealLocked ends the active segment. Where answers wait for fsyncs it is sealed on
// disk before a new one can begin, so that a segment is always whole when a later one
// exists; elsewhere the flusher does it.
func (l *Log) sealLocked() error {
	s := l.mu.active
	if s.size.Load() == 0 {
		l.dropEmptyLocked(s)
		return nil
	}
	image, err := l.imageLocked(s, true)
	if err != nil {
		return err
	}
	if l.answersAfterSyncLocked() {
		if err := l.sealOnDiskLocked(s, image); err != nil {
			return err
		}
	} else {
		f := &l.mu.flush
		f.rolled = append(f.rolled, rolledSegment{segment: s, image: image})
		f.rollNow = true
		l.startFlusherLocked()
	}
	s.aborted = len(image.aborted)
	s.sealed.Store(true)
	l.mu.active, l.mu.opened, l.mu.tornTail = nil, false, false
	return nil
}

func (l *Log) sealOnDiskLocked(s *segment, image *indexImage) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.syncing.failed != nil {
		return l.syncing.failed
	}
	w := flushWork{rolled: l.mu.flush.rolled}
	err := l.sealRolled(&w)
	if err == nil && l.mu.durable < l.end.Load() {
		err = l.syncSegment(s)
	}
	if err != nil {
		l.syncing.failed = err
		return err
	}
	l.mu.flush.rolled = w.rolled
	l.mu.durable, l.mu.durableBytes = l.end.Load(), s.size.Load()
	l.publishLocked()
	if err := l.writeIndex(s, image); err != nil {
		return err
	}
	s.indexed.Store(true) // the next segment's directory sync comes before its first answer
	return nil
}

// dropEmptyLocked takes a segment without a batch off the list; its file is made anew.
func (l *Log) dropEmptyLocked(s *segment) {
	list := *l.segments.Load()
	l.setSegments(list[: len(list)-1 : len(list)-1])
	if err := s.leave(); err != nil {
		l.logger.Warn("close empty segment", zap.String("partition", l.opts.Name), zap.Error(err))
	}
	l.mu.active, l.mu.opened, l.mu.tornTail = nil, false, false
}

// beginLocked begins a segment at the log's end.
func (l *Log) beginLocked() (*segment, error) {
	if l.mu.epochNew {
		if err := l.disk.putState(&l.mu.state); err != nil {
			return nil, err
		}
	}
	if err := l.setAsideLocked(); err != nil {
		return nil, err
	}
	s := newSegment(&l.disk, l.end.Load())
	f, err := l.disk.create(s.name(logExt))
	if err != nil {
		return nil, err
	}
	s.index.Store(&segmentIndex{})
	if err := l.renewIndexLocked(s); err != nil {
		_ = f.Close()
		return nil, err
	}
	if l.mu.epochNew || l.answersAfterSyncLocked() {
		if err := l.disk.syncDir(); err != nil {
			_ = f.Close()
			return nil, err
		}
	} else {
		l.mu.flush.dirDirty = true
	}
	l.mu.epochNew = false
	s.handle.file = f
	list := *l.segments.Load()
	l.setSegments(append(list[:len(list):len(list)], s))
	l.mu.active, l.mu.opened, l.mu.createdMs = s, true, l.nowMs()
	l.mu.durableBytes, l.mu.flush.checkpointed = 0, 0
	return s, nil
}

// setAsideLocked takes a last segment off the list of which recovery believed nothing, and
// keeps its bytes under another name: the next segment begins at the same offset, so it
// has the same name, and must not be taken for that one.
func (l *Log) setAsideLocked() error {
	list := *l.segments.Load()
	n := len(list) - 1
	if n < 0 || list[n].next.Load() != list[n].base || list[n].base != l.end.Load() {
		return nil
	}
	s := list[n]
	l.setSegments(list[:n:n])
	l.mu.aside = true
	if err := s.leave(); err != nil {
		l.logger.Warn("close a segment that is set aside", zap.String("partition", l.opts.Name), zap.Error(err))
	}
	if err := l.disk.rename(s.name(logExt), s.name(droppedExt)); err != nil {
		return err
	}
	return l.removeFiles(s.base, indexExt)
}

// renewIndexLocked puts the index file of a new segment in place of that of one that was
// set aside. It goes on carrying the state of the producers.
func (l *Log) renewIndexLocked(s *segment) error {
	if !l.mu.aside {
		return nil
	}
	image, err := l.imageLocked(s, false)
	if err == nil {
		err = l.writeIndex(s, image)
	}
	l.mu.aside = err != nil
	return err
}

// suspectLocked notes, if the disk still lets it, which bytes a failed fsync left in
// doubt: the system may show them now and have lost them later.
func (l *Log) suspectLocked(cause error) {
	s := l.mu.active
	if s == nil || s.size.Load() == l.mu.durableBytes {
		return
	}
	state := l.mu.state
	state.suspectBase, state.suspectBytes = s.base, l.mu.durableBytes
	if err := l.disk.writeState(&state); err != nil {
		l.logger.Error("cannot note what a failed fsync left in doubt",
			zap.String("partition", l.opts.Name), zap.NamedError("fsync", cause), zap.Error(err))
	}
}
