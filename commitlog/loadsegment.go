package commitlog

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"go.uber.org/zap"
)

// scan reads what no index vouches for in segment i, of which size bytes are looked at.
func (r *loader) scan(i int, size int64) error {
	l, s := r.log, r.segments[i]
	x, ps, err := r.vouched(i)
	if err != nil {
		return err
	}
	c := scanner{
		src: s, seg: s, index: x, producers: ps,
		size: size, limit: r.limit(i), cleaned: r.holesBelow(),
		epochs: r.state.epochs, interval: l.mu.config.IndexIntervalBytes, nowMs: r.nowMs,
	}
	if err := c.run(); err != nil {
		return err
	}
	r.report.CheckedBytes += c.checked
	if c.damage != nil {
		r.drop(s, s.next.Load(), size-s.size.Load(), c.damage.Error())
	}
	s.index.Store(x)
	r.producers, r.producersAt = ps, i
	return r.settle(i)
}

// vouched is the index of segment i and the state of the producers, as far as its
// index file reaches; it resets the segment to its beginning if that is bad.
func (r *loader) vouched(i int) (*segmentIndex, *producers, error) {
	l, s := r.log, r.segments[i]
	if _, ok := r.headers[s.base]; ok {
		x, err := l.disk.readIndex(s.base, indexExt)
		if err != nil && !errors.Is(err, errCorruptFile) {
			return nil, nil, err
		}
		if err == nil {
			ps, err := r.producersAfter(i, x.producers)
			return x.index, ps, err
		}
		r.forget(s)
	}
	if r.hasIndex[s.base] {
		r.report.Rebuilt = append(r.report.Rebuilt, s.name(indexExt))
	}
	ps, err := r.before(i)
	return &segmentIndex{}, ps, err
}

// producersAfter is the state of the producers after the vouched part of segment i.
func (r *loader) producersAfter(i int, snapshot []byte) (*producers, error) {
	if snapshot != nil {
		if ps, err := parseProducers(snapshot); err == nil {
			return ps, nil
		}
	}
	ps, err := r.before(i)
	if err != nil {
		return nil, err
	}
	return ps, r.log.replay(ps, r.segments[i], r.segments[i].size.Load())
}

// before is the state of the producers where segment i begins.
func (r *loader) before(i int) (*producers, error) {
	if r.producers != nil && r.producersAt == i-1 {
		return r.producers, nil
	}
	return r.log.producersBefore(r.segments, i)
}

// settle decides what becomes of segment i after its scan: an end to append to, or a
// sealed segment, written down as such.
func (r *loader) settle(i int) error {
	s, last := r.segments[i], i+1 == len(r.segments)
	info, err := r.log.disk.fs.Stat(r.log.disk.path(s.name(logExt)))
	if err != nil {
		return fmt.Errorf("stat %s: %w", r.log.disk.path(s.name(logExt)), err)
	}
	if r.holeAfter(i) {
		if err := r.dropAfter(i); err != nil {
			return err
		}
		last = true
	}
	if last && info.Size() == s.size.Load() {
		r.open, r.synced = true, false
		return nil
	}
	return r.seal(i)
}

// holeAfter tells whether the end of segment i is missing and was never durable, so
// that what later segments hold was never acknowledged. A segment is whole on the disk
// before a later one is sealed, and before a later one exists where answers wait for
// fsyncs; a segment that was whole and is not now has been damaged, and that ends only its own records.
func (r *loader) holeAfter(i int) bool {
	next, limit := r.segments[i].next.Load(), r.limit(i)
	if i+1 == len(r.segments) || next >= limit || limit <= max(r.holesBelow(), r.state.start) || r.log.answersAfterSyncLocked() {
		return false
	}
	for _, s := range r.segments[i+1:] {
		if h, ok := r.headers[s.base]; ok && h.sealed {
			return false
		}
	}
	return true
}

// dropAfter takes the segments after i out of the log, and keeps their files.
func (r *loader) dropAfter(i int) error {
	d := &r.log.disk
	for _, s := range r.segments[i+1:] {
		size, err := r.sizeOf(s)
		if err != nil {
			return err
		}
		r.drop(s, s.base, size, "it follows a segment whose end the crash took")
		if err := s.leave(); err != nil {
			return err
		}
		if err := d.rename(s.name(logExt), s.name(droppedExt)); err != nil {
			return err
		}
		if err := r.log.removeFiles(s.base); err != nil {
			return err
		}
	}
	r.segments = r.segments[:i+1]
	return d.syncDir()
}

// seal writes down where segment i ends.
func (r *loader) seal(i int) error {
	l, s := r.log, r.segments[i]
	if err := l.syncSegment(s); err != nil {
		return err
	}
	x, err := l.indexOf(s)
	if err != nil {
		return err
	}
	m := indexImage{
		header:  indexHeader{sealed: true, base: s.base, dataBytes: s.size.Load(), next: s.next.Load(), stats: s.stats},
		entries: x.entries.view(), aborted: x.aborted.view(), producers: r.producers.appendTo(nil),
	}
	if err := l.writeIndex(s, &m); err != nil {
		return err
	}
	if err := l.disk.syncDir(); err != nil {
		return err
	}
	s.aborted = len(x.aborted.view())
	s.sealed.Store(true)
	s.indexed.Store(true)
	r.open, r.synced = false, true
	l.logger.Info("sealed a segment in recovery", zap.String("partition", l.opts.Name),
		zap.Int64("segment", s.base), zap.Int64("bytes", s.size.Load()), zap.Int64("next", s.next.Load()))
	return nil
}

// removeFiles removes all files of the segment at base but a dropped one and those with
// the endings to keep.
func (l *Log) removeFiles(base int64, keep ...string) error {
	names, err := l.disk.fs.List(l.disk.dir)
	if err != nil {
		return fmt.Errorf("list %s: %w", l.disk.dir, err)
	}
	prefix := segmentName(base, ".")
	for _, name := range names {
		_, ext, ok := parseSegmentName(name)
		if !strings.HasPrefix(name, prefix) || strings.HasSuffix(name, droppedExt) || ok && slices.Contains(keep, ext) {
			continue
		}
		if err := l.disk.remove(name); err != nil {
			return err
		}
	}
	return nil
}
