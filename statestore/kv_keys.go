package statestore

import (
	"encoding/binary"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/lacunamq/lacuna/protocol"
)

// What the first byte of a key in a task's store says of the rest. Numbers are big
// endian, so that offsets lie in the order of their slots.
const (
	kvFormat byte = 0 // nothing more; the value is formatVersion
	kvOffset byte = 1 // length of the topic's name, name, id (16), partition (4), first slot (2); the value is last slot (2), next offset (8)
	kvData   byte = 2 // a key of the user's; the value is its value
	kvEnd    byte = 3
)

// formatVersion changes when a store of before could be misread.
const formatVersion byte = 1

const (
	offsetKeyBytes   = 2 + 16 + 4 + 2 // and the topic's name
	offsetValueBytes = 2 + 8
)

// write adds the change to a batch. scratch is used and returned.
func (e *edit) write(b *pebble.Batch, scratch []byte) []byte {
	k := append(scratch[:0], kvOffset, byte(len(e.log.topic)))
	k = append(append(k, e.log.topic...), e.log.id[:]...)
	k = binary.BigEndian.AppendUint32(k, uint32(e.log.partition))
	k = binary.BigEndian.AppendUint16(k, e.span.lo)
	if e.gone {
		must(b.Delete(k, nil))
		return k
	}
	var value [offsetValueBytes]byte
	binary.BigEndian.PutUint16(value[:], e.span.hi)
	binary.BigEndian.PutUint64(value[2:], uint64(e.span.next))
	must(b.Set(k, value[:], nil))
	return k
}

// parseOffset reads what write wrote.
func parseOffset(key, value []byte) (Offset, error) {
	if len(key) < 2 || len(key) != offsetKeyBytes+int(key[1]) || len(value) != offsetValueBytes {
		return Offset{}, fmt.Errorf("%w: offset with a key of %d and a value of %d bytes", ErrCorrupt, len(key), len(value))
	}
	topic, rest := key[2:2+key[1]], key[2+key[1]:]
	o := Offset{
		Source: Source{
			Topic:     string(topic),
			TopicID:   [16]byte(rest),
			Partition: int32(binary.BigEndian.Uint32(rest[16:])),
			Slots:     protocol.SlotRange{Lo: binary.BigEndian.Uint16(rest[20:]), Hi: binary.BigEndian.Uint16(value)},
		},
		Next: int64(binary.BigEndian.Uint64(value[2:])),
	}
	if err := o.check(); err != nil || o.Next < 0 {
		return Offset{}, fmt.Errorf("%w: offset %d of %s-%d: %w", ErrCorrupt, o.Next, o.Topic, o.Partition, err)
	}
	return o, nil
}

// load reads the offsets, and marks a new store with its format.
func (s *pebbleStore) load() error {
	it, err := s.pebble.NewIter(&pebble.IterOptions{UpperBound: []byte{kvData}})
	if err != nil {
		return err
	}
	formatted := false
	for valid := it.First(); valid; valid = it.Next() {
		value, err := it.ValueAndErr()
		if err == nil {
			formatted, err = s.loadEntry(it.Key(), value, formatted)
		}
		if err != nil {
			_ = it.Close() // the other error is the cause
			return err
		}
	}
	if err := it.Close(); err != nil {
		return err
	}
	if formatted || s.readOnly {
		return nil
	}
	must(s.batch.Set([]byte{kvFormat}, []byte{formatVersion}, nil))
	return s.apply(false)
}

func (s *pebbleStore) loadEntry(key, value []byte, formatted bool) (bool, error) {
	if len(key) == 1 && key[0] == kvFormat {
		if len(value) != 1 || value[0] != formatVersion {
			return false, fmt.Errorf("%w: format %x, %d is known", ErrCorrupt, value, formatVersion)
		}
		return true, nil
	}
	if !formatted || key[0] != kvOffset {
		return false, fmt.Errorf("%w: not a store of a task", ErrCorrupt)
	}
	o, err := parseOffset(key, value)
	if err != nil {
		return false, err
	}
	log := o.log()
	spans := s.offsets[log]
	if n := len(spans); n > 0 && spans[n-1].hi >= o.Slots.Lo {
		return false, fmt.Errorf("%w: two offsets of %s-%d at slot %d", ErrCorrupt, o.Topic, o.Partition, o.Slots.Lo)
	}
	s.offsets[log] = append(spans, span{o.Slots.Lo, o.Slots.Hi, o.Next})
	return true, nil
}
