package group

import (
	"encoding/binary"
	"fmt"
)

// A view of the log holds records as the log does, by their keys, but for what a
// transaction has not committed yet. That has keys of its own: viewPrefix, which no
// record's version is, the producer id, and the key that the record has in the log. The
// value is flags, the producer epoch, the order of writing, and the record's value.
const (
	viewPrefix     = 0xffff
	viewKeyBytes   = 2 + 8
	viewValueBytes = 1 + 2 + 8
	viewOvertaken  = 1 << 0
)

// ForView tells whether a key is one that only views have.
func ForView(key []byte) bool { return len(key) >= 2 && binary.BigEndian.Uint16(key) == viewPrefix }

// ViewChanges calls note for each key of a view that transactions have changed since the
// last call, with the value that the view is to hold, nil for none. Other records change
// the view themselves. The slices are the caller's.
func (s *State) ViewChanges(note func(key, value []byte)) {
	for key := range s.pending.changed {
		r := offsetRecord(key.group, key.tp, nil)
		var value []byte
		if p := s.pending.byProducer[key.producerID][key.groupPartition]; p != nil {
			r = offsetRecord(key.group, key.tp, &p.offset)
			value = p.appendView(make([]byte, 0, viewValueBytes+len(r.Value)), r.Value)
		}
		b := make([]byte, 0, viewKeyBytes+len(r.Key))
		b = binary.BigEndian.AppendUint16(b, viewPrefix)
		b = binary.BigEndian.AppendUint64(b, uint64(key.producerID))
		note(append(b, r.Key...), value)
	}
	for at := range s.pending.settled {
		var r Record
		if c, ok := s.groups[at.group].committed(at.tp); ok {
			r = offsetRecord(at.group, at.tp, &c)
		} else {
			r = offsetRecord(at.group, at.tp, nil)
		}
		note(r.Key, r.Value)
	}
	clear(s.pending.changed)
	clear(s.pending.settled)
}

func (p *pendingOffset) appendView(b, value []byte) []byte {
	flags := byte(0)
	if p.overtaken {
		flags |= viewOvertaken
	}
	b = append(b, flags)
	b = binary.BigEndian.AppendUint16(b, uint16(p.producer.Epoch))
	b = binary.BigEndian.AppendUint64(b, p.order)
	return append(b, value...)
}

// LoadView takes what a view holds under a key for which ForView holds, after all records
// that the view holds.
func (s *State) LoadView(key, value []byte) error {
	if len(key) < viewKeyBytes || len(value) < viewValueBytes || value[0]&^viewOvertaken != 0 {
		return fmt.Errorf("%w: a pending offset of %d and %d bytes in a view", ErrBadRecord, len(key), len(value))
	}
	r, err := DecodeRecord(key[viewKeyBytes:], value[viewValueBytes:])
	if err != nil {
		return err
	}
	if r.offset == nil {
		return fmt.Errorf("%w: a pending record in a view that is no offset", ErrBadRecord)
	}
	p := &pendingOffset{
		groupPartition: groupPartition{r.offset.group, r.offset.tp},
		producer:       Producer{ID: int64(binary.BigEndian.Uint64(key[2:])), Epoch: int16(binary.BigEndian.Uint16(value[1:]))},
		offset:         *r.offset.value,
		order:          binary.BigEndian.Uint64(value[3:]),
		overtaken:      value[0]&viewOvertaken != 0,
	}
	if s.pending.byProducer[p.producer.ID][p.groupPartition] != nil {
		return fmt.Errorf("%w: a pending offset twice in a view", ErrBadRecord)
	}
	s.pending.lastOrder = max(s.pending.lastOrder, p.order)
	s.stage(p)
	delete(s.pending.changed, p.key())
	return nil
}
