// Package journaltest gives tests of coordinators an internal topic in memory.
package journaltest

import (
	"errors"
	"fmt"
	"sync"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/statestore"
)

// Topic is an internal topic: compacted logs, and a store with their views. Tests may look
// into its fields while nothing else runs.
type Topic struct {
	// Name begins the names of the logs' directories.
	Name string
	// Disk holds all of it. The logs are on LogFS, which is Disk or has something before it.
	Disk  *vfs.MemFS
	LogFS vfs.FS
	// Age is raised when the topic is made anew: the views are of another one then.
	Age int

	DB *statestore.DB

	mu     sync.Mutex
	Logs   map[int32]*commitlog.Log // those that are open, by partition
	Opened map[int32]int            // how often a partition was asked for
}

// New makes a topic. Start opens it.
func New(name string) *Topic {
	disk := vfs.NewMem()
	return &Topic{Name: name, Disk: disk, LogFS: disk}
}

// Start opens the store. Logs are opened when they are asked for.
func (t *Topic) Start() (err error) {
	t.Logs, t.Opened = make(map[int32]*commitlog.Log), make(map[int32]int)
	t.DB, err = statestore.Open(t.Disk, "state", statestore.Options{})
	return err
}

// CloseLogs closes the logs; the store, which is closed last, is closed by its own Close.
func (t *Topic) CloseLogs() error {
	var errs []error
	for _, l := range t.Logs {
		errs = append(errs, l.Close())
	}
	return errors.Join(errs...)
}

// Dir is the directory of a partition's log.
func (t *Topic) Dir(partition int32) string { return fmt.Sprintf("%s-%d", t.Name, partition) }

// Written tells whether a partition has a log.
func (t *Topic) Written(partition int32) bool {
	_, err := t.Disk.Stat(t.Dir(partition))
	return err == nil
}

// Open gives a partition, with its log opened once.
func (t *Topic) Open(partition int32) (journal.Partition, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.Opened[partition]++
	dir := t.Dir(partition)
	log := t.Logs[partition]
	if log == nil {
		config := commitlog.DefaultConfig()
		config.Delete, config.Compact = false, true
		var err error
		log, err = commitlog.Open(commitlog.Options{FS: t.LogFS, Dir: dir, Name: dir, Fsync: true, Config: config})
		if err != nil {
			return journal.Partition{}, err
		}
		t.Logs[partition] = log
	}
	return journal.Partition{Log: log, View: t.DB.View(dir), Source: fmt.Sprintf("%s/%d", dir, t.Age)}, nil
}
