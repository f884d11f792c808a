package commitlog

import (
	"errors"
	"fmt"
	"io/fs"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ReserveBytes is the space that a Reserve keeps.
const ReserveBytes = 256 << 10

// Reserve keeps some space of a disk in a file, for what makes room on it: a log says
// durably where it begins before it deletes anything, and on a full disk could not. Logs
// share it.
type Reserve struct {
	fs   vfs.FS
	path string

	mu   sync.Mutex
	held bool
}

// NewReserve is the reserve in the file of that path, which Keep makes. Its directory exists.
func NewReserve(files vfs.FS, path string) *Reserve { return &Reserve{fs: files, path: path} }

// Keep takes the space if it is not held, so that there is some the next time. It is to be
// called now and then; the error is that of the disk, which may still be full.
func (r *Reserve) Keep() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		return nil
	}
	if info, err := r.fs.Stat(r.path); err == nil && info.Size() == ReserveBytes {
		r.held = true // from the last start
		return nil
	}
	if err := r.write(); err != nil {
		_ = r.remove() // what there was room for is nobody's else
		return err
	}
	r.held = true
	return nil
}

func (r *Reserve) write() error {
	f, err := r.fs.OpenReadWrite(r.path, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("keep a reserve: %w", err)
	}
	_, err = f.WriteAt(make([]byte, ReserveBytes), 0)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("keep a reserve in %s: %w", r.path, err)
	}
	return nil
}

// give gives the space back to the disk, and tells whether there was any.
func (r *Reserve) give() bool {
	if r == nil {
		return false
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.held {
		return false
	}
	r.held = false
	return r.remove() == nil
}

func (r *Reserve) remove() error {
	if err := r.fs.Remove(r.path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("give up the reserve %s: %w", r.path, err)
	}
	return nil
}

// makingRoom writes what has to be written before something is deleted, on a full disk in the
// space of the reserve.
func (l *Log) makingRoom(write func() error) error {
	err := write()
	if isNoSpace(err) && !errors.Is(err, errSync) && l.opts.Reserve.give() {
		err = write()
	}
	return err
}
