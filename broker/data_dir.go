package broker

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"strings"
	"syscall"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/google/uuid"
	"github.com/lacunamq/lacuna/broker/metadata"
)

// dataFormat is the version of the data directory's layout. An older binary refuses a
// newer one.
const dataFormat = 1

// dataDir is the directory that holds everything durable:
//
//	lock              held by the process that uses the directory
//	meta.json         format version, cluster id
//	clean-stop        there only while no broker runs, after a clean stop
//	reserve           space for what has to be written before a full disk gets room
//	metadata/         the log of topics and settings
//	topics/ID/N/      the log of partition N of the topic with that id
//	state/            the Pebble store of the views
type dataDir struct {
	fs   vfs.FS
	path string
	lock io.Closer
	meta dataMeta
	// unclean says that the last broker here did not stop cleanly.
	unclean bool
}

// dataMeta is the content of meta.json.
type dataMeta struct {
	Format    int    `json:"format"`
	ClusterID string `json:"cluster_id"`
}

// ErrDataDirInUse is returned when another broker uses the data directory.
var ErrDataDirInUse = errors.New("the data directory is in use by another broker")

// openDataDir locks the directory, making it if need be, and removes the mark of a clean
// stop, so that whatever ends this process otherwise is known for a crash.
func openDataDir(files vfs.FS, path string) (*dataDir, error) {
	if err := makeDir(files, path); err != nil {
		return nil, fmt.Errorf("make data directory %s: %w", path, err)
	}
	lock, err := files.Lock(files.PathJoin(path, "lock"))
	switch {
	case isLockConflict(err):
		return nil, fmt.Errorf("%w: %s (%w)", ErrDataDirInUse, path, err)
	case err != nil:
		return nil, fmt.Errorf("lock data directory %s: %w", path, err)
	}
	d := &dataDir{fs: files, path: path, lock: lock}
	if err := d.load(); err != nil {
		lock.Close()
		return nil, err
	}
	return d, nil
}

// isLockConflict tells whether a lock is held by somebody else. An error of the lock's file
// names its path and is none.
func isLockConflict(err error) bool {
	if err == nil || diskFault(err) {
		return false
	}
	return errors.Is(err, syscall.EAGAIN) || errors.Is(err, syscall.EACCES) ||
		strings.Contains(err.Error(), "held by current process") // vfs.Default has no error to compare with
}

// makeDir makes a directory and those above it, durably: what is in a directory whose own
// name a crash takes away is lost with it. One that is there may be what a start before
// has left.
func makeDir(files vfs.FS, path string) error {
	parent := files.PathDir(path)
	if _, err := files.Stat(path); err == nil {
		err := syncDir(files, parent)
		if errors.Is(err, fs.ErrPermission) || errors.Is(err, syscall.EINVAL) {
			return nil // no directory that we can make anything in, or that changes at all
		}
		return err
	}
	if parent != path {
		if err := makeDir(files, parent); err != nil {
			return err
		}
	}
	if err := files.MkdirAll(path, 0o755); err != nil {
		return err
	}
	return syncDir(files, parent)
}

func syncDir(files vfs.FS, path string) error {
	dir, err := files.OpenDir(path)
	if err != nil {
		return fmt.Errorf("open %s: %w", path, err)
	}
	if err := errors.Join(dir.Sync(), dir.Close()); err != nil {
		return fmt.Errorf("sync %s: %w", path, err)
	}
	return nil
}

func (d *dataDir) load() error {
	known, err := d.readMeta()
	if err != nil {
		return err
	}
	if !known {
		// Kafka writes ids as 22 characters of base64.
		id := metadata.TopicID(uuid.New())
		d.meta = dataMeta{Format: dataFormat, ClusterID: id.String()}
		content, err := json.Marshal(d.meta)
		if err != nil {
			return err
		}
		return d.writeFile("meta.json", append(content, '\n'))
	}
	mark := d.join("clean-stop")
	if _, err := d.fs.Stat(mark); err != nil {
		d.unclean = true
		return nil
	}
	if err := d.fs.Remove(mark); err != nil {
		return fmt.Errorf("remove %s: %w", mark, err)
	}
	return d.sync()
}

// readMeta reads meta.json and tells whether there is one.
func (d *dataDir) readMeta() (bool, error) {
	name := d.join("meta.json")
	f, err := d.fs.Open(name)
	if err != nil {
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return false, fmt.Errorf("open %s: %w", name, err)
	}
	defer f.Close()
	content, err := io.ReadAll(io.LimitReader(f, 1<<16))
	if err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	if err := json.Unmarshal(content, &d.meta); err != nil {
		return false, fmt.Errorf("read %s: %w", name, err)
	}
	if d.meta.Format > dataFormat {
		return false, fmt.Errorf("data directory %s has format %d, this binary knows formats up to %d: use a newer lacuna", d.path, d.meta.Format, dataFormat)
	}
	return true, nil
}

// writeFile writes a file so that a crash leaves the old content, or none, or the new.
func (d *dataDir) writeFile(name string, content []byte) error {
	path, tmp := d.join(name), d.join(name+".tmp")
	f, err := d.fs.Create(tmp, vfs.WriteCategoryUnspecified)
	if err != nil {
		return fmt.Errorf("create %s: %w", tmp, err)
	}
	_, err = f.Write(content)
	err = errors.Join(err, f.Sync(), f.Close())
	if err == nil {
		err = d.fs.Rename(tmp, path)
	}
	if err == nil {
		err = d.sync()
	}
	if err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	return nil
}

// sync makes the entries of the directory durable, or of one below it.
func (d *dataDir) sync(elem ...string) error { return syncDir(d.fs, d.join(elem...)) }

func (d *dataDir) join(elem ...string) string {
	return d.fs.PathJoin(append([]string{d.path}, elem...)...)
}

// close releases the directory. After a clean stop it leaves the mark that says so.
func (d *dataDir) close(clean bool) error {
	var err error
	if clean {
		err = d.writeFile("clean-stop", nil)
	}
	return errors.Join(err, d.lock.Close())
}
