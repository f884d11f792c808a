package commitlog

import (
	"errors"
	"fmt"
	"slices"
)

// errSwapDecided marks an error after which the next Open completes the swap.
var errSwapDecided = errors.New("a compaction could not be completed")

// replaceGroup puts the written segment in place of its group, on the disk and for
// readers.
func (l *Log) replaceGroup(w *segmentWriter, aborted []abortedTxn) error {
	l.upkeep.Lock()
	defer l.upkeep.Unlock()
	if l.stopping.Load() {
		return errCleanAborted
	}
	list := *l.segments.Load()
	at := slices.Index(list, w.group[0])
	if at < 0 || !slices.Equal(list[at:min(at+len(w.group), len(list))], w.group) {
		return ErrSegmentGone
	}
	for _, s := range w.group {
		if err := s.open(); err != nil { // by name it could be the new file, from now on
			return err
		}
	}
	if err := l.decideSwap(w, aborted); err != nil {
		return err
	}
	names, err := l.disk.fs.List(l.disk.dir)
	if err == nil {
		err = l.disk.completeSwap(w.seg.base, w.next, names)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err != nil {
		return fmt.Errorf("%w: %w", errSwapDecided, l.failLocked(err))
	}
	l.installLocked(w, aborted)
	return nil
}

// decideSwap makes both new files durable under their temporary names.
func (l *Log) decideSwap(w *segmentWriter, aborted []abortedTxn) error {
	last := w.group[len(w.group)-1]
	x, err := l.disk.readIndex(last.base, indexExt)
	if err != nil && !errors.Is(err, errCorruptFile) {
		return err
	}
	w.seg.next.Store(w.next)
	image := indexImage{
		header:  indexHeader{sealed: true, base: w.seg.base, dataBytes: w.seg.size.Load(), next: w.next, stats: w.seg.stats},
		entries: w.index.entries.view(), aborted: aborted, producers: x.producers,
	}
	if err := l.disk.syncDir(); err != nil {
		return err
	}
	err = l.disk.replace(w.seg.name(swapExt), image.encode())
	if err == nil {
		err = l.disk.syncDir()
	}
	if err == nil {
		return nil
	}
	// It may be there all the same, and without the batches it must not be.
	undo := l.disk.remove(w.seg.name(swapExt))
	if undo == nil {
		undo = l.disk.syncDir()
	}
	if undo == nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	return fmt.Errorf("%w: %w", errSwapDecided, l.failLocked(errors.Join(err, undo)))
}

// installLocked shows the new segment to readers in place of its group.
func (l *Log) installLocked(w *segmentWriter, aborted []abortedTxn) {
	s := w.seg
	s.handle.file = w.file
	w.index.aborted.set(aborted)
	s.index.Store(&w.index)
	s.aborted = len(aborted)
	s.used.Store(true)
	s.sealed.Store(true)
	s.indexed.Store(true)
	list := *l.segments.Load()
	at := slices.Index(list, w.group[0])
	next := append(slices.Clone(list[:at]), s)
	l.setSegments(append(next, list[at+len(w.group):]...))
	for _, old := range w.group {
		_ = old.leave() // read only, nothing to lose
	}
}
