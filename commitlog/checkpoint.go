package commitlog

import (
	"errors"
	"fmt"

	"go.uber.org/zap"
)

// checkpoint writes an index file for what is durable of the active segment, so that
// recovery has less to read. Appends and fsyncs go on meanwhile.
func (l *Log) checkpoint(s *segment, image *indexImage) {
	err := l.writeCheckpoint(s, image)
	l.mu.Lock()
	defer l.mu.Unlock()
	switch {
	case err == nil && s == l.mu.active:
		l.mu.flush.checkpointed = image.header.dataBytes
	case err != nil && !isNoSpace(err):
		_ = l.failLocked(err) // the next append tells
	}
}

// writeCheckpoint writes the index of a segment that is not sealed.
func (l *Log) writeCheckpoint(s *segment, image *indexImage) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.syncing.failed != nil || s.indexed.Load() {
		return nil // sealed meanwhile, its index says more
	}
	return l.writeIndex(s, image)
}

// checkpointAll writes what the next Open would else have to find out. All data is
// durable.
func (l *Log) checkpointAll() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.mu.failed != nil {
		return l.mu.failed
	}
	if len(l.mu.flush.rolled) > 0 {
		return errors.New("a sealed segment has no index, for want of space")
	}
	// A log that was never appended to needs no state file, unless its leader epoch was shown.
	changed := l.mu.epochNew && (len(*l.segments.Load()) > 0 || l.mu.state.epochs.latest() > 0)
	if s := l.mu.active; s != nil && s.size.Load() != l.mu.flush.checkpointed {
		if err := l.checkpointLocked(s); err != nil {
			return err
		}
		changed = true
	}
	if !changed {
		return nil
	}
	if l.mu.epochNew {
		return l.disk.writeState(&l.mu.state)
	}
	return l.disk.syncDir()
}

func (l *Log) checkpointLocked(s *segment) error {
	image, err := l.imageLocked(s, false)
	if err != nil {
		return err
	}
	if err := l.writeCheckpoint(s, image); err != nil {
		return err
	}
	l.mu.flush.checkpointed = image.header.dataBytes
	return nil
}

// releaseIdle closes files and forgets indexes that were not used since the last call.
func (l *Log) releaseIdle() error {
	for _, s := range *l.segments.Load() {
		if err := s.release(); err != nil {
			return fmt.Errorf("%s: close segment %d: %w", l.opts.Name, s.base, err)
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.releaseActiveLocked()
}

// releaseActiveLocked does it for the active segment. What it holds is first made
// durable, and written down.
func (l *Log) releaseActiveLocked() error {
	s := l.mu.active
	switch {
	case s == nil || s.used.Swap(false) || l.mu.tornTail || l.mu.flush.started:
		return nil
	case l.mu.durable < l.end.Load():
		l.joinFlushLocked() // there is a next time
		return nil
	}
	if s.size.Load() != l.mu.flush.checkpointed {
		if err := l.checkpointLocked(s); err != nil {
			l.logger.Warn("cannot write an index", zap.String("partition", l.opts.Name), zap.Error(err))
			return nil // the log goes on without
		}
	}
	s.index.Store(nil)
	l.mu.opened = false
	if err := s.closeFile(false); err != nil {
		return fmt.Errorf("%s: close segment %d: %w", l.opts.Name, s.base, err)
	}
	return nil
}
