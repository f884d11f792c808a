package statestore

import (
	"fmt"
	"strings"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// Pebble keeps a commit that is not synced in its own memory for a while, so that the
// crash of the process would lose it. Here each commit is a synced one, whose sync of the
// log's file is put off: what is committed has been handed to the operating system.

// logFS is a file system whose files of the write-ahead log put their syncs off.
type logFS struct {
	vfs.FS
	lazy *atomic.Bool
}

func (fs logFS) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.Create(name, category)
	return fs.wrap(name, f), err
}

func (fs logFS) ReuseForWrite(oldname, newname string, category vfs.DiskWriteCategory) (vfs.File, error) {
	f, err := fs.FS.ReuseForWrite(oldname, newname, category)
	return fs.wrap(newname, f), err
}

func (fs logFS) wrap(name string, f vfs.File) vfs.File {
	if f == nil || !strings.HasSuffix(name, ".log") {
		return f
	}
	return &logFile{File: f, lazy: fs.lazy}
}

func (fs logFS) Unwrap() vfs.FS { return fs.FS }

// logFile is one file of the write-ahead log. Closing it does what was put off, so that
// no later file is ever on disk without it.
type logFile struct {
	vfs.File
	lazy *atomic.Bool
	owes atomic.Bool
}

func (f *logFile) putOff() bool {
	lazy := f.lazy.Load()
	f.owes.Store(lazy)
	return lazy
}

func (f *logFile) Sync() error {
	if f.putOff() {
		return nil
	}
	return f.File.Sync()
}

func (f *logFile) SyncData() error {
	if f.putOff() {
		return nil
	}
	return f.File.SyncData()
}

func (f *logFile) SyncTo(length int64) (fullSync bool, err error) {
	if f.putOff() {
		return false, nil
	}
	return f.File.SyncTo(length)
}

func (f *logFile) Close() error {
	var err error
	if f.owes.Load() {
		err = f.File.SyncData()
	}
	if closeErr := f.File.Close(); err == nil {
		err = closeErr
	}
	return err
}

// write commits a batch, durably or as far as the operating system. The caller is inside
// the DB.
func (s *pebbleStore) write(batch *pebble.Batch, durably bool) error {
	s.sync.mu.Lock()
	defer s.sync.mu.Unlock()
	s.sync.unsynced += batch.Len()
	durably = durably || s.sync.unsynced > s.settings.syncBytes
	s.sync.lazy.Store(!durably)
	err := s.db.guard(func() error { return s.pebble.Apply(batch, pebble.Sync) })
	s.sync.lazy.Store(false)
	if err != nil {
		s.db.fail(err)
		return err
	}
	if durably {
		s.sync.unsynced = 0
	} else if !s.sync.armed {
		s.sync.armed = true
		s.sync.pending.Add(1)
		s.sync.timer.Reset(s.settings.syncInterval)
	}
	return nil
}

// Sync waits until all commits survive a crash of the machine.
func (s *pebbleStore) Sync() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	s.sync.mu.Lock()
	defer s.sync.mu.Unlock()
	if err := s.syncLog(); err != nil {
		return fmt.Errorf("sync state store %s: %w", s.db.dir, err)
	}
	return nil
}

// syncLog does the syncs that were put off. The caller is inside the DB and has the lock.
func (s *pebbleStore) syncLog() error {
	if s.sync.unsynced == 0 {
		return nil
	}
	if err := s.db.guard(func() error { return s.pebble.LogData(nil, pebble.Sync) }); err != nil {
		s.db.fail(err)
		return err
	}
	s.sync.unsynced = 0
	return nil
}

// syncLater is the timer's: what was committed is synced within the interval, also if
// nothing more is. A fault is kept by the DB for the store's next call.
func (s *pebbleStore) syncLater() {
	defer s.sync.pending.Done()
	if _, err := s.db.enter(); err != nil {
		return
	}
	defer s.db.leave()
	s.sync.mu.Lock()
	defer s.sync.mu.Unlock()
	s.sync.armed = false
	_ = s.syncLog()
}
