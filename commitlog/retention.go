package commitlog

import (
	"fmt"
	"time"

	"go.uber.org/zap"
)

// DeleteRecords makes before the log start, durably, and deletes the segments below it.
// -1 stands for the high watermark. It returns the log start, which is never lowered.
// The error is ErrOffsetOutOfRange for an offset above the high watermark.
func (l *Log) DeleteRecords(before int64) (start int64, err error) {
	l.upkeep.Lock()
	defer l.upkeep.Unlock()
	high := l.high.Load()
	if before == -1 {
		before = high
	}
	if before < 0 || before > high {
		return l.start.Load(), fmt.Errorf("delete records of %s: %w: %d is above %d", l.opts.Name, ErrOffsetOutOfRange, before, high)
	}
	if err := l.advanceStart(before); err != nil {
		return l.start.Load(), fmt.Errorf("delete records of %s: %w", l.opts.Name, err)
	}
	return l.start.Load(), l.deleteBelowStart()
}

// advanceStart moves the log start up, first on the disk.
func (l *Log) advanceStart(to int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	if to <= l.start.Load() {
		return nil
	}
	state := l.mu.state
	state.start = to
	state.epochs = state.epochs.from(to)
	if err := l.writeStateLocked(state); err != nil {
		return err
	}
	l.stable.Store(max(l.stable.Load(), to))
	l.start.Store(to)
	l.watchers.notify()
	return nil
}

// writeStateLocked replaces the state, on the disk and here, so that something can be deleted.
func (l *Log) writeStateLocked(state logState) error {
	if err := l.makingRoom(func() error { return l.disk.writeState(&state) }); err != nil {
		return l.storageErrorLocked(l.end.Load(), err)
	}
	l.mu.state, l.mu.epochNew = state, false
	l.epochs.Store(&state.epochs)
	return nil
}

// deleteBelowStart deletes the sealed segments that lie wholly below the log start.
func (l *Log) deleteBelowStart() error {
	gone := l.takePrefix(l.start.Load())
	if len(gone) == 0 {
		return nil
	}
	if err := l.handDownProducers(gone[len(gone)-1]); err != nil {
		return err
	}
	for _, s := range gone {
		if err := s.leave(); err != nil {
			l.logger.Warn("close a deleted segment", zap.String("partition", l.opts.Name), zap.Error(err))
		}
		if err := l.removeFiles(s.base); err != nil {
			return fmt.Errorf("%s: delete segment %d: %w", l.opts.Name, s.base, err) // the next Open does
		}
	}
	l.logger.Info("deleted segments", zap.String("partition", l.opts.Name), zap.Int("segments", len(gone)),
		zap.Int64("start", l.start.Load()))
	return l.disk.syncDir()
}

// handDownProducers saves the state of the producers after a segment that goes, if the
// next one has no index file yet: else a crash would forget them.
func (l *Log) handDownProducers(gone *segment) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.syncing.Lock() // the flusher writes that file too
	defer l.syncing.Unlock()
	next := (*l.segments.Load())[0]
	if next.indexed.Load() {
		return nil
	}
	if h, err := l.disk.readIndexHeader(next.base); err == nil && h.hasProducers {
		return nil
	}
	x, err := l.disk.readIndex(gone.base, indexExt)
	if err != nil || x.producers == nil {
		return nil // lost before
	}
	image := indexImage{
		header:    indexHeader{base: next.base, next: next.base, stats: emptyStats()},
		producers: x.producers,
	}
	if err := l.makingRoom(func() error { return l.writeIndex(next, &image) }); err != nil {
		return err
	}
	return l.disk.syncDir()
}

// takePrefix takes the segments below start off the list, so that no new read finds them.
func (l *Log) takePrefix(start int64) []*segment {
	l.mu.Lock()
	defer l.mu.Unlock()
	list := *l.segments.Load()
	n := 0
	for n+1 < len(list) && list[n+1].base <= start && list[n].indexed.Load() {
		n++
	}
	l.setSegments(list[n:len(list):len(list)])
	return list[:n]
}

