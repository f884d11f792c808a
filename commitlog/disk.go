package commitlog

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"sync/atomic"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// disk is a log's directory: the file operations of vfs with the syncs that make them
// last. Names are relative to it.
type disk struct {
	fs    vfs.FS
	dir   string
	syncs *SyncLimiter

	// parentDirty tells that the directory's own name may not be durable. It is before the
	// state file is written, so a directory with one is.
	parentDirty atomic.Bool
}

const tmpSuffix = ".tmp"

func (d *disk) path(name string) string { return d.fs.PathJoin(d.dir, name) }

// open makes the directory if needed and lists it.
func (d *disk) open() ([]string, error) {
	names, err := d.fs.List(d.dir)
	if err == nil {
		return names, nil
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("list %s: %w", d.dir, err)
	}
	if err := d.fs.MkdirAll(d.dir, 0o755); err != nil {
		return nil, fmt.Errorf("make %s: %w", d.dir, err)
	}
	return nil, nil
}

// syncDir makes creations, renames and removals in the directory last.
func (d *disk) syncDir() error { return d.syncDirOf(d.dir) }

// syncParent makes the name of the directory itself last.
func (d *disk) syncParent() error {
	if !d.parentDirty.Load() {
		return nil
	}
	if err := d.syncDirOf(d.fs.PathDir(d.dir)); err != nil {
		return err
	}
	d.parentDirty.Store(false)
	return nil
}

func (d *disk) syncDirOf(dir string) error {
	f, err := d.fs.OpenDir(dir)
	if err != nil {
		return fmt.Errorf("open directory %s: %w", dir, err)
	}
	err = d.syncs.run(f.Sync)
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		return fmt.Errorf("%w: directory %s: %w", errSync, dir, err)
	}
	return nil
}

// create makes an empty file for WriteAt, whatever had that name before.
func (d *disk) create(name string) (vfs.File, error) {
	if err := d.remove(name); err != nil {
		return nil, err
	}
	f, err := d.fs.OpenReadWrite(d.path(name), vfs.WriteCategoryUnspecified)
	if err != nil {
		return nil, fmt.Errorf("create %s: %w", d.path(name), err)
	}
	return f, nil
}

// replace puts data in place of the named file at once: it holds the old bytes or the
// new ones, at every moment and after a crash. Which of them is certain only after
// syncDir.
func (d *disk) replace(name string, data []byte) error {
	tmp := name + tmpSuffix
	f, err := d.create(tmp)
	if err != nil {
		return err
	}
	_, err = f.WriteAt(data, 0)
	if err == nil {
		err = d.syncs.run(f.Sync)
	}
	if closeErr := f.Close(); err == nil {
		err = closeErr
	}
	if err != nil {
		_ = d.remove(tmp) // it may hold the space that is missing
		return fmt.Errorf("write %s: %w", d.path(tmp), err)
	}
	return d.rename(tmp, name)
}

func (d *disk) rename(from, to string) error {
	if err := d.fs.Rename(d.path(from), d.path(to)); err != nil {
		return fmt.Errorf("rename %s to %s: %w", d.path(from), to, err)
	}
	return nil
}

// remove removes the named file if it is there.
func (d *disk) remove(name string) error {
	if err := d.fs.Remove(d.path(name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("remove %s: %w", d.path(name), err)
	}
	return nil
}

// read is the whole content of the named file, of at most limit bytes; fs.ErrNotExist
// if there is none.
func (d *disk) read(name string, limit int64) ([]byte, error) {
	f, err := d.fs.Open(d.path(name))
	if err != nil {
		return nil, fmt.Errorf("open %s: %w", d.path(name), err)
	}
	defer f.Close()
	size, err := fileSize(f)
	if err != nil {
		return nil, err
	}
	if size > limit {
		return nil, fmt.Errorf("%w: %s has %d bytes, at most %d are expected", errCorruptFile, d.path(name), size, limit)
	}
	data := make([]byte, size)
	if err := readFull(f, data, 0); err != nil {
		return nil, fmt.Errorf("read %s: %w", d.path(name), err)
	}
	return data, nil
}

// syncData makes what was written to f last.
func (d *disk) syncData(f vfs.File, name string) error {
	if err := d.syncs.run(f.SyncData); err != nil {
		return fmt.Errorf("%w: %s: %w", errSync, d.path(name), err)
	}
	return nil
}

func fileSize(f vfs.File) (int64, error) {
	info, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return info.Size(), nil
}

// readFull fills p from pos on; io.ErrUnexpectedEOF if the file ends before.
func readFull(f vfs.File, p []byte, pos int64) error {
	n, err := f.ReadAt(p, pos)
	if n == len(p) {
		return nil
	}
	if err == nil || errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
