package fsck

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// errReadOnly is what a write to a file of the data directory ends with.
var errReadOnly = errors.New("fsck does not change the data directory")

// overlay is a file system that reads from another one and writes to memory. What opens a
// log repairs it, and a check must not: over an overlay it may do as it likes, and nothing
// of it is left.
//
// Files of the base cannot be written into, only replaced, removed and renamed.
type overlay struct {
	vfs.FS // the base, for paths and disk usage
	top    *vfs.MemFS

	mu     sync.Mutex
	hidden map[string]bool   // removed or replaced files of the base
	moved  map[string]string // renamed files of the base, by their new names
}

func newOverlay(base vfs.FS) *overlay {
	return &overlay{FS: base, top: vfs.NewMem(), hidden: make(map[string]bool), moved: make(map[string]string)}
}

// below is the file of the base that name stands for, "" if there is none.
func (o *overlay) below(name string) string {
	o.mu.Lock()
	defer o.mu.Unlock()
	if base := o.moved[name]; base != "" {
		return base
	}
	if o.hidden[name] {
		return ""
	}
	return name
}

// above tells whether name was written since.
func (o *overlay) above(name string) bool {
	_, err := o.top.Stat(name)
	return err == nil
}

func notExist(op, name string) error { return &fs.PathError{Op: op, Path: name, Err: fs.ErrNotExist} }

// Open opens a file for reading.
func (o *overlay) Open(name string, opts ...vfs.OpenOption) (vfs.File, error) {
	if o.above(name) {
		return o.top.Open(name, opts...)
	}
	base := o.below(name)
	if base == "" {
		return nil, notExist("open", name)
	}
	return o.FS.Open(base, opts...)
}

// OpenReadWrite opens a file of the base for reading only, whose writes fail.
func (o *overlay) OpenReadWrite(name string, category vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	if base := o.below(name); base != "" && !o.above(name) {
		f, err := o.FS.Open(base, opts...)
		if !errors.Is(err, fs.ErrNotExist) {
			return readOnly{f}, err
		}
	}
	if err := o.makeParent(name); err != nil {
		return nil, err
	}
	return o.top.OpenReadWrite(name, category, opts...)
}

// readOnly is a file that cannot be written.
type readOnly struct{ vfs.File }

func (readOnly) Write([]byte) (int, error)             { return 0, errReadOnly }
func (readOnly) WriteAt([]byte, int64) (int, error)    { return 0, errReadOnly }
func (readOnly) Preallocate(int64, int64) error        { return nil }
func (readOnly) Sync() error                           { return nil }
func (readOnly) SyncTo(int64) (fullSync bool, _ error) { return false, nil }
func (readOnly) SyncData() error                       { return nil }

// Create creates a file in memory.
func (o *overlay) Create(name string, category vfs.DiskWriteCategory) (vfs.File, error) {
	if err := o.makeParent(name); err != nil {
		return nil, err
	}
	o.hide(name)
	return o.top.Create(name, category)
}

func (o *overlay) makeParent(name string) error { return o.top.MkdirAll(o.PathDir(name), 0o755) }

func (o *overlay) hide(name string) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hidden[name] = true
	delete(o.moved, name)
}

// Remove removes a file.
func (o *overlay) Remove(name string) error {
	if _, err := o.Stat(name); err != nil {
		return err
	}
	o.hide(name)
	if o.above(name) {
		return o.top.Remove(name)
	}
	return nil
}

// Rename renames a file.
func (o *overlay) Rename(oldname, newname string) error {
	if o.above(oldname) {
		if err := o.makeParent(newname); err != nil {
			return err
		}
		o.hide(oldname)
		o.hide(newname)
		return o.top.Rename(oldname, newname)
	}
	base := o.below(oldname)
	if _, err := o.FS.Stat(base); base == "" || err != nil {
		return notExist("rename", oldname)
	}
	if o.above(newname) {
		if err := o.top.Remove(newname); err != nil {
			return err
		}
	}
	o.hide(oldname)
	o.mu.Lock()
	defer o.mu.Unlock()
	o.hidden[newname] = true
	o.moved[newname] = base
	return nil
}

// Stat describes a file.
func (o *overlay) Stat(name string) (vfs.FileInfo, error) {
	if o.above(name) {
		info, err := o.top.Stat(name)
		if err == nil && info.IsDir() && o.below(name) != "" {
			if base, baseErr := o.FS.Stat(name); baseErr == nil {
				return base, nil
			}
		}
		return info, err
	}
	base := o.below(name)
	if base == "" {
		return nil, notExist("stat", name)
	}
	return o.FS.Stat(base)
}

// List lists a directory.
func (o *overlay) List(dir string) ([]string, error) {
	names, err := o.top.List(dir)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return nil, err
	}
	below, baseErr := o.FS.List(dir)
	if err != nil && baseErr != nil {
		return nil, baseErr
	}
	o.mu.Lock()
	defer o.mu.Unlock()
	for _, name := range below {
		if !o.hidden[o.PathJoin(dir, name)] {
			names = append(names, name)
		}
	}
	for path := range o.moved {
		if o.PathDir(path) == strings.TrimRight(dir, "/") {
			names = append(names, o.PathBase(path))
		}
	}
	slices.Sort(names)
	return slices.Compact(names), nil
}

// MkdirAll makes a directory in memory.
func (o *overlay) MkdirAll(dir string, perm os.FileMode) error { return o.top.MkdirAll(dir, perm) }

// OpenDir opens a directory, to be synced.
func (o *overlay) OpenDir(name string) (vfs.File, error) {
	if err := o.top.MkdirAll(name, 0o755); err != nil {
		return nil, err
	}
	return o.top.OpenDir(name)
}

// RemoveAll is not needed to read a log.
func (o *overlay) RemoveAll(name string) error { return fmt.Errorf("remove %s: %w", name, errReadOnly) }

// Link is not needed to read a log.
func (o *overlay) Link(oldname, _ string) error {
	return fmt.Errorf("link %s: %w", oldname, errReadOnly)
}

// ReuseForWrite is not needed to read a log.
func (o *overlay) ReuseForWrite(oldname, _ string, _ vfs.DiskWriteCategory) (vfs.File, error) {
	return nil, fmt.Errorf("reuse %s: %w", oldname, errReadOnly)
}

// Lock locks nothing: whoever checks holds the directory's lock.
func (o *overlay) Lock(string) (io.Closer, error) { return io.NopCloser(nil), nil }

// Unwrap gives the base.
func (o *overlay) Unwrap() vfs.FS { return o.FS }
