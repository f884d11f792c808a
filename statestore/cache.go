package statestore

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"slices"
	"strconv"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
)

// Latest is the offset, and the lag, of a task that is owned: its stores are open, and
// nobody who is not the owner knows better how far it is. It is below every lag.
const Latest int64 = -2

// OffsetCache knows of each task that has stores on disk how far it is, without opening
// them. Its methods may be called from any goroutine.
type OffsetCache struct {
	mu    sync.RWMutex
	tasks map[int32]cachedTask
}

type cachedTask struct {
	offsets offsetMap
	owned   bool
}

// ScanOffsets opens all stores below root, which are root/<bucket>/<store>, for reading,
// at most parallel at once, asks each for its offsets and closes it. Everything is closed
// when it returns. A root that is not there has none. The error names every store that
// could not be read.
func ScanOffsets(ctx context.Context, fs vfs.FS, root string, open Opener, parallel int) (*OffsetCache, error) {
	dirs, err := listStores(fs, root)
	if err != nil {
		return nil, err
	}
	offsets, errs := make([][]Offset, len(dirs)), make([]error, len(dirs))
	next := make(chan int)
	var readers sync.WaitGroup
	for range min(max(parallel, 1), len(dirs)) {
		readers.Go(func() {
			for i := range next {
				offsets[i], errs[i] = scanStore(fs, dirs[i], open)
			}
		})
	}
	for i := 0; i < len(dirs) && ctx.Err() == nil; i++ {
		select {
		case next <- i:
		case <-ctx.Done():
		}
	}
	close(next)
	readers.Wait()
	if err := errors.Join(append(errs, ctx.Err())...); err != nil {
		return nil, fmt.Errorf("scan state stores below %s: %w", root, err)
	}
	c := &OffsetCache{tasks: map[int32]cachedTask{}}
	for i := 0; i < len(dirs); {
		from := i
		for ; i < len(dirs) && dirs[i].bucket == dirs[from].bucket; i++ {
		}
		c.Release(dirs[from].bucket, MinOffsets(offsets[from:i]...))
	}
	return c, nil
}

// storeDir is one store on disk.
type storeDir struct {
	bucket int32
	path   string
}

// listStores finds the stores below root, those of a task one after the other.
func listStores(fs vfs.FS, root string) ([]storeDir, error) {
	tasks, err := listDirs(fs, root)
	if err != nil {
		return nil, err
	}
	var dirs []storeDir
	for _, task := range tasks {
		bucket, err := strconv.ParseInt(task, 10, 32)
		if err != nil || bucket < 0 || strconv.FormatInt(bucket, 10) != task {
			continue // not a task's
		}
		stores, err := listDirs(fs, fs.PathJoin(root, task))
		if err != nil {
			return nil, err
		}
		for _, store := range stores {
			dirs = append(dirs, storeDir{int32(bucket), fs.PathJoin(root, task, store)})
		}
	}
	return dirs, nil
}

func listDirs(fs vfs.FS, dir string) ([]string, error) {
	names, err := fs.List(dir)
	if errors.Is(err, os.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("list state stores in %s: %w", dir, err)
	}
	slices.Sort(names)
	var dirs []string
	for _, name := range names {
		info, err := fs.Stat(fs.PathJoin(dir, name))
		if err != nil {
			return nil, fmt.Errorf("list state stores in %s: %w", dir, err)
		}
		if info.IsDir() {
			dirs = append(dirs, name)
		}
	}
	return dirs, nil
}

// scanStore reads the offsets of one store. What fails names it.
func scanStore(fs vfs.FS, dir storeDir, open Opener) (offsets []Offset, err error) {
	fs = ReadOnly(fs)
	s, err := open(fs, dir.path)
	if err != nil {
		return nil, fmt.Errorf("task %d, store %s: %w", dir.bucket, dir.path, err)
	}
	kept, err := Keep(s, fs, dir.path)
	if err == nil {
		offsets, err = kept.Offsets()
	}
	if err = errors.Join(err, s.Close()); err != nil {
		return nil, fmt.Errorf("task %d, store %s: %w", dir.bucket, dir.path, err)
	}
	return offsets, nil
}

// Tasks lists the buckets of the tasks that have stores here, in order.
func (c *OffsetCache) Tasks() []int32 {
	c.mu.RLock()
	defer c.mu.RUnlock()
	return slices.Sorted(maps.Keys(c.tasks))
}

// Task is how far all stores of a task are; Next is Latest while it is owned. ok is false
// for a task without stores here.
func (c *OffsetCache) Task(bucket int32) (offsets []Offset, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	task, ok := c.tasks[bucket]
	offsets = task.offsets.list()
	if task.owned {
		for i := range offsets {
			offsets[i].Next = Latest
		}
	}
	return offsets, ok
}

// Lag is how many offsets a task is behind the ends, which say of each of its sources the
// next offset that will be written. A source that it has no offset for, or not for all
// slots, counts from 0. It is Latest while the task is owned; ok is false for a task
// without stores here.
func (c *OffsetCache) Lag(bucket int32, ends []Offset) (lag int64, ok bool) {
	c.mu.RLock()
	defer c.mu.RUnlock()
	task, ok := c.tasks[bucket]
	if task.owned {
		return Latest, true
	}
	if !ok {
		return 0, false
	}
	for i := range ends {
		next, covered := task.offsets.committed(&ends[i].Source)
		if !covered {
			next = 0
		}
		lag += max(0, ends[i].Next-next)
	}
	return lag, true
}

// Own says that the stores of a task are open from now on.
func (c *OffsetCache) Own(bucket int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	task := c.tasks[bucket]
	task.owned = true
	c.tasks[bucket] = task
}

// Release says that the stores of a task have been closed, and how far all of them were:
// with several, MinOffsets of theirs.
func (c *OffsetCache) Release(bucket int32, offsets []Offset) {
	m := offsetMap{}
	for i := range offsets {
		m.set(&offsets[i], nil)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.tasks[bucket] = cachedTask{offsets: m}
}

// Forget says that the stores of a task are gone from disk.
func (c *OffsetCache) Forget(bucket int32) {
	c.mu.Lock()
	defer c.mu.Unlock()
	delete(c.tasks, bucket)
}
