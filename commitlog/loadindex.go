package commitlog

import (
	"errors"
	"fmt"
	"slices"

	"go.uber.org/zap"
)

// indexOf is the segment's index, loaded from its file if need be.
func (l *Log) indexOf(s *segment) (*segmentIndex, error) {
	if x := s.index.Load(); x != nil {
		return x, nil
	}
	s.loading.Lock()
	defer s.loading.Unlock()
	if x := s.index.Load(); x != nil {
		return x, nil
	}
	file, err := l.disk.readIndex(s.base, indexExt)
	if err == nil && (file.header.dataBytes != s.size.Load() || file.header.next != s.next.Load()) {
		err = fmt.Errorf("%w: the index of %s is of another file", errCorruptFile, s.name(logExt))
	}
	x := file.index
	if errors.Is(err, errCorruptFile) {
		l.logger.Warn("rebuild an index", zap.String("partition", l.opts.Name), zap.Error(err))
		x, err = l.rebuildIndex(s)
	}
	if err != nil {
		return nil, err
	}
	s.used.Store(true)
	s.index.Store(x)
	return x, nil
}

// rebuildIndex makes the index of a sealed segment from its batches, and saves it
// unless somebody is changing the segments.
func (l *Log) rebuildIndex(s *segment) (*segmentIndex, error) {
	list := *l.segments.Load()
	i := slices.Index(list, s)
	if i < 0 {
		return nil, ErrSegmentGone
	}
	ps, err := l.producersBefore(list, i)
	if err != nil {
		return nil, err
	}
	t := newSegment(&l.disk, s.base)
	c := scanner{
		src: s, seg: t, index: &segmentIndex{}, producers: ps,
		size: s.size.Load(), limit: s.next.Load(), cleaned: s.next.Load(),
		interval: l.opts.Config.IndexIntervalBytes, nowMs: l.nowMs(),
	}
	if err := c.run(); err != nil {
		return nil, err
	}
	if c.damage != nil {
		l.logger.Error("a segment is damaged, what follows in it cannot be read", zap.String("partition", l.opts.Name),
			zap.Int64("segment", s.base), zap.Int64("offset", t.next.Load()), zap.Error(c.damage))
		return c.index, nil
	}
	m := indexImage{
		header:  indexHeader{sealed: s.sealed.Load(), base: s.base, dataBytes: s.size.Load(), next: s.next.Load(), stats: s.stats},
		entries: c.index.entries.view(), aborted: c.index.aborted.view(), producers: ps.appendTo(nil),
	}
	return c.index, l.saveRebuilt(s, &m)
}

func (l *Log) saveRebuilt(s *segment, m *indexImage) error {
	if !l.upkeep.TryLock() {
		return nil // it will be rebuilt once more, rarely
	}
	defer l.upkeep.Unlock()
	if !slices.Contains(*l.segments.Load(), s) {
		return nil
	}
	if err := l.writeIndex(s, m); err != nil {
		l.logger.Warn("cannot save a rebuilt index", zap.String("partition", l.opts.Name), zap.Error(err))
	}
	return nil
}
