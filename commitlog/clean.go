package commitlog

import (
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"time"

	"go.uber.org/zap"

	"github.com/lacunamq/lacuna/protocol"
)

// Cleaned is what a Clean did.
type Cleaned struct {
	UpTo        int64 // compaction has been through the offsets below; 0 if there was nothing to do
	BytesBefore int64 // of the segments gone through
	BytesAfter  int64
}

// Clean runs a compaction pass if the topic has cleanup.policy compact and one is due:
// when the dirty part is at least MinCleanableRatio of what can be cleaned, or holds a
// record older than MaxCompactionLagMs. Of the records with one key below the pass's
// end only the last stays, in its place; a tombstone stays for DeleteRetentionMs after
// the first pass that met it; records of aborted transactions go, and their markers
// after them. What identifies a producer's last batch stays, if need be as a batch
// without records.
//
// The active segment is never cleaned, nor what is above the last stable offset or
// Options.CleanUpTo, or younger than MinCompactionLagMs. One pass runs at a time, reads
// and appends go on.
func (l *Log) Clean(now time.Time) (Cleaned, error) {
	l.cleaning.Lock()
	defer l.cleaning.Unlock()
	p, err := l.planClean(now)
	if err != nil || !p.due() {
		return Cleaned{}, err
	}
	done, err := p.run()
	if errors.Is(err, errCleanAborted) || errors.Is(err, ErrSegmentGone) {
		return done, nil // the log is closing, or retention was faster
	}
	if err != nil {
		return done, fmt.Errorf("clean %s: %w", l.opts.Name, err)
	}
	return done, nil
}

// errCleanAborted ends a pass because the log is being closed.
var errCleanAborted = errors.New("compaction aborted")

// cleanPass is one compaction.
type cleanPass struct {
	log       *Log
	config    Config
	nowMs     int64
	list      []*segment // what may be cleaned
	dirty     int64      // the first offset that no pass has been through
	last      map[int64]lastWrite
	decoder   protocol.Decompressor
	offsets   *offsetMap
	mappedEnd int64 // every keyed record from dirty up to here is in offsets
	txns      cleanTxns
}

// lastWrite names the batch that must stay of a producer.
type lastWrite struct {
	offset int64 // of its last record, -1: it has only written markers in its epoch
	epoch  int16
}

// planClean finds what a pass can clean now.
func (l *Log) planClean(now time.Time) (*cleanPass, error) {
	p := &cleanPass{log: l, nowMs: millis(now)}
	bound := l.stable.Load()
	if l.opts.CleanUpTo != nil {
		bound = min(bound, l.opts.CleanUpTo())
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return nil, err
	}
	p.config = l.mu.config
	if !p.config.Compact {
		return p, nil
	}
	list := *l.segments.Load()
	n := 0
	for n < len(list) {
		s := list[n]
		if !s.indexed.Load() || s.next.Load() > bound || s.stats.maxTimestamp > p.nowMs-p.config.MinCompactionLagMs && p.config.MinCompactionLagMs > 0 {
			break
		}
		n++
	}
	p.list = list[:n]
	p.dirty = max(l.mu.state.cleaned, l.start.Load())
	p.last = make(map[int64]lastWrite, len(l.mu.producers.byID))
	for id, pr := range l.mu.producers.byID {
		w := lastWrite{offset: -1, epoch: pr.epoch}
		if pr.kept > 0 {
			w.offset = pr.batches[pr.kept-1].lastOffset
		}
		p.last[id] = w
	}
	return p, nil
}

// due tells whether there is enough to do.
func (p *cleanPass) due() bool {
	var clean, dirty int64
	oldest := int64(-1)
	for _, s := range p.list {
		if s.next.Load() <= p.dirty {
			clean += s.size.Load()
			continue
		}
		dirty += s.size.Load()
		if oldest < 0 {
			oldest = s.stats.firstTimestamp
		}
	}
	if dirty == 0 {
		return false
	}
	overdue := oldest >= 0 && p.nowMs-oldest > p.config.MaxCompactionLagMs
	return overdue || float64(dirty) > p.config.MinCleanableRatio*float64(clean+dirty)
}