// ApplyRetention deletes what retention.ms, retention.bytes and the log start leave no
// room for, forgets idle producers and closes files that are not in use. The broker
// calls it now and then.
func (l *Log) ApplyRetention(now time.Time) error {
	l.upkeep.Lock()
	defer l.upkeep.Unlock()
	start, err := l.retainedStart(millis(now))
	if err != nil {
		return err
	}
	if err := l.advanceStart(start); err != nil {
		return err
	}
	if err := l.deleteBelowStart(); err != nil {
		return err
	}
	return l.releaseIdle()
}

// retainedStart is the log start that retention asks for. If nothing at all is to be
// kept, it begins a new segment so that the others can go.
func (l *Log) retainedStart(nowMs int64) (int64, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return 0, err
	}
	c := &l.mu.config
	if forced := l.mu.producers.expire(nowMs, c.ProducerIDExpirationMs, l.opts.MaxProducers); forced > 0 {
		l.logger.Warn("too many producers, forgot those idle for longest", zap.String("partition", l.opts.Name), zap.Int("forgotten", forced))
	}
	list := *l.segments.Load()
	n := l.expiredLocked(list, nowMs)
	switch {
	case n == 0:
		return l.start.Load(), nil
	case n < len(list):
		return list[n].base, nil
	}
	if err := l.makingRoom(l.renewLocked); err != nil {
		return 0, l.storageErrorLocked(l.end.Load(), err)
	}
	return l.end.Load(), nil
}

// expiredLocked is how many segments, from the first, retention has no room for. Only
// what is visible goes.
func (l *Log) expiredLocked(list []*segment, nowMs int64) int {
	c := &l.mu.config
	if !c.Delete {
		return 0
	}
	excess := int64(-1)
	if c.RetentionBytes >= 0 {
		excess = l.Size() - c.RetentionBytes
	}
	n := 0
	for _, s := range list {
		size := s.size.Load()
		old := c.RetentionMs >= 0 && nowMs-s.newestMs(nowMs) > c.RetentionMs
		if s.next.Load() > l.high.Load() || size == 0 && s == l.mu.active || !old && excess < size {
			break
		}
		excess -= size
		n++
	}
	return n
}

// newestMs is the time of the segment's newest record, or, if the records have none, of
// the last write to its file.
func (s *segment) newestMs(nowMs int64) int64 {
	if s.stats.maxTimestamp >= 0 {
		return s.stats.maxTimestamp
	}
	info, err := s.disk.fs.Stat(s.disk.path(s.name(logExt)))
	if err != nil {
		return nowMs // not known to be old
	}
	return info.ModTime().UnixMilli()
}

// renewLocked seals the active segment, if there is one, and begins the next. Its index
// carries the producers' state, which outlives the batches that it came from.
func (l *Log) renewLocked() error {
	if l.mu.active != nil {
		if err := l.sealLocked(); err != nil {
			return err
		}
	}
	s, err := l.beginLocked()
	if err != nil {
		return err
	}
	if err := l.checkpointLocked(s); err != nil {
		return err
	}
	return l.disk.syncDir()
}

// Roll seals the active segment if it has been filled for segment.ms by the clock, so
// that a log with few appends is cleaned and expires too.
func (l *Log) Roll(now time.Time) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.mu.active; s == nil || s.size.Load() == 0 || millis(now)-l.mu.createdMs < l.mu.config.rollAgeMs() {
		return nil
	}
	return l.sealNowLocked()
}

// Seal ends the active segment, if it holds anything; the next append begins another.
func (l *Log) Seal() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if s := l.mu.active; s == nil || s.size.Load() == 0 {
		return nil
	}
	return l.sealNowLocked()
}

func (l *Log) sealNowLocked() error {
	if err := l.writableLocked(); err != nil {
		return err
	}
	if err := l.sealLocked(); err != nil {
		return l.storageErrorLocked(l.end.Load(), err)
	}
	return nil
}

func millis(t time.Time) int64 { return t.UnixMilli() }
