package statestore

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// pebbleStore is a store on disk. The uncommitted changes are an indexed batch, which
// reads go through; a commit adds the offsets to it and applies it.
//
// The store's goroutine stays inside the DB from the first of its calls and loops to the
// last, since a second lock for reading could wait for a fault to be dealt with, and that
// for the first.
type pebbleStore struct {
	db       *DB
	pebble   *pebble.DB
	settings *settings
	readOnly bool

	batch   *pebble.Batch
	recent  recent // of batch
	window  window
	offsets offsetMap
	edits   []edit
	inside  int
	cursors map[*cursor]struct{}
	key     []byte // scratch
	slab    slab

	unflushed int // bytes committed since the last flush that was waited for
	sync      struct {
		lazy     *atomic.Bool // the log's syncs are put off
		timer    *time.Timer
		pending  sync.WaitGroup // of the timer
		mu       sync.Mutex     // held across writes, which set lazy; guards what follows
		armed    bool
		unsynced int // bytes committed and not synced
	}
	release func()
}

// Pebble opens stores that keep data and offsets on disk, in one Pebble each, with a
// write-ahead log. Data and offsets never disagree, whatever crashes. A commit survives
// the crash of the process when it returns, and a crash of the machine soon after or at
// once: see SyncWithin and SyncEach.
func Pebble(options ...Option) Opener {
	o := newSettings(options)
	caches := &shared{}
	return func(fs vfs.FS, dir string) (Store, error) {
		return openPebbleStore(fs, dir, &o, caches)
	}
}

func openPebbleStore(fs vfs.FS, dir string, o *settings, caches *shared) (Store, error) {
	readOnly := IsReadOnly(fs)
	if !readOnly {
		if err := makeDir(fs, dir); err != nil {
			return nil, fmt.Errorf("state store %s: %w", dir, err)
		}
	}
	caches.acquire(o.cacheBytes)
	lazy := &atomic.Bool{}
	db, err := openIn(fs, dir, Options{Logf: o.logf}, func(p *pebble.Options) {
		caches.tune(p, readOnly)
		p.FS = logFS{p.FS, lazy}
	})
	if err != nil {
		caches.release()
		if readOnly && errors.Is(err, pebble.ErrDBDoesNotExist) {
			return newMemStore(o.uncommittedMax, true), nil // there is none yet
		}
		return nil, err
	}
	s := &pebbleStore{
		db: db, settings: o, readOnly: readOnly, release: sync.OnceFunc(caches.release),
		recent: newRecent(), window: window{max: o.uncommittedMax}, offsets: offsetMap{}, cursors: map[*cursor]struct{}{},
	}
	s.sync.lazy = lazy
	s.sync.timer = time.AfterFunc(time.Hour, s.syncLater)
	s.sync.timer.Stop()
	if err := s.begin(); err != nil {
		return nil, errors.Join(fmt.Errorf("open state store %s: %w", dir, corruption(err)), s.Close())
	}
	return s, nil
}

// begin opens the first window and reads the offsets.
func (s *pebbleStore) begin() (err error) {
	if s.pebble, err = s.db.enter(); err != nil {
		return err
	}
	s.inside++
	defer s.leave()
	s.newBatch()
	return s.load()
}

// newBatch begins a window in memory of its own.
func (s *pebbleStore) newBatch() {
	s.batch = s.pebble.NewIndexedBatch()
}

// enter returns an error if the store cannot be used; without one, leave must follow.
func (s *pebbleStore) enter() error {
	if s.inside > 0 {
		if err := s.db.check(); err != nil {
			return err
		}
	} else if _, err := s.db.enter(); err != nil {
		return err
	}
	s.inside++
	return nil
}

func (s *pebbleStore) leave() {
	if s.inside--; s.inside == 0 {
		s.db.leave()
	}
}

func (s *pebbleStore) dataKey(key []byte) []byte {
	s.key = append(append(s.key[:0], kvData), key...)
	return s.key
}

func (s *pebbleStore) Get(key []byte) (value []byte, ok bool, err error) {
	if err := s.enter(); err != nil {
		return nil, false, err
	}
	defer s.leave()
	raw := s.dataKey(key)
	value, changed, gone, sure := s.recent.find(s.batch, raw)
	if sure && changed {
		if gone {
			return nil, false, nil
		}
		return s.slab.copy(value), true, nil
	}
	get := s.pebble.Get
	if !sure {
		get = s.batch.Get
	}
	found, closer, err := get(raw)
	if errors.Is(err, pebble.ErrNotFound) {
		return nil, false, nil
	}
	if err != nil {
		return nil, false, fmt.Errorf("state store %s: %w", s.db.dir, corruption(err))
	}
	value = s.slab.copy(found)
	if err := closer.Close(); err != nil {
		return nil, false, fmt.Errorf("state store %s: %w", s.db.dir, corruption(err))
	}
	return value, true, nil
}

