package statestore

import (
	"fmt"

	"github.com/cockroachdb/pebble/v2"
	"github.com/cockroachdb/pebble/v2/vfs"
)

// The store of a broker is small and seldom read: views are read once at the start
// and written at checkpoints. These bounds keep it within about 2 MiB while idle.
const (
	memTableBytes = 1 << 20
	cacheBytes    = 256 << 10
	openFilesMax  = 64
)

// spaceReserveBytes is the free space below which nothing is written: Pebble takes a
// full disk for a fault that it cannot go on from, and a checkpoint can wait.
const spaceReserveBytes = 16 << 20

// Options configures a store. The zero value will do.
type Options struct {
	// Logf hears what an operator should know: a fault of the disk, a corrupt file.
	// It may be called from any goroutine. nil: nobody listens.
	Logf func(format string, args ...any)
}

func (o Options) logf(format string, args ...any) {
	if o.Logf != nil {
		o.Logf(format, args...)
	}
}

func (db *DB) pebbleOptions(fs vfs.FS) *pebble.Options {
	opts := &pebble.Options{
		FS:           fs,
		DisableWAL:   true,
		MemTableSize: memTableBytes,
		// Pebble's own stalls cannot be left when the disk fails; Commit bounds what is
		// not flushed yet instead.
		MemTableStopWritesThreshold: 1 << 20,
		L0StopWritesThreshold:       1 << 20,
		CacheSize:                   cacheBytes,
		MaxOpenFiles:                openFilesMax,
		DisableTableStats:           true,
		CompactionConcurrencyRange:  func() (int, int) { return 1, 1 },
		FormatMajorVersion:          pebble.FormatNewest,
		Logger:                      faultLogger{db},
		EventListener: &pebble.EventListener{
			BackgroundError: db.backgroundError,
			DataCorruption:  func(info pebble.DataCorruptionInfo) { db.opts.logf("state store %s: %s", db.dir, info) },
		},
	}
	// With one compaction at a time there is nothing to grant later, so the default
	// scheduler's timer, which wakes an idle broker ten times a second, has no work.
	opts.Experimental.CompactionScheduler = pebble.NewConcurrencyLimitSchedulerWithNoPeriodicGrantingForTest()
	opts.ApplyCompressionSettings(func() pebble.DBCompressionSettings { return pebble.DBCompressionFastest })
	return opts
}

// faultLogger keeps Pebble's chatter away. Pebble calls Fatalf for faults that it
// cannot go on from, above all of its MANIFEST, and would end the process; here the
// store fails alone, since a broker can do without it until the next start.
type faultLogger struct{ db *DB }

func (faultLogger) Infof(string, ...interface{}) {}

func (l faultLogger) Errorf(format string, args ...interface{}) { l.db.opts.logf(format, args...) }

func (l faultLogger) Fatalf(format string, args ...interface{}) {
	l.db.abandon(fatal{fmt.Sprintf(format, args...), causes(args)})
}

// fatal is an error that Pebble only told its logger. Its causes tell a fault of the disk
// from damage.
type fatal struct {
	message string
	causes  []error
}

func (f fatal) Error() string   { return f.message }
func (f fatal) Unwrap() []error { return f.causes }

func causes(args []any) []error {
	var errs []error
	for _, a := range args {
		if err, ok := a.(error); ok {
			errs = append(errs, err)
		}
	}
	return errs
}
