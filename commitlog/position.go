package commitlog

import "fmt"

// Position is where in the segment the batch lies that holds offset or, if none does,
// the first behind it; the segment's size if there is none.
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
