package commitlog

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// ReserveBytes is the space that a Reserve keeps.
const ReserveBytes = 256 << 10

// Reserve keeps some space of a disk in a file, for what makes room on it: a log says
// durably where it begins before it deletes anything, and on a full disk could not. Logs
// share it.
type Reserve struct {
	disk disk
	name string

	mu   sync.Mutex
	held bool
}

// NewReserve is the reserve in the file of that path, which Keep makes. Its directory exists.
func NewReserve(files vfs.FS, path string) *Reserve {
	return &Reserve{disk: disk{fs: files, dir: files.PathDir(path)}, name: files.PathBase(path)}
}

// Keep takes the space if it is not held, so that there is some the next time. It is to be
// called now and then; the error is that of the disk, which may still be full.
func (r *Reserve) Keep() error {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.held {
		return nil
	}
	if info, err := r.disk.fs.Stat(r.disk.path(r.name)); err == nil && info.Size() == ReserveBytes {
		r.held = true // from the last start
		return nil
	}
	if err := r.write(); err != nil {
		_ = r.disk.remove(r.name) // what there was room for is nobody's else
		return err
	}
	r.held = true
	return nil
}

func (r *Reserve) write() error {
	f, err := r.disk.create(r.name)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(make([]byte, ReserveBytes), 0)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", r.disk.path(r.name), err)
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
	return r.disk.remove(r.name) == nil
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
