package statestore

import (
	"errors"
	"fmt"
	"os"
	"syscall"

	"github.com/cockroachdb/pebble/v2"
)

// enter returns the open Pebble, which stays open until leave.
func (db *DB) enter() (*pebble.DB, error) {
	db.open.RLock()
	err := db.check()
	if err == nil && db.open.pebble == nil {
		err = ErrClosed
	}
	if err != nil {
		db.open.RUnlock()
		return nil, err
	}
	return db.open.pebble, nil
}

func (db *DB) leave() { db.open.RUnlock() }

// check says why the store cannot be used, if it cannot. It looks at one channel after the
// other, which takes no lock, as a select of both would, in each Get and Put.
func (db *DB) check() error {
	select {
	case <-db.failed:
		db.fault.Lock()
		defer db.fault.Unlock()
		return fmt.Errorf("%w: %s: %w", ErrFailed, db.dir, db.fault.err)
	default:
	}
	select {
	case <-db.closed:
		return ErrClosed
	default:
		return nil
	}
}

// reserveSpace refuses to write where the disk is nearly full.
func (db *DB) reserveSpace() error {
	usage, err := db.fs.GetDiskUsage(db.dir)
	if err != nil || usage.AvailBytes >= spaceReserveBytes {
		return nil // a file system that cannot tell is taken as it comes
	}
	return fmt.Errorf("%w: %d bytes free at %s, %d needed", ErrNoSpace, usage.AvailBytes, db.dir, spaceReserveBytes)
}

// backgroundError hears of a flush or compaction that failed. Pebble would try it
// again at once and for ever, and holds its lock during this call.
func (db *DB) backgroundError(err error) {
	if errors.Is(err, pebble.ErrCancelledCompaction) {
		return
	}
	db.fail(err)
}

// abandon stops the store where Pebble stands: in the goroutine that met a fault it has
// no way back from, and that holds the lock of all its state. To let it go on would let
// others act on half a change, so it never returns; guard keeps our calls from waiting
// for it, and what Pebble holds is lost until the process ends.
func (db *DB) abandon(err error) {
	db.fail(err)
	db.abandonOnce.Do(func() { close(db.abandoned) })
	select {}
}

// awaitStop waits for the goroutine of fail, if there is one.
func (db *DB) awaitStop() {
	db.fault.Lock()
	stopped := db.fault.stopped
	db.fault.Unlock()
	if stopped != nil {
		<-stopped
	}
}

// guard runs a call into Pebble that takes the lock of its state. Pebble panics, with
// locks held, when its write-ahead log cannot be written.
func (db *DB) guard(call func() error) error {
	done := make(chan error, 1)
	go func() {
		defer func() {
			if r := recover(); r != nil {
				db.abandon(panicError(r))
			}
		}()
		done <- call()
	}()
	select {
	case err := <-done:
		return err
	case <-db.abandoned:
		return db.check()
	}
}

// panicError is what a panic was about.
func panicError(r any) error {
	if err, ok := r.(error); ok {
		return err
	}
	return fmt.Errorf("%v", r)
}

// fail stops the store. The goroutine it starts ends when the calls in progress have
// left Pebble; Close waits for it.
func (db *DB) fail(err error) {
	db.fault.Lock()
	defer db.fault.Unlock()
	if db.fault.err != nil {
		return
	}
	db.fault.err = err
	close(db.failed)
	db.opts.logf("state store %s failed, what it holds on disk stays as it is: %v", db.dir, err)
	stopped := make(chan struct{})
	db.fault.stopped = stopped
	go func() {
		defer close(stopped)
		_ = db.closePebble() // what matters is the fault
	}()
}

// closePebble waits until no call is in Pebble, and closes it once.
func (db *DB) closePebble() error {
	db.open.Lock()
	p := db.open.pebble
	db.open.pebble = nil
	db.open.Unlock()
	if p == nil {
		return nil
	}
	return db.guard(p.Close)
}

// corruption marks an error of a read with ErrCorrupt if the files are to blame.
func corruption(err error) error {
	if pebble.IsCorruptionError(err) {
		return fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	return err
}

// ioFault tells an error of the file system from damage. A missing file is damage.
func ioFault(err error) bool {
	var errno syscall.Errno
	return errors.As(err, &errno) && !errors.Is(err, os.ErrNotExist)
}
