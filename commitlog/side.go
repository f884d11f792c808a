package commitlog

import "fmt"

// SegmentInfo describes a segment. It stays the name of this content: after the segment
// was compacted, a use of it is ErrSegmentGone.
type SegmentInfo struct {
	Base       int64 // first offset
	Next       int64 // one past the last; of an active segment, so far
	SizeBytes  int64
	Sealed     bool // it will not grow
	Generation uint32
}

func (s *segment) info() SegmentInfo {
	sealed := s.sealed.Load()
	return SegmentInfo{
		Base:       s.base,
		Next:       s.next.Load(),
		SizeBytes:  s.size.Load(),
		Sealed:     sealed,
		Generation: s.generation,
	}
}

// Segments lists the segments by base offset. The last may be active and hold records
// above the high watermark.
func (l *Log) Segments() []SegmentInfo {
	list := *l.segments.Load()
	infos := make([]SegmentInfo, len(list))
	for i, s := range list {
		infos[i] = s.info()
	}
	return infos
}

// ReadSegment reads bytes of the segment's batches at pos into p, fewer only at its end.
func (l *Log) ReadSegment(info SegmentInfo, pos int64, p []byte) (int, error) {
	s, err := l.segment(info)
	if err != nil {
		return 0, err
	}
	n, err := s.readAt(p, pos)
	if err != nil {
		return n, fmt.Errorf("%s: %w", l.opts.Name, err)
	}
	return n, nil
}

// segment is the segment that info describes.
func (l *Log) segment(info SegmentInfo) (*segment, error) {
	list := *l.segments.Load()
	if i := segmentAt(list, info.Base); i < len(list) {
		if s := list[i]; s.base == info.Base && s.generation == info.Generation {
			return s, nil
		}
	}
	return nil, fmt.Errorf("%s: %w: base offset %d", l.opts.Name, ErrSegmentGone, info.Base)
}

// sideFileMaxLen bounds a side file.
const sideFileMaxLen = 1 << 30

// SideFile reads what WriteSideFile stored for a sealed segment; fs.ErrNotExist if
// there is none.
func (l *Log) SideFile(info SegmentInfo, ext string) ([]byte, error) {
	if _, err := l.segment(info); err != nil {
		return nil, err
	}
	data, err := l.disk.read(segmentName(info.Base, ext), sideFileMaxLen)
	if err != nil {
		return nil, fmt.Errorf("%s: side file: %w", l.opts.Name, err)
	}
	if _, err := l.segment(info); err != nil {
		return nil, err // it was read of another segment
	}
	return data, nil
}

// WriteSideFile stores data beside a sealed segment, under ext, such as ".slots". The
// file lives and dies with the segment; a compacted segment loses it. It may be lost in
// a crash, but is never torn.
func (l *Log) WriteSideFile(info SegmentInfo, ext string, data []byte) error {
	if ext == logExt || ext == indexExt || ext == cleanedExt || ext == swapExt || len(ext) < 2 || ext[0] != '.' {
		return fmt.Errorf("%s: side file with extension %q", l.opts.Name, ext)
	}
	l.upkeep.Lock()
	defer l.upkeep.Unlock()
	s, err := l.segment(info)
	if err != nil {
		return err
	}
	if !s.indexed.Load() {
		return fmt.Errorf("%s: side file of segment %d, which is not sealed yet", l.opts.Name, s.base)
	}
	if err := l.disk.replace(s.name(ext), data); err != nil {
		return fmt.Errorf("%s: side file: %w", l.opts.Name, err)
	}
	return nil
}
