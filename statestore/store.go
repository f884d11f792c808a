package statestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

var (
	// ErrCorrupt marks a store whose files are damaged or missing. Destroy it and
	// derive the views again.
	ErrCorrupt = errors.New("state store is corrupt")
	// ErrFailed marks a store whose disk failed while it was open. Nothing can be done
	// with it but Close; opened again, which may need a new process, it holds some
	// earlier state.
	ErrFailed = errors.New("state store failed")
	// ErrNoSpace marks a write refused because the disk is nearly full. The store goes
	// on, and the same batch may be committed later.
	ErrNoSpace = errors.New("too little disk space for the state store")
	// ErrClosed marks the use of a closed store.
	ErrClosed = errors.New("state store is closed")
)

// unsyncedBytesMax is how much may be committed before Commit waits for a flush.
const unsyncedBytesMax = 8 << 20

// DB is one store. Its methods may be called from any goroutine.
type DB struct {
	fs   vfs.FS
	dir  string
	opts Options
	tune func(*pebble.Options) // nil, or changes the settings of a view's store
	lock *pebble.Lock

	failed      chan struct{} // closed by fail
	abandoned   chan struct{} // closed by abandon
	abandonOnce sync.Once
	closed      chan struct{} // closed by Close

	syncing chan struct{} // a mutex that a wait for can be given up: one Sync at a time

	// open guards pebble, which must not be called during or after its Close.
	open struct {
		sync.RWMutex
		pebble *pebble.DB // nil once closed or failed
	}
	fault struct {
		sync.Mutex
		err     error
		stopped chan struct{} // closed when fail's goroutine is done; nil before
	}
	// track knows what a crash would leave. It is never held across I/O.
	track struct {
		sync.Mutex
		unsynced      map[string]int64 // applied offsets committed and maybe not flushed
		unsyncedBytes int
		dirty         bool
		durable       map[string]int64 // applied offsets that are flushed
		generation    map[string]int   // of each view: how often it was dropped
	}
}

// Open opens the store in dir of fs, and makes one if there is none. An error that is
// ErrCorrupt says that Destroy and another Open will help.
func Open(fs vfs.FS, dir string, o Options) (*DB, error) {
	if err := makeDir(fs, dir); err != nil {
		return nil, fmt.Errorf("state store %s: %w", dir, err)
	}
	return openIn(fs, dir, o, nil)
}

// openIn opens the store in a directory that there is.
func openIn(fs vfs.FS, dir string, o Options, tune func(*pebble.Options)) (*DB, error) {
	db := &DB{fs: fs, dir: dir, opts: o, tune: tune}
	db.failed, db.abandoned, db.closed = make(chan struct{}), make(chan struct{}), make(chan struct{})
	db.syncing = make(chan struct{}, 1)
	db.track.unsynced = map[string]int64{}
	db.track.durable = map[string]int64{}
	db.track.generation = map[string]int{}
	lock, err := pebble.LockDirectory(dir, fs)
	if err != nil {
		return nil, fmt.Errorf("state store %s is in use: %w", dir, err)
	}
	db.lock = lock
	p, err := db.openPebble()
	db.open.Lock()
	db.open.pebble = p
	db.open.Unlock()
	if err == nil {
		err = db.check()
	}
	if err != nil {
		db.awaitStop()
		return nil, errors.Join(fmt.Errorf("open state store %s: %w", dir, err), lock.Close())
	}
	return db, nil
}

// makeDir makes a directory and those above it, durably: what is synced in a directory
// that is not is lost with it.
func makeDir(fs vfs.FS, dir string) error {
	var above []string // of each that has to be made, the one above
	for d := dir; ; d = fs.PathDir(d) {
		_, err := fs.Stat(d)
		if err == nil || fs.PathDir(d) == d {
			break
		}
		if !errors.Is(err, os.ErrNotExist) {
			return err
		}
		above = append(above, fs.PathDir(d))
	}
	if err := fs.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	for _, d := range above {
		if err := syncDir(fs, d); err != nil {
			return err
		}
	}
	return nil
}

// markerFS is a file system that sees to it that the file which a marker names is in its
// directory before the marker is: Pebble syncs both together, so a crash could leave the
// marker alone.
type markerFS struct{ vfs.FS }

func (fs markerFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if strings.HasPrefix(fs.PathBase(name), "marker.") {
		if err := syncDir(fs.FS, fs.PathDir(name)); err != nil {
			return nil, err
		}
	}
	return fs.FS.Create(name, category)
}

func (fs markerFS) Unwrap() vfs.FS { return fs.FS }

