package statestore

import (
	"fmt"
	"os"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// readOnlyFS refuses to change anything but the file that a lock is on.
type readOnlyFS struct{ vfs.FS }

// ReadOnly returns fs without what changes files. An Opener that gets it opens what there
// is, for reading.
func ReadOnly(fs vfs.FS) vfs.FS { return readOnlyFS{fs} }

// IsReadOnly tells a file system of ReadOnly.
func IsReadOnly(fs vfs.FS) bool {
	_, ok := fs.(readOnlyFS)
	return ok
}

func refused(name string) error { return fmt.Errorf("%w: %s", ErrReadOnly, name) }

func (readOnlyFS) Create(name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refused(name)
}

func (readOnlyFS) OpenReadWrite(name string, _ vfs.DiskWriteCategory, _ ...vfs.OpenOption) (vfs.File, error) {
	return nil, refused(name)
}

func (readOnlyFS) ReuseForWrite(_, name string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, refused(name)
}

func (readOnlyFS) Link(_, name string) error                 { return refused(name) }
func (readOnlyFS) Remove(name string) error                  { return refused(name) }
func (readOnlyFS) RemoveAll(name string) error               { return refused(name) }
func (readOnlyFS) Rename(_, name string) error               { return refused(name) }
func (readOnlyFS) MkdirAll(name string, _ os.FileMode) error { return refused(name) }

func (fs readOnlyFS) Unwrap() vfs.FS { return fs.FS }
