package statestore

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// What follows a view's name in a key.
const (
	kindApplied byte = 0 // a source; the value is its applied offset, 8 bytes big endian
	kindData    byte = 1 // a key of the view
)

// viewNameMax is the longest name of a view, in bytes.
const viewNameMax = 255

// View is one derived state: keys and values, and for each source (a log partition,
// named so that another log of that name would not match) the offset up to which the
// source has been applied.
type View struct {
	db     *DB
	name   string
	prefix []byte // length of the name, name
}

// View returns the view of that name, of 1 to 255 bytes. Views share nothing.
func (db *DB) View(name string) *View {
	if len(name) == 0 || len(name) > viewNameMax {
		panic(fmt.Sprintf("statestore: a view's name has 1 to %d bytes, not %d", viewNameMax, len(name)))
	}
	return &View{db: db, name: name, prefix: append([]byte{byte(len(name))}, name...)}
}

// viewOf is the view prefix of a raw key.
func viewOf(key string) string { return key[:1+int(key[0])] }

func (v *View) appliedKey(source string) []byte {
	return append(append(append(make([]byte, 0, len(v.prefix)+1+len(source)), v.prefix...), kindApplied), source...)
}

func (v *View) dataKey(key []byte) []byte {
	return append(append(append(make([]byte, 0, len(v.prefix)+1+len(key)), v.prefix...), kindData), key...)
}

// Applied is the offset up to which the view has applied source: the next to apply.
// ok is false for a source that it never applied.
func (v *View) Applied(source string) (offset int64, ok bool, err error) {
	value, ok, err := v.get(v.appliedKey(source))
	if err != nil || !ok {
		return 0, false, err
	}
	if len(value) != 8 {
		return 0, false, fmt.Errorf("view %s, applied offset of %s: %w: %d bytes", v.name, source, ErrCorrupt, len(value))
	}
	offset = int64(binary.BigEndian.Uint64(value))
	v.foundApplied(source, offset)
	return offset, true, nil
}

// foundApplied notes that an offset which this process did not write came from disk.
func (v *View) foundApplied(source string, offset int64) {
	key := string(v.appliedKey(source))
	t := &v.db.track
	t.Lock()
	defer t.Unlock()
	_, unsynced := t.unsynced[key]
	_, durable := t.durable[key]
	if !unsynced && !durable && t.generation[string(v.prefix)] == 0 {
		t.durable[key] = offset
	}
}

// Durable is an applied offset of source that the view has after a crash too, or a
// later one. ok is false if it may be lost altogether.
func (v *View) Durable(source string) (offset int64, ok bool) {
	v.db.track.Lock()
	defer v.db.track.Unlock()
	offset, ok = v.db.track.durable[string(v.appliedKey(source))]
	return offset, ok
}

// Get returns the value of key in a slice of the caller's own.
func (v *View) Get(key []byte) (value []byte, ok bool, err error) { return v.get(v.dataKey(key)) }

func (v *View) get(raw []byte) (value []byte, ok bool, err error) {
	err = v.read(func(p *pebble.DB) error {
		found, closer, err := p.Get(raw)
		if errors.Is(err, pebble.ErrNotFound) {
			return nil
		}
		if err != nil {
			return err
		}
		value, ok = append([]byte{}, found...), true
		return v.db.guard(closer.Close)
	})
	return value, ok, err
}

// Scan calls fn with each key that starts with prefix, in order, as of one moment.
// The slices are valid during the call only. An error of fn ends it and is returned.
func (v *View) Scan(prefix []byte, fn func(key, value []byte) error) error {
	lower := v.dataKey(prefix)
	return v.scan(lower, upperBound(lower), func(raw, value []byte) error {
		return fn(raw[len(v.prefix)+1:], value)
	})
}

// Empty tells that the view holds nothing, neither data nor an applied offset.
func (v *View) Empty() (bool, error) {
	empty := true
	stop := errors.New("found")
	err := v.scan(v.prefix, upperBound(v.prefix), func(_, _ []byte) error {
		empty = false
		return stop
	})
	if errors.Is(err, stop) {
		err = nil
	}
	return empty, err
}

func (v *View) scan(lower, upper []byte, fn func(key, value []byte) error) error {
	return v.read(func(p *pebble.DB) error {
		it, err := p.NewIter(&pebble.IterOptions{LowerBound: lower, UpperBound: upper})
		if err != nil {
			return err
		}
		for valid := it.First(); valid; valid = it.Next() {
			value, err := it.ValueAndErr()
			if err == nil {
				err = fn(it.Key(), value)
			}
			if err != nil {
				return errors.Join(err, v.db.guard(it.Close))
			}
		}
		return v.db.guard(it.Close)
	})
}

// verify reads every key and value.
func (db *DB) verify() error {
	all := View{db: db, name: "of all"}
	return all.scan(nil, nil, func(_, _ []byte) error { return nil })
}

// read runs fn on the open store.
func (v *View) read(fn func(*pebble.DB) error) error {
	p, err := v.db.enter()
	if err != nil {
		return err
	}
	defer v.db.leave()
	if err := fn(p); err != nil {
		return fmt.Errorf("view %s: %w", v.name, corruption(err))
	}
	return nil
}

// Drop empties the view, durably: had a crash brought it back, it could pass for one
// that fits what its log holds by then.
func (v *View) Drop(ctx context.Context) error {
	v.db.track.Lock()
	v.db.track.generation[string(v.prefix)]++
	forget(v.db.track.durable, string(v.prefix))
	forget(v.db.track.unsynced, string(v.prefix))
	v.db.track.Unlock()

	b := v.NewBatch()
	if err := b.raw.DeleteRange(v.prefix, upperBound(v.prefix), nil); err != nil {
		return fmt.Errorf("drop view %s: %w", v.name, err)
	}
	if err := b.Commit(ctx); err != nil {
		return fmt.Errorf("drop view %s: %w", v.name, err)
	}
	if err := v.db.Sync(ctx); err != nil {
		return fmt.Errorf("drop view %s: %w", v.name, err)
	}
	return nil
}

func forget(offsets map[string]int64, view string) {
	for key := range offsets {
		if viewOf(key) == view {
			delete(offsets, key)
		}
	}
}

// upperBound is the least key above all that start with prefix, nil if there is none.
func upperBound(prefix []byte) []byte {
	for i := len(prefix) - 1; i >= 0; i-- {
		if prefix[i] != 0xff {
			return append(append(make([]byte, 0, i+1), prefix[:i]...), prefix[i]+1)
		}
	}
	return nil
}
