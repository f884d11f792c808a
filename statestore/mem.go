package statestore

import (
	"bytes"
	"iter"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/tidwall/btree"
)

// memStore is a store in memory only. The tree holds the uncommitted changes too, and
// undo what they replaced.
type memStore struct {
	tree     *btree.BTreeG[Entry]
	undo     []undo
	window   window
	offsets  offsetMap
	closed   bool
	readOnly bool
}

// undo is what a change replaced: an entry, or none.
type undo struct {
	Entry
	existed bool
}

// InMemory opens stores that hold everything in memory, and nothing after Close; each
// Open begins with an empty one. In all else they are as Pebble's. fs and dir are not
// used.
func InMemory(options ...Option) Opener {
	o := newSettings(options)
	return func(fs vfs.FS, _ string) (Store, error) {
		return newMemStore(o.uncommittedMax, IsReadOnly(fs)), nil
	}
}

func newMemStore(uncommittedMax int, readOnly bool) *memStore {
	return &memStore{tree: newTree(), window: window{max: uncommittedMax}, offsets: offsetMap{}, readOnly: readOnly}
}

func newTree() *btree.BTreeG[Entry] {
	less := func(a, b Entry) bool { return bytes.Compare(a.Key, b.Key) < 0 }
	return btree.NewBTreeGOptions(less, btree.Options{NoLocks: true})
}

func (m *memStore) check() error {
	if m.closed {
		return ErrClosed
	}
	return nil
}

func (m *memStore) writable() error {
	if m.readOnly && !m.closed {
		return ErrReadOnly
	}
	return m.check()
}

func (m *memStore) Get(key []byte) (value []byte, ok bool, err error) {
	if err := m.check(); err != nil {
		return nil, false, err
	}
	e, ok := m.tree.Get(Entry{Key: key})
	return e.Value, ok, nil
}

func (m *memStore) Put(key, value []byte) error {
	if err := m.writable(); err != nil {
		return err
	}
	if err := m.window.take(key, value); err != nil {
		return err
	}
	// Entries never change once they are in the tree, so readers may keep them.
	both := append(append(make([]byte, 0, len(key)+len(value)), key...), value...)
	e := Entry{Key: both[:len(key):len(key)], Value: both[len(key):]}
	old, existed := m.tree.Set(e)
	if !existed {
		old.Key = e.Key
	}
	m.undo = append(m.undo, undo{old, existed})
	return nil
}

func (m *memStore) Delete(key []byte) error {
	if err := m.writable(); err != nil {
		return err
	}
	if err := m.window.take(key, nil); err != nil {
		return err
	}
	if old, existed := m.tree.Delete(Entry{Key: key}); existed {
		m.undo = append(m.undo, undo{old, true})
	}
	return nil
}

func (m *memStore) Range(from, to []byte) iter.Seq2[Entry, error] {
	return func(yield func(Entry, error) bool) {
		if err := m.check(); err != nil {
			yield(Entry{}, err)
			return
		}
		if to != nil && bytes.Compare(from, to) >= 0 {
			return
		}
		m.tree.Copy().Ascend(Entry{Key: from}, func(e Entry) bool {
			if to != nil && bytes.Compare(e.Key, to) >= 0 {
				return false
			}
			if !yield(e, nil) {
				return false
			}
			if m.closed {
				yield(Entry{}, ErrClosed)
			}
			return !m.closed
		})
	}
}

func (m *memStore) Prefix(prefix []byte) iter.Seq2[Entry, error] {
	return m.Range(prefix, upperBound(prefix))
}

func (m *memStore) UncommittedBytes() int { return m.window.used }

func (m *memStore) Commit(offsets ...Offset) error {
	if err := m.check(); err != nil {
		return err
	}
	if err := checkOffsets(offsets); err != nil {
		return err
	}
	if err := m.writable(); err != nil {
		return err
	}
	for i := range offsets {
		m.offsets.set(&offsets[i], nil)
	}
	m.forgetUndo()
	return nil
}

func (m *memStore) forgetUndo() {
	clear(m.undo)
	m.undo = m.undo[:0]
	m.window.used = 0
}

func (m *memStore) Rollback() error {
	if err := m.check(); err != nil {
		return err
	}
	for i := len(m.undo) - 1; i >= 0; i-- {
		if u := m.undo[i]; u.existed {
			m.tree.Set(u.Entry)
		} else {
			m.tree.Delete(u.Entry)
		}
	}
	m.forgetUndo()
	return nil
}

func (m *memStore) Wipe() error {
	if err := m.writable(); err != nil {
		return err
	}
	m.tree, m.offsets = newTree(), offsetMap{}
	m.forgetUndo()
	return nil
}

func (m *memStore) Close() error {
	m.closed = true
	m.tree, m.undo, m.offsets, m.window.used = newTree(), nil, offsetMap{}, 0
	return nil
}

func (m *memStore) CommittedOffset(s Source) (next int64, ok bool, err error) {
	if err := m.check(); err != nil {
		return 0, false, err
	}
	next, ok = m.offsets.committed(&s)
	return next, ok, nil
}

func (m *memStore) Offsets() ([]Offset, error) {
	if err := m.check(); err != nil {
		return nil, err
	}
	return m.offsets.list(), nil
}

// Persistent says that there is nothing on disk.
func (m *memStore) Persistent() bool { return false }
