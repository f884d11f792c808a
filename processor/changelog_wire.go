package processor

import (
	"encoding/binary"
	"fmt"

	"github.com/lacunamq/lacuna/client"
)

// The records of a changelog. Numbers are big endian. The key's first byte is the kind, the
// value's first byte the version of the kind, so that no value is empty.
//
//	entry     key    1 | slot (2) | the key in the state: name of the store, 0, key
//	          value  1 | the value; null: the entry is gone
//	progress  key    2 | topic id (16) | partition (4) | first slot (2) | last slot (2)
//	          value  1 | next offset (8) | partitions (4)
//
// The partition of the record and the slot of an entry are its unit: partition*65536 + slot
// (package assignor). Two tasks may both have a key in their states, so the unit is a part of
// the record's key, and compaction keeps one record for each of them. An entry that changes
// its unit leaves a null value under the old one.
//
// Progress says that the state has taken in what the slots of an input's partition had below
// an offset. Partitions is the number that the group divides the topic by, for which units
// count.
const (
	changeEntry    byte = 1
	changeProgress byte = 2

	changeVersion byte = 1
)

const (
	entryKeyBytes      = 1 + 2
	progressKeyBytes   = 1 + 16 + 4 + 2 + 2
	progressValueBytes = 1 + 8 + 4
)

// entryChange is an entry that a unit of work has written, or removed.
type entryChange struct {
	slot  uint16
	key   []byte
	value []byte
	gone  bool
}

// appendEntryKey appends the key of the record of an entry.
func appendEntryKey(dst []byte, slot uint16, key []byte) []byte {
	return append(binary.BigEndian.AppendUint16(append(dst, changeEntry), slot), key...)
}

// appendEntryValue appends the value of the record of an entry that is there.
func appendEntryValue(dst, value []byte) []byte { return append(append(dst, changeVersion), value...) }

// progressChange is how far the state is in some slots of an input.
type progressChange struct {
	topic     [16]byte
	partition int32
	slots     client.SlotRange
	next      int64
	// partitions is what the group divides the topic by.
	partitions int32
}

func (p *progressChange) appendKey(dst []byte) []byte {
	dst = append(append(dst, changeProgress), p.topic[:]...)
	dst = binary.BigEndian.AppendUint32(dst, uint32(p.partition))
	return binary.BigEndian.AppendUint16(binary.BigEndian.AppendUint16(dst, p.slots.Lo), p.slots.Hi)
}

func (p *progressChange) appendValue(dst []byte) []byte {
	dst = binary.BigEndian.AppendUint64(append(dst, changeVersion), uint64(p.next))
	return binary.BigEndian.AppendUint32(dst, uint32(p.partitions))
}

// decodeEntry reads the record of an entry. Its slices are those of the record.
func decodeEntry(key, value []byte) (e entryChange, err error) {
	if len(key) < entryKeyBytes {
		return e, fmt.Errorf("an entry with a key of %d bytes", len(key))
	}
	e.slot, e.key = binary.BigEndian.Uint16(key[1:]), key[entryKeyBytes:]
	if value == nil {
		e.gone = true
		return e, nil
	}
	if e.value, err = versioned(value); err != nil {
		return entryChange{}, fmt.Errorf("an entry: %w", err)
	}
	return e, nil
}

// decodeProgress reads the record of a progress.
func decodeProgress(key, value []byte) (p progressChange, err error) {
	if len(key) != progressKeyBytes || len(value) != progressValueBytes {
		return p, fmt.Errorf("a progress with a key of %d and a value of %d bytes", len(key), len(value))
	}
	body, err := versioned(value)
	if err != nil {
		return p, fmt.Errorf("a progress: %w", err)
	}
	p = progressChange{
		topic: [16]byte(key[1:]), partition: int32(binary.BigEndian.Uint32(key[17:])),
		slots: client.SlotRange{Lo: binary.BigEndian.Uint16(key[21:]), Hi: binary.BigEndian.Uint16(key[23:])},
		next:  int64(binary.BigEndian.Uint64(body)), partitions: int32(binary.BigEndian.Uint32(body[8:])),
	}
	if p.partition < 0 || p.slots.Lo > p.slots.Hi || p.next < 0 || p.partitions < 1 {
		return progressChange{}, fmt.Errorf("a progress of slots %d-%d of partition %d at %d, of %d partitions", p.slots.Lo, p.slots.Hi, p.partition, p.next, p.partitions)
	}
	return p, nil
}

// versioned is what follows the version of a value.
func versioned(value []byte) ([]byte, error) {
	if len(value) == 0 || value[0] != changeVersion {
		return nil, fmt.Errorf("a value of another version than %d", changeVersion)
	}
	return value[1:], nil
}
