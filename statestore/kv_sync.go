package statestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
)

// Sync waits until all commits survive a crash of the machine.
func (s *pebbleStore) Sync() error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.leave()
	if err := s.syncLog(); err != nil {
		return fmt.Errorf("sync state store %s: %w", s.db.dir, err)
	}
	return nil
}

// syncLog writes out what the write-ahead log holds. The caller is inside the DB.
func (s *pebbleStore) syncLog() error {
	unsynced := s.unsynced.Load()
	if unsynced == 0 {
		return nil
	}
	if err := s.db.guard(func() error { return s.pebble.LogData(nil, pebble.Sync) }); err != nil {
		s.db.fail(err)
		return err
	}
	s.unsynced.Add(-unsynced)
	return nil
}

// armSync sees to it that what has been committed is synced within the interval, also if
// nothing more is committed.
func (s *pebbleStore) armSync() {
	if s.sync.armed.CompareAndSwap(false, true) {
		s.sync.pending.Add(1)
		s.sync.timer.Reset(s.settings.syncInterval)
	}
}

// syncLater is the timer's. A fault is kept by the DB for the store's next call.
func (s *pebbleStore) syncLater() {
	defer s.sync.pending.Done()
	s.sync.armed.Store(false)
	if _, err := s.db.enter(); err != nil {
		return
	}
	defer s.db.leave()
	_ = s.syncLog()
}
