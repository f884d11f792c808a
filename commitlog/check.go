package commitlog

import (
	"errors"
	"fmt"
	"io"
	"slices"

	"github.com/lacunamq/lacuna/protocol"
)

// CheckInvariants reads the whole log and checks that what it keeps in memory and in
// index files agrees with the batches. It is for tests and for the doctor of a data
// directory; appends wait meanwhile.
func (l *Log) CheckInvariants() error {
	l.cleaning.Lock()
	defer l.cleaning.Unlock()
	l.upkeep.Lock()
	defer l.upkeep.Unlock()
	l.mu.Lock()
	defer l.mu.Unlock()
	if err := l.checkBounds(); err != nil {
		return fmt.Errorf("%s: %w", l.opts.Name, err)
	}
	list := *l.segments.Load()
	for i, s := range list {
		limit := l.end.Load()
		if i+1 < len(list) {
			limit = list[i+1].base
		}
		if err := l.checkSegment(s, limit); err != nil {
			return fmt.Errorf("%s: segment %d: %w", l.opts.Name, s.base, err)
		}
	}
	return nil
}

func (l *Log) checkBounds() error {
	b := l.Bounds()
	list := *l.segments.Load()
	switch {
	case b.Start < 0 || b.Start > b.LSO || b.LSO > b.HighWatermark || b.HighWatermark > b.End:
		return fmt.Errorf("bounds out of order: %+v", b)
	case l.mu.durable > b.End:
		return fmt.Errorf("durable to %d, end %d", l.mu.durable, b.End)
	case l.mu.state.start != b.Start:
		return fmt.Errorf("log start %d, on disk %d", b.Start, l.mu.state.start)
	case l.mu.active != nil && l.mu.active != list[len(list)-1]:
		return errors.New("the active segment is not the last")
	case len(list) > 0 && list[0].base > b.Start:
		return fmt.Errorf("the first segment begins at %d, above the log start %d", list[0].base, b.Start)
	case len(list) > 0 && list[len(list)-1].next.Load() != b.End && b.Start != b.End:
		return fmt.Errorf("the last segment ends at %d, the log at %d", list[len(list)-1].next.Load(), b.End)
	}
	return nil
}

// checkSegment compares a segment with a scan of its file.
func (l *Log) checkSegment(s *segment, limit int64) error {
	x, err := l.indexOf(s)
	if err != nil {
		return err
	}
	if next := s.next.Load(); next > limit || next < s.base {
		return fmt.Errorf("ends at %d, the next begins at %d", next, limit)
	}
	starts, err := l.checkBatches(s)
	if err != nil {
		return err
	}
	for _, e := range x.entries.view() {
		at, ok := starts[int64(e.pos)]
		if !ok || at.offset != s.base+int64(e.offset) || at.before != e.before {
			return fmt.Errorf("index entry %+v, the batch there: %v %+v", e, ok, at)
		}
	}
	if !slices.IsSortedFunc(x.aborted.view(), func(a, b abortedTxn) int { return compareInts(a.last, b.last, 0, 0) }) {
		return fmt.Errorf("aborted transactions out of order: %+v", x.aborted.view())
	}
	for _, a := range x.aborted.view() {
		if a.last < s.base || a.last >= s.next.Load() || a.first > a.last {
			return fmt.Errorf("aborted transaction outside its segment: %+v", a)
		}
	}
	return nil
}

// batchStart is what an index entry says of a batch.
type batchStart struct{ offset, before int64 }

// checkBatches walks all batches of the segment and returns where they start.
func (l *Log) checkBatches(s *segment) (map[int64]batchStart, error) {
	starts := make(map[int64]batchStart)
	r := newBatchReader(s, 0, s.size.Load())
	defer r.close()
	stats := emptyStats()
	next := s.base
	for {
		h, err := r.header()
		if errors.Is(err, io.EOF) {
			break
		}
		if err == nil {
			err = r.verify(&h)
		}
		if err != nil {
			return nil, fmt.Errorf("at %d: %w", r.pos, err)
		}
		if err := l.checkBatch(s, &h, next, stats.lastEpoch); err != nil {
			return nil, err
		}
		starts[r.pos] = batchStart{offset: h.BaseOffset, before: stats.maxTimestamp}
		stats.note(&h)
		next = h.NextOffset()
		r.skip(&h)
	}
	stats.compacted = s.stats.compacted
	if next != s.next.Load() || stats != s.stats {
		return nil, fmt.Errorf("ends at %d with %+v, should be %d with %+v", s.next.Load(), s.stats, next, stats)
	}
	return starts, nil
}

func (l *Log) checkBatch(s *segment, h *protocol.BatchHeader, next int64, lastEpoch int32) error {
	switch {
	case h.BaseOffset < next || h.BaseOffset > next && h.BaseOffset > l.mu.state.holes:
		return fmt.Errorf("offset %d where %d is next", h.BaseOffset, next)
	case h.LeaderEpoch < lastEpoch || !l.mu.state.epochs.allows(h.BaseOffset, h.LeaderEpoch):
		return fmt.Errorf("leader epoch %d at offset %d, after %d", h.LeaderEpoch, h.BaseOffset, lastEpoch)
	}
	return nil
}
