package statestore

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ErrOffsetsHidden refuses a store that keeps offsets of its own behind a wrapper that
// does not let them be asked for, or that keeps those of Commit from it. Were it taken for
// one without, its offsets would be in two places.
var ErrOffsetsHidden = errors.New("a wrapper hides the offsets of its store")

// Keep gives a store offsets. It is called once, after the store in dir of fs was opened
// and before it is changed.
//
// A store that keeps its own, or a wrapper that leads to one with Unwrap, takes in what
// files of offsets there are in dir, as far as it has none itself, and the files go. A
// crash in between does it again, with the same outcome.
//
// For another store that is on disk, each Commit writes the file CheckpointFile after the
// store has committed, so the offsets may be behind the data after a crash, and are never
// ahead. Of a store that is in memory only the offsets are too.
func Keep(store Store, fs vfs.FS, dir string) (OffsetStore, error) {
	if own, ok := store.(OffsetStore); ok {
		return takeIn(own, fs, dir)
	}
	// A store that keeps offsets refuses this one, also through a wrapper; another ignores it.
	err := store.Commit(Offset{})
	keeps := errors.Is(err, ErrInvalidOffset)
	keeper, found := behind[OffsetKeeper](store)
	switch {
	case keeps && found:
		return takeIn(wrapped{store, keeper}, fs, dir)
	case keeps || found:
		return nil, fmt.Errorf("state store %s: %w", dir, ErrOffsetsHidden)
	case err != nil && !IsReadOnly(fs):
		return nil, fmt.Errorf("state store %s: %w", dir, err)
	}
	return withCheckpoint(store, fs, dir)
}

// behind finds what a store implements itself or leads to.
func behind[T any](store Store) (T, bool) {
	for {
		if t, ok := store.(T); ok {
			return t, true
		}
		w, ok := store.(interface{ Unwrap() Store })
		if !ok {
			var none T
			return none, false
		}
		store = w.Unwrap()
	}
}

// persistent tells whether there is anything of the store on disk.
func persistent(store Store) bool {
	p, ok := behind[Persister](store)
	return !ok || p.Persistent()
}

// syncStore waits until what was committed survives a crash of the machine.
func syncStore(store Store) error {
	if s, ok := behind[Syncer](store); ok {
		return s.Sync()
	}
	return nil
}

// wrapped is a wrapper with the offsets of the store in it.
type wrapped struct {
	Store
	OffsetKeeper
}

func (w wrapped) Unwrap() Store { return w.Store }

// takeIn moves the offsets of files into a store that keeps its own.
func takeIn(store OffsetStore, fs vfs.FS, dir string) (OffsetStore, error) {
	if !persistent(store) {
		return store, nil
	}
	found, names, err := readAllOffsets(fs, dir)
	if err != nil || len(names) == 0 {
		return store, err
	}
	own, err := store.Offsets()
	if err != nil {
		return nil, err
	}
	all := offsetMap{}
	for i := range own {
		all.set(&own[i], nil)
	}
	news := all.missing(found.list())
	if IsReadOnly(fs) {
		for i := range news {
			all.set(&news[i], nil)
		}
		return &checkpointed{Store: store, offsets: all}, nil
	}
	if len(news) > 0 {
		err = store.Commit(news...)
	}
	if err == nil {
		err = syncStore(store) // a run before may have committed them and no more
	}
	if err == nil {
		err = removeFiles(fs, dir, names...)
	}
	if err != nil {
		return nil, fmt.Errorf("take offsets of %v into state store %s: %w", names, dir, err)
	}
	return store, nil
}

// checkpointed is a store without offsets of its own.
type checkpointed struct {
	Store
	fs      vfs.FS // nil: the offsets are in memory only
	dir     string
	offsets offsetMap
}

func withCheckpoint(store Store, fs vfs.FS, dir string) (OffsetStore, error) {
	if !persistent(store) {
		return &checkpointed{Store: store, offsets: offsetMap{}}, nil
	}
	offsets, names, err := readAllOffsets(fs, dir)
	if err != nil {
		return nil, err
	}
	c := &checkpointed{Store: store, fs: fs, dir: dir, offsets: offsets}
	if IsReadOnly(fs) || !slices.Contains(names, PositionFile) {
		return c, nil
	}
	// From here on there is one file, or the other would hold its offsets back for ever.
	if err := writeOffsets(fs, dir, offsets.list()); err != nil {
		return nil, err
	}
	return c, removeFiles(fs, dir, PositionFile)
}

func (c *checkpointed) Commit(offsets ...Offset) error {
	if err := checkOffsets(offsets); err != nil {
		return err
	}
	if err := c.Store.Commit(); err != nil || len(offsets) == 0 {
		return err
	}
	next := make(offsetMap, len(c.offsets))
	for log, spans := range c.offsets {
		next[log] = slices.Clone(spans)
	}
	for i := range offsets {
		next.set(&offsets[i], nil)
	}
	if c.fs != nil && !maps.EqualFunc(c.offsets, next, slices.Equal) {
		if err := syncStore(c.Store); err != nil {
			return err
		}
		if err := writeOffsets(c.fs, c.dir, next.list()); err != nil {
			return err
		}
	}
	c.offsets = next
	return nil
}

// Wipe removes the offsets first: without them what is left is read again.
func (c *checkpointed) Wipe() error {
	clear(c.offsets)
	if c.fs != nil {
		if err := removeFiles(c.fs, c.dir, CheckpointFile); err != nil {
			return err
		}
	}
	return c.Store.Wipe()
}

func (c *checkpointed) CommittedOffset(s Source) (next int64, ok bool, err error) {
	next, ok = c.offsets.committed(&s)
	return next, ok, nil
}

func (c *checkpointed) Offsets() ([]Offset, error) { return c.offsets.list(), nil }

// Sync waits until the changes that were committed survive a crash of the machine. The
// offsets do already.
func (c *checkpointed) Sync() error { return syncStore(c.Store) }

func (c *checkpointed) Unwrap() Store { return c.Store }
