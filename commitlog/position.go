package commitlog

import "fmt"

// Position is where in the segment the batch lies that holds offset, or the first
// behind it. The segment must reach beyond offset.
func (l *Log) Position(info SegmentInfo, offset int64) (int64, error) {
	s, err := l.segment(info)
	if err != nil {
		return 0, err
	}
	pos, err := l.seek(s, offset)
	if err != nil {
		return pos, fmt.Errorf("%s: find offset %d: %w", l.opts.Name, offset, err)
	}
	return pos, nil
}

// CheckBatch checks a header, at the start of b, that was read from the segment where
// offset next is expected, or a batch that began before it if first is set. Offsets,
// length and epoch are not covered by a batch's checksum; if they do not fit what the
// log knows, the error is protocol.ErrCorruptBatch.
func (l *Log) CheckBatch(info SegmentInfo, b []byte, next int64, first bool) error {
	s, err := l.segment(info)
	if err != nil {
		return err
	}
	c := cursor{seg: s, epochs: *l.epochs.Load(), next: next, first: first}
	if _, _, err := c.extent(b); err != nil {
		return fmt.Errorf("%s: segment %d: %w", l.opts.Name, info.Base, err)
	}
	return nil
}
