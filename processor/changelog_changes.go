package processor

import (
	"bytes"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// changes are the keys that a unit of work has written, each once. At its end their
// records are made of what the state has then. What the records point to is used again for
// the next unit, since all have been answered by then.
type changes struct {
	// own is the area whose entries are the task's.
	own   assignor.Area
	index map[string]struct{}
	keys  []changedKey

	// looked is the key that was got last, which is mostly the next to be written, and unit
	// the unit of its entry.
	looked []byte
	unit   int64
	fresh  bool // looked is of this unit of work

	records []kgo.Record
	arena   []byte
}

// changedKey is a key, and the unit that its entry had before the unit of work: noUnit if
// there was none, or none of the task's own.
type changedKey struct {
	key    string
	before int64
}

const noUnit int64 = -1

// begin begins a unit of work. What was written before, when processors were initialised, is a
// part of the first.
func (c *changes) begin() { c.fresh = false }

// end forgets what was written, which is committed now, or undone.
func (c *changes) end() {
	clear(c.index)
	clear(c.keys)
	c.keys = c.keys[:0]
}

// abandon forgets what records point to: some may be on their way still.
func (c *changes) abandon() { c.records, c.arena = nil, nil }

// saw notes the unit of the entry of a key, noUnit: there is none.
func (c *changes) saw(key []byte, unit int64) {
	c.looked, c.unit, c.fresh = append(c.looked[:0], key...), unit, true
}

// note notes that a key of the state is about to be written.
func (c *changes) note(s *state, key []byte) error {
	if _, ok := c.index[string(key)]; ok {
		return nil
	}
	if !c.fresh || !bytes.Equal(c.looked, key) {
		stored, ok, err := s.backing.Get(key)
		if err != nil {
			return err
		}
		unit := noUnit
		if ok {
			if unit, err = unitOf(stored); err != nil {
				return err
			}
		}
		c.saw(key, unit)
	}
	before := c.unit
	if !c.own.Contains(before) {
		before = noUnit
	}
	if c.index == nil {
		c.index = make(map[string]struct{})
	}
	k := string(key)
	c.index[k] = struct{}{}
	c.keys = append(c.keys, changedKey{k, before})
	return nil
}

// make makes the records of what was written, with those of the progress in the inputs, which
// go to the partition home. The records are valid until the next call.
func (c *changes) make(s *state, t *logTopic, progress []progressChange, home int32) ([]kgo.Record, error) {
	c.records, c.arena = c.records[:0], c.arena[:0]
	for _, k := range c.keys {
		stored, there, err := s.backing.Get([]byte(k.key))
		if err != nil {
			return nil, err
		}
		unit := noUnit
		if there {
			var value []byte
			if unit, value, _, err = s.open(stored); err != nil {
				return nil, err
			}
			from := len(c.arena)
			c.arena = appendEntryValue(c.arena, value)
			c.add(t, unit, k.key, c.arena[from:len(c.arena):len(c.arena)])
		}
		if k.before != noUnit && k.before != unit {
			c.add(t, k.before, k.key, nil)
		}
	}
	for i := range progress {
		p := &progress[i]
		from := len(c.arena)
		c.arena = p.appendKey(c.arena)
		middle := len(c.arena)
		c.arena = p.appendValue(c.arena)
		c.records = append(c.records, kgo.Record{Topic: t.name, Partition: home, Key: c.arena[from:middle:middle], Value: c.arena[middle:len(c.arena):len(c.arena)]})
	}
	return c.records, nil
}

// add adds the record of an entry, nil: it is gone.
func (c *changes) add(t *logTopic, unit int64, key string, value []byte) {
	from := len(c.arena)
	c.arena = append(appendEntryKey(c.arena, uint16(unit%assignor.UnitsPerBucket), nil), key...)
	c.records = append(c.records, kgo.Record{Topic: t.name, Partition: int32(unit / assignor.UnitsPerBucket), Key: c.arena[from:len(c.arena):len(c.arena)], Value: value})
}

// restore applies a record of an entry to a state. An entry that the task processes already is
// not replaced by one of another unit: a key is to be one unit's at a time.
func restore(backing statestore.Store, e *entryChange, unit int64, own assignor.Area, scratch []byte) ([]byte, error) {
	if e.gone || !own.Empty() {
		stored, ok, err := backing.Get(e.key)
		if err != nil {
			return scratch, err
		}
		if ok {
			before, err := unitOf(stored)
			switch {
			case err != nil:
				return scratch, err
			case e.gone && before == unit:
				return scratch, backing.Delete(e.key)
			case before != unit && own.Contains(before):
				return scratch, nil
			}
		}
		if e.gone {
			return scratch, nil
		}
	}
	scratch = append(appendTag(scratch[:0], unit), e.value...)
	return scratch, backing.Put(e.key, scratch)
}
