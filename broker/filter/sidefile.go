package filter

import (
	"context"
	"errors"
	"fmt"
	"io/fs"

	"go.uber.org/zap"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/protocol"
)

// indexExt is the extension of a segment's slot index.
const indexExt = ".slots"

var errStaleIndex = errors.New("slot index of another segment")

// loadIndex reads the saved index of a sealed segment, once. Without a good one the
// index is built as the segment is read.
func (p *partition) loadIndex(s *segment, info commitlog.SegmentInfo) {
	if !info.Sealed || info.SizeBytes == 0 {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.loaded || s.mu.tooLarge {
		return
	}
	s.mu.loaded, s.mu.saved = true, false
	if len(s.mu.spans) == 1 && covers(s.mu.spans[0], info) {
		return
	}
	x, err := p.readIndex(info)
	switch {
	case err == nil:
		s.mu.spans, s.mu.saved = []*keyfilter.SlotIndex{x}, true
		p.reader.counts.indexLoads.Add(1)
	case errors.Is(err, fs.ErrNotExist), errors.Is(err, commitlog.ErrSegmentGone), errors.Is(err, commitlog.ErrClosed):
	default:
		p.fault("the slot index of a segment is built anew", info, err)
	}
}

func (p *partition) readIndex(info commitlog.SegmentInfo) (*keyfilter.SlotIndex, error) {
	data, err := p.log.SideFile(info, indexExt)
	if err != nil {
		return nil, err
	}
	x, stamp, err := keyfilter.DecodeSlotIndex(data)
	if err != nil {
		return nil, err
	}
	if !covers(x, info) {
		return nil, fmt.Errorf("%w: it does not cover this one", errStaleIndex)
	}
	want, err := p.stamp(x, info)
	if err != nil {
		return nil, err
	}
	if stamp != want {
		return nil, fmt.Errorf("%w: stamp %x, not %x", errStaleIndex, stamp, want)
	}
	return x, nil
}

// covers tells whether the index is of a whole sealed segment.
func covers(x *keyfilter.SlotIndex, info commitlog.SegmentInfo) bool {
	start, from := x.Start()
	end, to := x.End()
	return start == 0 && from == info.Base && end == info.SizeBytes && to <= info.Next
}

// stamp is the checksums of the first and the last batch of a segment. An index that
// belongs to other data must never be believed: it would hide records.
func (p *partition) stamp(x *keyfilter.SlotIndex, info commitlog.SegmentInfo) (uint64, error) {
	last, _ := x.Last()
	var stamp uint64
	for _, pos := range [...]int64{0, last.Position} {
		var b [protocol.BatchHeaderLen]byte
		n, err := p.log.ReadSegment(info, pos, b[:])
		if err != nil {
			return 0, err
		}
		h, err := protocol.ParseBatchHeader(b[:n])
		if err != nil {
			return 0, fmt.Errorf("%w: at position %d: %w", errStaleIndex, pos, err)
		}
		stamp = stamp<<32 | uint64(h.CRC)
	}
	return stamp, nil
}

// fault counts and logs what went wrong with an index. No fetch fails for it.
func (p *partition) fault(what string, info commitlog.SegmentInfo, err error) {
	p.reader.counts.indexFaults.Add(1)
	p.reader.config.Logger.Warn(what, zap.String("partition", p.log.Name()), zap.Int64("segment", info.Base), zap.Error(err))
}

// SaveIndexes saves the slot indexes that have become whole since the last call. The
// broker calls it now and then and at a clean stop, since it waits for the disk; a fetch
// saves one only when its memory is needed for others.
func (r *Reader) SaveIndexes(ctx context.Context) {
	r.mu.Lock()
	partitions := make([]*partition, 0, len(r.mu.partitions))
	for _, p := range r.mu.partitions {
		partitions = append(partitions, p)
	}
	r.mu.Unlock()
	for _, p := range partitions {
		known := p.known()
		for _, info := range p.log.Segments() {
			if ctx.Err() != nil {
				return
			}
			if s := known[info.Base]; s != nil && s.generation == info.Generation {
				p.saveIndex(s, info)
			}
		}
	}
}

// saveIndexOf saves the index of a segment that is about to lose it.
func (p *partition) saveIndexOf(s *segment) {
	for _, info := range p.log.Segments() {
		if info.Base == s.base && info.Generation == s.generation {
			p.saveIndex(s, info)
		}
	}
}

// saveIndex saves the index of a sealed segment if it is whole and not saved.
func (p *partition) saveIndex(s *segment, info commitlog.SegmentInfo) {
	x := s.toSave(info)
	if x == nil {
		return
	}
	stamp, err := p.stamp(x, info)
	if err == nil {
		data := x.AppendTo(make([]byte, 0, x.EncodedLen()), stamp)
		if err = p.log.WriteSideFile(info, indexExt, data); err == nil {
			p.reader.counts.indexSaves.Add(1)
			s.compact(x, data)
			return
		}
	}
	if !errors.Is(err, commitlog.ErrSegmentGone) && !errors.Is(err, commitlog.ErrClosed) {
		p.fault("the slot index of a segment cannot be saved", info, err)
	}
}

// toSave is the index if it is whole and not saved yet. Nothing is appended to a whole one.
func (s *segment) toSave(info commitlog.SegmentInfo) *keyfilter.SlotIndex {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !info.Sealed || s.mu.saved || len(s.mu.spans) != 1 || !covers(s.mu.spans[0], info) {
		return nil
	}
	return s.mu.spans[0]
}

// compact puts the saved form of the index in the place of the one that grew, which has
// room for more.
func (s *segment) compact(grown *keyfilter.SlotIndex, data []byte) {
	x, _, err := keyfilter.DecodeSlotIndex(data)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case len(s.mu.spans) == 1 && s.mu.spans[0] != grown:
		return // it was found bad meanwhile, and another is being built
	case len(s.mu.spans) == 1 && err == nil:
		s.mu.spans[0] = x
	}
	s.mu.saved = true
}
