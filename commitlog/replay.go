package commitlog

import (
	"errors"
	"fmt"
	"io"
)

// producersBefore is the state of the producers where segment i of list begins: the
// last good snapshot before it, and what was written since.
func (l *Log) producersBefore(list []*segment, i int) (*producers, error) {
	ps, from := newProducers(), 0
	for j := i - 1; j >= 0; j-- {
		x, err := l.disk.readIndex(list[j].base, indexExt)
		if err != nil && !errors.Is(err, errCorruptFile) {
			return nil, err
		}
		if err != nil || x.producers == nil || x.header.next != list[j].next.Load() {
			continue
		}
		if found, err := parseProducers(x.producers); err == nil {
			ps, from = found, j+1
			break
		}
	}
	for _, s := range list[from:i] {
		if err := l.replay(ps, s, s.size.Load()); err != nil {
			return nil, err
		}
	}
	return ps, nil
}

// replay advances the producers over the first size bytes of the segment, as far as
// they can be read.
func (l *Log) replay(ps *producers, s *segment, size int64) error {
	r := newBatchReader(s, 0, size)
	defer r.close()
	nowMs := l.nowMs()
	for {
		h, err := r.header()
		if errors.Is(err, io.EOF) || isDamage(err) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("read %s at %d: %w", l.disk.path(s.name(logExt)), r.pos, err)
		}
		if h.ProducerID >= 0 {
			e := entry{h: h, origin: fromLog, nowMs: nowMs}
			if h.Control() {
				if e.bytes, err = r.body(&h); err != nil {
					return fmt.Errorf("read %s at %d: %w", l.disk.path(s.name(logExt)), r.pos, err)
				}
				if e.parseMarker() != nil {
					e.isMarker = false
				}
			}
			ps.apply(&e)
		}
		r.skip(&h)
	}
}

// epochsOf adds the leader epochs that the segment's batches carry to the history.
func (l *Log) epochsOf(history epochHistory, s *segment, size int64) (epochHistory, error) {
	r := newBatchReader(s, 0, size)
	defer r.close()
	for {
		h, err := r.header()
		if errors.Is(err, io.EOF) || isDamage(err) {
			return history, nil
		}
		if err != nil {
			return nil, fmt.Errorf("read %s at %d: %w", l.disk.path(s.name(logExt)), r.pos, err)
		}
		if len(history) == 0 || h.LeaderEpoch > history.latest() {
			history = history.with(h.LeaderEpoch, h.BaseOffset)
		}
		r.skip(&h)
	}
}
