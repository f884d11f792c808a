package commitlog

import (
	"errors"
	"sync"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// lateFaults is a file system on which an operation that writes is done, and then
// reported as failed.
type lateFaults struct {
	vfs.FS
	fault func() error
}

type lateFaultsFile struct {
	vfs.File
	fault func() error
}

func (d *lateFaults) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	if err != nil {
		return nil, err
	}
	return &lateFaultsFile{File: f, fault: d.fault}, nil
}

func (d *lateFaults) Rename(from, to string) error {
	return errors.Join(d.FS.Rename(from, to), d.fault())
}

func (d *lateFaults) Remove(name string) error {
	if _, err := d.Stat(name); err != nil {
		return err
	}
	return errors.Join(d.FS.Remove(name), d.fault())
}

func (f *lateFaultsFile) WriteAt(p []byte, at int64) (int, error) {
	n, err := f.File.WriteAt(p, at)
	return n, errors.Join(err, f.fault())
}

func (f *lateFaultsFile) Sync() error     { return errors.Join(f.File.Sync(), f.fault()) }
func (f *lateFaultsFile) SyncData() error { return errors.Join(f.File.SyncData(), f.fault()) }

// smallDisk is a file system with a bounded number of bytes to write. A write that
// does not fit is torn.
type smallDisk struct {
	vfs.FS
	mu   sync.Mutex
	left int64
}

func (d *smallDisk) OpenReadWrite(name string, c vfs.DiskWriteCategory, opts ...vfs.OpenOption) (vfs.File, error) {
	d.mu.Lock()
	left := d.left
	d.mu.Unlock()
	if _, err := d.Stat(name); err != nil && left <= 0 {
		return nil, syscall.ENOSPC
	}
	f, err := d.FS.OpenReadWrite(name, c, opts...)
	if err != nil {
		return nil, err
	}
	return &smallDiskFile{File: f, disk: d}, nil
}

type smallDiskFile struct {
	vfs.File
	disk *smallDisk
}

func (f *smallDiskFile) WriteAt(p []byte, at int64) (int, error) {
	f.disk.mu.Lock()
	defer f.disk.mu.Unlock()
	if n := f.disk.left; n < int64(len(p)) {
		f.disk.left = 0
		wrote, _ := f.File.WriteAt(p[:n], at)
		return wrote, syscall.ENOSPC
	}
	f.disk.left -= int64(len(p))
	return f.File.WriteAt(p, at)
}

func (d *smallDisk) free(n int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.left = n
}
