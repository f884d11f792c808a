package statestore

import (
	"bytes"
	"errors"
	"fmt"
	"iter"

	"github.com/cockroachdb/pebble/v2"
)

// cursor is one loop over a pebbleStore.
type cursor struct {
	store  *pebbleStore
	it     *pebble.Iterator
	closed bool
}

func (s *pebbleStore) Range(from, to []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if to != nil && bytes.Compare(from, to) >= 0 {
			if err := s.db.check(); err != nil {
				yield(Entry{}, err)
			}
			return
		}
		c, err := s.openCursor(from, to)
		if err == nil {
			err = errors.Join(c.run(yield), c.close())
		}
		if err != nil && !errors.Is(err, errLeft) {
			yield(Entry{}, fmt.Errorf("state store %s: %w", s.db.dir, corruption(err)))
		}
	}
}

func (s *pebbleStore) Prefix(prefix []byte) iter.Seq2[Entry, error] {
	return s.Range(prefix, upperBound(prefix))
}

// errLeft says that the loop's body has left it, and may not be called again.
var errLeft = errors.New("loop left")

func (s *pebbleStore) openCursor(from, to []byte) (*cursor, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	bounds := &pebble.IterOptions{LowerBound: append([]byte{kvData}, from...), UpperBound: []byte{kvEnd}}
	if to != nil {
		bounds.UpperBound = append([]byte{kvData}, to...)
	}
	it, err := s.batch.NewIter(bounds)
	if err != nil {
		s.leave()
		return nil, err
	}
	c := &cursor{store: s, it: it}
	s.cursors[c] = struct{}{}
	return c, nil
}

func (c *cursor) run(yield func(Entry, error) bool) error {
	left := true // also if the body panics
	defer func() {
		if left {
			_ = c.close() // nobody is there to hear of it
		}
	}()
	for valid := c.it.First(); valid; valid = c.it.Next() {
		value, err := c.it.ValueAndErr()
		if err != nil {
			left = false
			return err
		}
		if !yield(Entry{Key: c.it.Key()[1:], Value: value}, nil) {
			return errLeft
		}
		if c.closed {
			left = false
			return ErrClosed
		}
		if err := c.store.db.check(); err != nil {
			left = false
			return err
		}
	}
	left = false
	return c.it.Error()
}

// close frees what the loop holds, once.
func (c *cursor) close() error {
	if c.closed {
		return nil
	}
	c.closed = true
	delete(c.store.cursors, c)
	err := c.store.db.guard(c.it.Close)
	c.store.leave()
	return err
}

// slab hands out small slices of larger ones, so that a slice of the caller's own costs
// no allocation of its own.
type slab struct{ free []byte }

const slabBytes = 16 << 10

func (s *slab) copy(b []byte) []byte {
	if len(b) > slabBytes/8 {
		return append([]byte(nil), b...)
	}
	if len(b) > len(s.free) {
		s.free = make([]byte, slabBytes)
	}
	own := s.free[:len(b):len(b)]
	copy(own, b)
	s.free = s.free[len(b):]
	return own
}
