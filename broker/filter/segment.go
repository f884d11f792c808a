package filter

import (
	"slices"
	"sort"
	"sync"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
)

// maxSpans is how many stretches of a segment have an index of their own before they
// meet. Readers that start in a segment at different places make more; then the
// smallest goes.
const maxSpans = 8

// segment is what is known of one segment of a log, as long as it is not replaced.
//
// Its slot index is made of spans, each of a stretch of batches without a gap. A span
// grows at its end as a reader goes through the segment, and joins the next when it
// reaches it. A segment whose one span covers all of it needs no other read than those
// of batches that match.
type segment struct {
	partition  *partition
	base       int64
	generation uint32

	mu struct {
		sync.Mutex
		spans    []*keyfilter.SlotIndex // by position, none empty
		loaded   bool                   // the side file was looked for
		saved    bool                   // ... and is there, and good
		tooLarge bool                   // for the cache: the segment gets no index
	}
}

func newSegment(p *partition, info commitlog.SegmentInfo) *segment {
	return &segment{partition: p, base: info.Base, generation: info.Generation}
}

// indexAt is a snapshot of the index that knows the batch which holds offset, or that
// there is none.
func (s *segment) indexAt(offset int64) (x keyfilter.SlotIndex, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.mu.spans {
		_, from := span.Start()
		_, to := span.End()
		if from <= offset && offset < to {
			return *span, true
		}
	}
	return keyfilter.SlotIndex{}, false
}

// endAt is the position at which a span ends that covers everything up to offset and
// not the offset itself.
func (s *segment) endAt(offset int64) (position int64, ok bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, span := range s.mu.spans {
		if position, to := span.End(); to == offset {
			return position, true
		}
	}
	return 0, false
}

// note adds the batch at position to the index, if it is not there.
func (s *segment) note(position int64, d *keyfilter.Decoded) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.tooLarge {
		return
	}
	spans := s.mu.spans
	// The last span that begins at or before position.
	i := sort.Search(len(spans), func(i int) bool {
		start, _ := spans[i].Start()
		return start > position
	}) - 1
	if i < 0 || endPosition(spans[i]) < position {
		i++
		s.mu.spans = slices.Insert(spans, i, s.newSpan(position, d))
	}
	x := s.mu.spans[i]
	if endPosition(x) != position {
		return // another reader was here before
	}
	if x.Append(d) != nil {
		// The log's offsets do not rise here, which is not for us to judge: no index.
		s.mu.spans, s.mu.tooLarge = nil, true
		return
	}
	s.joinLocked(i)
	if len(s.mu.spans) > maxSpans {
		s.dropSmallestLocked(position)
	}
}

// newSpan begins at the batch; the one at the segment's beginning covers its base, too.
func (s *segment) newSpan(position int64, d *keyfilter.Decoded) *keyfilter.SlotIndex {
	if position == 0 {
		return keyfilter.NewSlotIndex(0, s.base)
	}
	return keyfilter.NewSlotIndex(position, d.Header().BaseOffset)
}

// joinLocked joins span i and the next if it has reached it.
func (s *segment) joinLocked(i int) {
	if i+1 == len(s.mu.spans) {
		return
	}
	next := s.mu.spans[i+1]
	if start, _ := next.Start(); start != endPosition(s.mu.spans[i]) {
		return
	}
	if s.mu.spans[i].AppendIndex(next) == nil {
		s.mu.spans = slices.Delete(s.mu.spans, i+1, i+2)
	}
}

// dropSmallestLocked drops the span with the fewest batches, but not the one that grows.
func (s *segment) dropSmallestLocked(growing int64) {
	smallest := -1
	for i, span := range s.mu.spans {
		start, _ := span.Start()
		if start <= growing && growing < endPosition(span) {
			continue
		}
		if smallest < 0 || span.Batches() < s.mu.spans[smallest].Batches() {
			smallest = i
		}
	}
	s.mu.spans = slices.Delete(s.mu.spans, smallest, smallest+1)
}

// forgetIndex drops an index that turned out to be wrong; it is built anew.
func (s *segment) forgetIndex() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.spans, s.mu.saved = nil, false
}

// evict drops the indexes from memory. One that was saved is read again when needed.
func (s *segment) evict(limit int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.tooLarge = s.mu.tooLarge || s.bytesLocked() > limit
	s.mu.spans = nil
	s.mu.loaded = false
}

// bytes is the memory of the indexes.
func (s *segment) bytes() int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.bytesLocked()
}

func (s *segment) bytesLocked() int64 {
	n := int64(0)
	for _, span := range s.mu.spans {
		n += int64(span.MemoryBytes())
	}
	return n
}

func endPosition(x *keyfilter.SlotIndex) int64 {
	position, _ := x.End()
	return position
}