func (p *cleanPass) run() (Cleaned, error) {
	if err := p.buildMap(); err != nil {
		return Cleaned{}, err
	}
	groups := p.groups()
	if n := len(groups); n > 0 {
		last := groups[n-1]
		if err := p.log.allowHoles(last[len(last)-1].next.Load()); err != nil {
			return Cleaned{}, err
		}
	}
	done := Cleaned{UpTo: p.mappedEnd}
	for _, group := range groups {
		before := int64(0)
		for _, s := range group {
			before += s.size.Load()
		}
		after, err := p.cleanGroup(group)
		if err != nil {
			return done, err
		}
		done.BytesBefore += before
		done.BytesAfter += after
	}
	p.log.logger.Info("compacted", zap.String("partition", p.log.opts.Name), zap.Int64("up to", done.UpTo),
		zap.Int64("bytes before", done.BytesBefore), zap.Int64("bytes after", done.BytesAfter))
	return done, p.log.noteCleaned(p.mappedEnd)
}

// buildMap finds the last offset of each key in the dirty segments, as far as memory
// allows.
func (p *cleanPass) buildMap() error {
	var random [16]byte
	if _, err := rand.Read(random[:]); err != nil {
		return err
	}
	p.offsets = newOffsetMap(p.log.opts.CleanerMemory, [2]uint64{
		binary.LittleEndian.Uint64(random[:8]), binary.LittleEndian.Uint64(random[8:])})
	p.mappedEnd = p.dirty
	if err := p.resetTxns(); err != nil {
		return err
	}
	for _, s := range p.list {
		if s.next.Load() <= p.dirty {
			continue
		}
		full, err := p.mapSegment(s)
		if err != nil || full {
			return err
		}
		p.mappedEnd = s.next.Load()
	}
	return nil
}

// mapSegment adds a segment's keys. full tells that the map has no room for one.
func (p *cleanPass) mapSegment(s *segment) (full bool, err error) {
	err = p.log.walk(s, 0, s.base, func(r *batchReader, h *protocol.BatchHeader) (bool, error) {
		if p.log.stopping.Load() {
			return false, errCleanAborted
		}
		b, err := p.batch(r, h)
		if err != nil {
			return false, err
		}
		if p.txns.read(h, b.marker) || h.Control() || h.LastOffset() < p.dirty {
			return true, nil
		}
		for it := b.iterate(); it.Next(); {
			rec := it.Record()
			if rec.Key != nil && rec.Offset >= p.dirty && !p.offsets.put(rec.Key, rec.Offset) {
				full = true
				p.mappedEnd = rec.Offset
				return false, nil
			}
		}
		return true, nil
	})
	return full, err
}

// groups divides the segments that hold something below the map's end into runs that
// fit into one segment together.
func (p *cleanPass) groups() [][]*segment {
	var groups [][]*segment
	var size int64
	for _, s := range p.list {
		if s.base >= p.mappedEnd {
			break
		}
		n := len(groups)
		if n > 0 && size+s.size.Load() <= p.config.segmentBytes() && canHold(groups[n-1][0].base, s.next.Load()) {
			groups[n-1] = append(groups[n-1], s)
			size += s.size.Load()
			continue
		}
		groups = append(groups, []*segment{s})
		size = s.size.Load()
	}
	return groups
}

// allowHoles tells recovery, before the first segment is replaced, that offsets may be
// missing below end.
func (l *Log) allowHoles(end int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	state := l.mu.state
	if state.holes >= end {
		return nil
	}
	state.holes = end
	return l.writeStateLocked(state)
}

func (l *Log) noteCleaned(end int64) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.writableLocked(); err != nil {
		return err
	}
	state := l.mu.state
	state.cleaned = end
	return l.writeStateLocked(state)
}
