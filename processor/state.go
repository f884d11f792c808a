package processor

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"iter"

	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// state is what all stores of a task are made of: one store on disk, so that they and the
// offsets that they own change in one step.
//
// An entry bears the unit of the line (package assignor) of the record that wrote it. An
// area that was handed over stays on disk, with its offset at rest, and is out of sight;
// should it come back, the state reads on from there.
type state struct {
	backing statestore.Store
	// visible is the area whose entries can be seen.
	visible assignor.Area
	// unit is that of the record that is being processed, -1 in a punctuation.
	unit int64
	// home is the unit of what a punctuation adds; -1: it is everybody's.
	home int64
	// changes notes what is written for a changelog; nil without.
	changes *changes

	scratch []byte // reused for keys
	value   []byte // reused for values
}

// tagBytes is the length of the tag before each value: the unit plus one, 0 for an entry
// that no record has written and everybody sees.
const tagBytes = 8

func appendTag(dst []byte, unit int64) []byte {
	return binary.BigEndian.AppendUint64(dst, uint64(unit+1))
}

// unitOf is the unit of a stored value.
func unitOf(stored []byte) (int64, error) {
	if len(stored) < tagBytes {
		return 0, fmt.Errorf("%w: an entry without its tag", statestore.ErrCorrupt)
	}
	return int64(binary.BigEndian.Uint64(stored)) - 1, nil
}

// open splits a stored value; ok is false if it is out of sight.
func (s *state) open(stored []byte) (unit int64, value []byte, ok bool, err error) {
	if unit, err = unitOf(stored); err != nil {
		return 0, nil, false, err
	}
	return unit, stored[tagBytes:], unit < 0 || s.visible.Contains(unit), nil
}

// Keys of the runtime's own begin with a zero byte, which no name of a store has.
var measureKey = []byte{0, 'm'} // what units are counted by: assignor.AppendMeasure

// isOfAnotherMeasure tells that the units of the entries are not those of the group.
func (s *state) isOfAnotherMeasure(group *assignor.Group) (bool, error) {
	stored, ok, err := s.backing.Get(measureKey)
	if err != nil {
		return false, err
	}
	if !ok {
		return true, nil // a store that is empty, or from before measures were noted
	}
	measure, err := assignor.DecodeMeasure(stored)
	if err != nil {
		return false, fmt.Errorf("%w: %w", statestore.ErrCorrupt, err)
	}
	return !group.MeasuresAs(&measure), nil
}

// wipe empties the state, for the units of a group.
func (s *state) wipe(group *assignor.Group) error {
	if err := s.backing.Wipe(); err != nil {
		return err
	}
	return s.setMeasure(group)
}

// setMeasure notes what the units of the entries are counted by.
func (s *state) setMeasure(group *assignor.Group) error {
	measure := assignor.AppendMeasure(nil, group)
	stored, ok, err := s.backing.Get(measureKey)
	if err != nil || ok && bytes.Equal(stored, measure) {
		return err
	}
	if err := s.backing.Put(measureKey, measure); err != nil {
		return err
	}
	return s.backing.Commit()
}

func (s *state) get(key []byte) (value []byte, ok bool, err error) {
	stored, ok, err := s.backing.Get(key)
	if err != nil {
		return nil, false, err
	}
	unit := noUnit
	if ok {
		unit, value, ok, err = s.open(stored)
	}
	if s.changes != nil {
		s.changes.saw(key, unit)
	}
	if !ok {
		value = nil
	}
	return value, ok, err
}

// put writes an entry. In a punctuation one that is there keeps whose it is.
func (s *state) put(key, value []byte) error {
	if s.changes != nil {
		if err := s.changes.note(s, key); err != nil {
			return err
		}
	}
	unit := s.unit
	if unit < 0 {
		unit = s.home
		stored, ok, err := s.backing.Get(key)
		if err != nil {
			return err
		}
		if ok {
			if unit, _, ok, err = s.open(stored); err != nil {
				return err
			}
			if !ok {
				return fmt.Errorf("the key %q belongs to a part of the state that another member has", key)
			}
		}
	}
	s.value = append(appendTag(s.value[:0], unit), value...)
	return s.backing.Put(key, s.value)
}

// remove removes an entry, which need not be there.
func (s *state) remove(key []byte) error {
	if s.changes != nil {
		if err := s.changes.note(s, key); err != nil {
			return err
		}
	}
	return s.backing.Delete(key)
}

func (s *state) scan(from, to []byte) iter.Seq2[statestore.Entry, error] {
	return func(yield func(statestore.Entry, error) bool) {
		for e, err := range s.backing.Range(from, to) {
			if err != nil {
				yield(statestore.Entry{}, err)
				return
			}
			_, value, ok, err := s.open(e.Value)
			if err != nil {
				yield(statestore.Entry{}, err)
				return
			}
			if ok && !yield(statestore.Entry{Key: e.Key, Value: value}, nil) {
				return
			}
		}
	}
}

// Store is keys and values that a processor keeps from record to record. It is used in the
// calls of its Processor only.
type Store struct {
	state  *state
	name   string
	prefix []byte
}

// key is where the store keeps a key.
func (s *Store) key(key []byte) []byte {
	s.state.scratch = append(append(s.state.scratch[:0], s.prefix...), key...)
	return s.state.scratch
}

// Get is the value of a key, in a slice of the caller's own; ok is false if there is none.
func (s *Store) Get(key []byte) (value []byte, ok bool, err error) {
	if value, ok, err = s.state.get(s.key(key)); err != nil {
		err = fmt.Errorf("store %s: get %q: %w", s.name, key, err)
	}
	return value, ok, err
}

// Put gives a key a value. Both are copied.
func (s *Store) Put(key, value []byte) error {
	if err := s.state.put(s.key(key), value); err != nil {
		return fmt.Errorf("store %s: put %q: %w", s.name, key, err)
	}
	return nil
}

// Delete removes a key, which need not be there.
func (s *Store) Delete(key []byte) error {
	if err := s.state.remove(s.key(key)); err != nil {
		return fmt.Errorf("store %s: delete %q: %w", s.name, key, err)
	}
	return nil
}

// Range goes through the keys of [from, to) in order, nil for an open end, as the store is
// when the loop begins; writing meanwhile is allowed. Key and Value are valid until the next
// step of the loop.
func (s *Store) Range(from, to []byte) iter.Seq2[statestore.Entry, error] {
	lower := append(bytes.Clone(s.prefix), from...)
	upper := append(bytes.Clone(s.prefix[:len(s.prefix)-1]), 1) // behind all names with this prefix and a zero
	if to != nil {
		upper = append(bytes.Clone(s.prefix), to...)
	}
	return s.within(lower, upper)
}

// Prefix is Range over the keys that begin with a prefix; nil is all.
func (s *Store) Prefix(prefix []byte) iter.Seq2[statestore.Entry, error] {
	return func(yield func(statestore.Entry, error) bool) {
		for e, err := range s.Range(prefix, nil) {
			if err == nil && !bytes.HasPrefix(e.Key, prefix) {
				return
			}
			if !yield(e, err) {
				return
			}
		}
	}
}

func (s *Store) within(lower, upper []byte) iter.Seq2[statestore.Entry, error] {
	return func(yield func(statestore.Entry, error) bool) {
		for e, err := range s.state.scan(lower, upper) {
			if err != nil {
				yield(statestore.Entry{}, fmt.Errorf("store %s: scan: %w", s.name, err))
				return
			}
			e.Key = e.Key[len(s.prefix):]
			if !yield(e, nil) {
				return
			}
		}
	}
}
