package statestore

import (
	"sync"
	"time"

	"github.com/cockroachdb/pebble/v2"
)

// What a store of Pebble does unless told otherwise.
const (
	uncommittedMaxDefault = 64 << 20
	syncBytesDefault      = 4 << 20
	syncIntervalDefault   = time.Second
	cacheBytesDefault     = 32 << 20
)

// A process has many stores, most of them small: their memtables start small and end so.
const (
	kvMemTableBytes = 4 << 20
	kvMemTablesMax  = 256 // never reached, since Commit waits at unflushedMax
	kvUnflushedMax  = 16 << 20
	kvOpenFilesMax  = 1000 // of all stores of an Opener together
	kvCacheShards   = 2
)

// settings is what the options of an Opener set.
type settings struct {
	uncommittedMax int
	syncBytes      int
	syncInterval   time.Duration
	cacheBytes     int64
	logf           func(format string, args ...any)
}

// Option changes what an Opener opens.
type Option func(*settings)

func newSettings(options []Option) settings {
	s := settings{
		uncommittedMax: uncommittedMaxDefault,
		syncBytes:      syncBytesDefault,
		syncInterval:   syncIntervalDefault,
		cacheBytes:     cacheBytesDefault,
	}
	for _, o := range options {
		o(&s)
	}
	return s
}

// UncommittedMax bounds the window of uncommitted changes of each store, in bytes: keys,
// values, and 16 for each change. The default is 64 MiB.
func UncommittedMax(bytes int) Option { return func(s *settings) { s.uncommittedMax = bytes } }

// SyncEach makes each Commit wait until it survives a crash of the machine.
func SyncEach() Option { return func(s *settings) { s.syncBytes = 0 } }

// SyncWithin bounds what a crash of the machine may lose: the commits of the last
// interval and no more than that many bytes of them. The default is a second and 4 MiB.
// A crash of the process alone loses no commit, whatever is set here.
func SyncWithin(interval time.Duration, bytes int) Option {
	return func(s *settings) { s.syncInterval, s.syncBytes = interval, bytes }
}

// CacheBytes is the size of the block cache that the stores of one Opener share. The
// default is 32 MiB.
func CacheBytes(bytes int64) Option { return func(s *settings) { s.cacheBytes = bytes } }

// LogTo hears of faults of the disk and corrupt files, from any goroutine.
func LogTo(logf func(format string, args ...any)) Option {
	return func(s *settings) { s.logf = logf }
}

// shared is what the open stores of one Opener have in common. It is there while there
// are any, so that nothing runs on after the last was closed.
type shared struct {
	mu    sync.Mutex
	users int
	cache *pebble.Cache
	files *pebble.FileCache
}

func (c *shared) acquire(cacheBytes int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users == 0 {
		c.cache = pebble.NewCache(cacheBytes)
		c.files = pebble.NewFileCache(kvCacheShards, kvOpenFilesMax)
	}
	c.users++
}

// release waits for the file cache to end when there is no user left.
func (c *shared) release() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.users--; c.users == 0 {
		c.files.Unref()
		c.cache.Unref()
		c.files, c.cache = nil, nil
	}
}

// tune turns the settings of a broker's store of views into those of a task's store.
func (c *shared) tune(o *pebble.Options, readOnly bool) {
	o.DisableWAL = false
	// Later formats write into the log how much of it is synced, and take a log that ends
	// before that for damaged. Syncs that are put off would make it say too much.
	o.FormatMajorVersion = pebble.FormatColumnarBlocks
	o.MemTableSize = kvMemTableBytes
	o.MemTableStopWritesThreshold = kvMemTablesMax
	o.Cache, o.FileCache = c.cache, c.files
	o.CacheSize, o.MaxOpenFiles = 0, 0
	o.ReadOnly = readOnly
	o.DisableTableStats = readOnly // they let a wipe free its files at once
}