// OpenOrReset is Open, but reads everything once and replaces a store that is damaged by
// an empty one. damage is nil if it was whole.
func OpenOrReset(fs vfs.FS, dir string, o Options) (db *DB, damage, err error) {
	db, err = Open(fs, dir, o)
	if err == nil {
		if err = db.verify(); err == nil {
			return db, nil, nil
		}
		_ = db.Close() // it is broken, and known to be
	}
	if !errors.Is(err, ErrCorrupt) {
		return nil, nil, err
	}
	damage = err
	if err = Destroy(fs, dir); err == nil {
		db, err = Open(fs, dir, o)
	}
	if err != nil {
		return nil, damage, errors.Join(err, damage)
	}
	return db, damage, nil
}

// openPebble tells damage from a fault of the disk. Pebble names only some damage so,
// but the lock is ours and the file system's own errors can be told, so what remains
// are files that do not fit together.
func (db *DB) openPebble() (*pebble.DB, error) {
	opts := db.pebbleOptions(markerFS{db.fs})
	opts.Lock = db.lock
	if db.tune != nil {
		db.tune(opts)
	}
	opened := make(chan *pebble.DB, 1)
	err := db.guard(func() (err error) {
		defer func() {
			if r := recover(); r != nil { // a marker file whose directory cannot be synced
				err = panicError(r)
			}
		}()
		p, err := pebble.Open(db.dir, opts)
		opened <- p
		return err
	})
	if err == nil {
		return <-opened, nil
	}
	if !ioFault(err) {
		err = fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return nil, err
}

// Destroy removes the store in dir, which must not be open. A store that is not there
// is no error. It is gone durably when Destroy returns, so that a crash brings no part
// of it back.
func Destroy(fs vfs.FS, dir string) error {
	if err := fs.RemoveAll(dir); err != nil && !errors.Is(err, os.ErrNotExist) {
		return fmt.Errorf("remove state store %s: %w", dir, err)
	}
	if err := syncDir(fs, fs.PathDir(dir)); err != nil {
		return fmt.Errorf("remove state store %s: %w", dir, err)
	}
	return nil
}

// syncDir makes the names in a directory survive a crash.
func syncDir(fs vfs.FS, dir string) error {
	d, err := fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("sync directory: %w", err)
	}
	if err := errors.Join(d.Sync(), d.Close()); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// Sync waits until all that was committed before it survives a crash. With nothing new
// it does nothing.
func (db *DB) Sync(ctx context.Context) error {
	select {
	case db.syncing <- struct{}{}:
		defer func() { <-db.syncing }()
	case <-ctx.Done():
		return ctx.Err()
	}
	if err := db.check(); err != nil {
		return err
	}
	db.track.Lock()
	dirty, applied := db.track.dirty, db.track.unsynced
	generation := maps.Clone(db.track.generation)
	db.track.dirty, db.track.unsyncedBytes, db.track.unsynced = false, 0, map[string]int64{}
	db.track.Unlock()
	if !dirty {
		return nil
	}
	err := db.flush(ctx)
	db.track.Lock()
	defer db.track.Unlock()
	if err != nil {
		db.track.dirty = true
		for key, offset := range applied {
			if _, newer := db.track.unsynced[key]; !newer {
				db.track.unsynced[key] = offset
			}
		}
		return err
	}
	for key, offset := range applied {
		view := viewOf(key)
		if generation[view] == db.track.generation[view] {
			db.track.durable[key] = offset
		}
	}
	return nil
}

// flush writes the memtables out and waits for it.
func (db *DB) flush(ctx context.Context) error {
	if err := db.reserveSpace(); err != nil {
		return err
	}
	p, err := db.enter()
	if err != nil {
		return err
	}
	flushed := make(chan (<-chan struct{}), 1)
	err = db.guard(func() error {
		done, err := p.AsyncFlush()
		flushed <- done
		return err
	})
	db.leave()
	if err != nil {
		return fmt.Errorf("flush state store %s: %w", db.dir, err)
	}
	select {
	case <-<-flushed:
		return nil
	case <-db.failed:
		return db.check()
	case <-db.closed:
		return ErrClosed
	case <-ctx.Done():
		return ctx.Err()
	}
}

// Close syncs and closes the store. A store that failed reports why.
func (db *DB) Close() error {
	err := db.Sync(context.Background())
	if errors.Is(err, ErrClosed) {
		return nil
	}
	return db.shut(err)
}

// shut closes the store, whose last write had the outcome err.
func (db *DB) shut(err error) error {
	db.open.Lock()
	select {
	case <-db.closed:
	default:
		close(db.closed)
	}
	db.open.Unlock()
	if closeErr := db.closePebble(); err == nil && closeErr != nil {
		err = fmt.Errorf("close state store %s: %w", db.dir, closeErr)
	}
	db.awaitStop()
	if lockErr := db.unlock(); err == nil {
		err = lockErr
	}
	return err
}

// unlock lets another process have the directory.
func (db *DB) unlock() error {
	db.open.Lock()
	defer db.open.Unlock()
	if db.lock == nil {
		return nil
	}
	err := db.lock.Close()
	db.lock = nil
	return err
}