// change makes room for a change.
func (s *pebbleStore) change(key, value []byte) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if s.readOnly {
		return ErrReadOnly
	}
	return s.window.take(key, value)
}

func (s *pebbleStore) Put(key, value []byte) error {
	if err := s.change(key, value); err != nil {
		return err
	}
	raw := s.dataKey(key)
	must(s.batch.Set(raw, value, nil))
	s.recent.note(s.batch, raw, len(value))
	return nil
}

func (s *pebbleStore) Delete(key []byte) error {
	if err := s.change(key, nil); err != nil {
		return err
	}
	raw := s.dataKey(key)
	must(s.batch.Delete(raw, nil))
	s.recent.noteGone(s.batch, raw)
	return nil
}

func (s *pebbleStore) UncommittedBytes() int { return s.window.used }

// endWindow begins an empty window. A loop that is under way goes on with the old one.
func (s *pebbleStore) endWindow() {
	s.recent.reset()
	if s.window.used = 0; len(s.cursors) > 0 {
		s.newBatch()
	} else {
		s.batch.Reset()
	}
}

func (s *pebbleStore) Rollback() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.endWindow()
	return nil
}

func (s *pebbleStore) Commit(offsets ...Offset) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := checkOffsets(offsets); err != nil {
		return err
	}
	if s.readOnly {
		return ErrReadOnly
	}
	if s.batch.Empty() && len(offsets) == 0 {
		return nil
	}
	if err := s.makeRoom(); err != nil {
		return err
	}
	s.edits = s.edits[:0]
	for i := range offsets {
		s.edits = s.offsets.set(&offsets[i], s.edits)
	}
	for i := range s.edits {
		s.key = s.edits[i].write(s.batch, s.key)
	}
	if err := s.apply(false); err != nil {
		return fmt.Errorf("commit to state store %s: %w", s.db.dir, err)
	}
	return nil
}

// makeRoom waits until Pebble has written out most of what it has been given, so that
// its memory stays bounded. Pebble's own stalls cannot be left when the disk fails.
func (s *pebbleStore) makeRoom() error {
	if err := s.db.reserveSpace(); err != nil {
		return err
	}
	if s.unflushed += s.batch.Len(); s.unflushed <= kvUnflushedMax {
		return nil
	}
	if err := s.db.flush(context.Background()); err != nil {
		return err
	}
	s.unflushed = 0
	return nil
}

// apply commits the batch. Its offsets are those of the map already, so a failure is the
// end of the store.
func (s *pebbleStore) apply(durably bool) error {
	batch := s.batch
	if len(s.cursors) > 0 { // they read the batch, which Pebble would take over
		batch = s.pebble.NewBatch()
		must(batch.Apply(s.batch, nil))
	}
	if err := s.write(batch, durably); err != nil {
		return err
	}
	s.endWindow()
	return nil
}

// Wipe hides all at once behind one tombstone; compactions remove it from disk.
func (s *pebbleStore) Wipe() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if s.readOnly {
		return ErrReadOnly
	}
	if err := s.db.reserveSpace(); err != nil {
		return err
	}
	s.endWindow()
	clear(s.offsets)
	must(s.batch.DeleteRange([]byte{kvOffset}, []byte{kvEnd}, nil))
	if err := s.apply(true); err != nil {
		return fmt.Errorf("wipe state store %s: %w", s.db.dir, err)
	}
	return nil
}

func (s *pebbleStore) CommittedOffset(source Source) (next int64, ok bool, err error) {
	if err := s.db.check(); err != nil {
		return 0, false, err
	}
	next, ok = s.offsets.committed(&source)
	return next, ok, nil
}

func (s *pebbleStore) Offsets() ([]Offset, error) {
	if err := s.db.check(); err != nil {
		return nil, err
	}
	return s.offsets.list(), nil
}

// Persistent says that the store is on disk.
func (s *pebbleStore) Persistent() bool { return true }

// Close makes all commits survive a crash of the machine too.
func (s *pebbleStore) Close() error {
	for c := range s.cursors {
		c.close()
	}
	err := s.Sync()
	if errors.Is(err, ErrClosed) {
		return nil
	}
	if s.sync.timer.Stop() {
		s.sync.pending.Done()
	}
	s.sync.pending.Wait()
	s.window.used = 0
	err = s.db.shut(err)
	s.release()
	return err
}
