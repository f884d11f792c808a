package filter

import (
	"sync"

	"github.com/lacunamq/lacuna/commitlog"
)

// partition is what is known of one log.
type partition struct {
	reader *Reader
	log    Log

	mu struct {
		sync.Mutex
		segments map[int64]*segment // by base offset
		gone     bool               // the log was forgotten
	}
}

func newPartition(r *Reader, log Log) *partition {
	p := &partition{reader: r, log: log}
	p.mu.segments = make(map[int64]*segment)
	return p
}

// segment is the state of the segment that info describes; list, that info is of, tells
// which others there still are.
func (p *partition) segment(info commitlog.SegmentInfo, list []commitlog.SegmentInfo) *segment {
	p.mu.Lock()
	s := p.mu.segments[info.Base]
	if s != nil && s.generation == info.Generation {
		p.mu.Unlock()
		return s
	}
	gone := p.dropGoneLocked(list)
	s = newSegment(p, info)
	if !p.mu.gone {
		p.mu.segments[info.Base] = s
	}
	p.mu.Unlock()
	p.reader.drop(gone)
	return s
}

// dropGoneLocked forgets the segments that are not listed, or were replaced.
func (p *partition) dropGoneLocked(list []commitlog.SegmentInfo) map[*segment]bool {
	there := make(map[int64]uint32, len(list))
	for _, info := range list {
		there[info.Base] = info.Generation
	}
	gone := map[*segment]bool{}
	for base, s := range p.mu.segments {
		if generation, ok := there[base]; !ok || generation != s.generation {
			delete(p.mu.segments, base)
			gone[s] = true
		}
	}
	return gone
}

// forget forgets all segments.
func (p *partition) forget() {
	p.mu.Lock()
	p.mu.gone = true
	gone := p.dropGoneLocked(nil)
	p.mu.Unlock()
	p.reader.drop(gone)
}

// drop drops what the caches hold of segments.
func (r *Reader) drop(gone map[*segment]bool) {
	if len(gone) > 0 {
		r.indexes.forget(gone)
		r.decoded.dropSegments(gone)
	}
}

// known are the states of the listed segments that have one, by base offset.
func (p *partition) known() map[int64]*segment {
	p.mu.Lock()
	defer p.mu.Unlock()
	known := make(map[int64]*segment, len(p.mu.segments))
	for base, s := range p.mu.segments {
		known[base] = s
	}
	return known
}
