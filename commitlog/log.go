package commitlog

import (
	"fmt"
	"sync"
	"sync/atomic"

	"go.uber.org/zap"
)

// Log is one partition. All methods may be called from any goroutine.
type Log struct {
	opts   Options
	disk   disk
	logger *zap.Logger

	// What reads work on. The bounds only grow and start <= stable <= high <= end; Bounds
	// tells how that is kept.
	segments                 atomic.Pointer[[]*segment] // by base offset; replaced, never changed
	epochs                   atomic.Pointer[epochHistory]
	start, stable, high, end atomic.Int64

	watchers watchers
	recovery Recovery
	shut     atomic.Bool // closed or removed: segments do not come back
	closeErr error       // of the first Close

	// Locks are taken in this order: cleaning, upkeep, mu, syncing.

	// cleaning is held during a compaction pass, whose swaps take upkeep too.
	cleaning sync.Mutex
	stopping atomic.Bool // a pass is to end early

	// upkeep is held by what changes segments other than the active one, and by Close.
	upkeep sync.Mutex

	mu appendState

	// syncing is held during fsyncs of batches, so that after one failed no other is tried.
	syncing struct {
		sync.Mutex
		failed error
	}
}

// appendState is what appends change, under its lock.
type appendState struct {
	sync.Mutex
	config    Config
	producers *producers
	state     logState // as on disk, but for an epoch that is not written yet
	epochNew  bool     // state has an epoch that the disk does not
	aside     bool     // a segment was set aside whose index is not replaced yet

	active    *segment // the last of segments; nil: the next append begins one
	createdMs int64    // when this process began to append to active
	opened    bool     // active's file is open for writing
	tornTail  bool     // a write to active failed: its file is longer than it

	// How far the fsyncs are.
	durable      int64 // offsets below are fsynced
	durableBytes int64 // of the active segment
	flush        flushState

	full   bool  // the disk had no room for the last append
	failed error // set once; the log is read-only
	closed bool
}

// Bounds is the offsets that delimit what a log serves.
type Bounds struct {
	Start         int64 // log start offset: records below were deleted
	LSO           int64 // last stable offset: transactions below are over
	HighWatermark int64 // records below are visible
	End           int64 // log end offset: of the next record
	LeaderEpoch   int32 // of the next record
}

// Bounds is a consistent view of the bounds: Start <= LSO <= HighWatermark <= End.
func (l *Log) Bounds() Bounds {
	// Each is stored before the ones left of it, and none ever falls.
	b := Bounds{Start: l.start.Load()}
	b.LSO = l.stable.Load()
	b.HighWatermark = l.high.Load()
	b.End = l.end.Load()
	b.LeaderEpoch = l.epochs.Load().latest()
	return b
}

// Name is the name that the log was opened with.
func (l *Log) Name() string { return l.opts.Name }

// Recovery is what Open found and did.
func (l *Log) Recovery() Recovery { return l.recovery }

// Err is why the log is read-only or closed; nil while it takes appends.
func (l *Log) Err() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.writableLocked()
}

// Config is the current configuration.
func (l *Log) Config() Config {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.mu.config
}

// SetConfig changes the configuration for what happens from now on.
func (l *Log) SetConfig(c Config) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.config = c
	l.publishLocked()
	if l.answersAfterSyncLocked() && l.mu.durable < l.end.Load() && l.writableLocked() == nil {
		l.joinFlushLocked() // what was visible when written is to be durable now
	}
}

// EndOfEpoch answers OffsetForLeaderEpoch: the largest known leader epoch at or below
// epoch, and the offset that ends it; -1 and -1 if epoch is newer than all.
func (l *Log) EndOfEpoch(epoch int32) (found int32, end int64) {
	return l.epochs.Load().endOf(epoch, l.end.Load())
}

// EpochAt is the leader epoch of the record at offset.
func (l *Log) EpochAt(offset int64) int32 { return l.epochs.Load().at(offset) }

// Size is the bytes of all batches of the log.
func (l *Log) Size() int64 {
	var n int64
	for _, s := range *l.segments.Load() {
		n += s.size.Load()
	}
	return n
}

func (l *Log) writableLocked() error {
	switch {
	case l.mu.closed:
		return fmt.Errorf("%s: %w", l.opts.Name, ErrClosed)
	case l.mu.failed != nil:
		return l.mu.failed
	}
	return nil
}

// failLocked makes the log read-only.
func (l *Log) failLocked(cause error) error {
	if l.mu.failed == nil {
		l.mu.failed = fmt.Errorf("%s: %w: %w", l.opts.Name, ErrReadOnly, cause)
		l.logger.Error("storage failed, the partition is read-only until a restart",
			zap.String("partition", l.opts.Name), zap.String("dir", l.opts.Dir), zap.Error(cause))
		l.watchers.notify()
	}
	return l.mu.failed
}

// publishLocked lets readers see what became visible.
func (l *Log) publishLocked() {
	high := l.end.Load()
	if l.answersAfterSyncLocked() {
		high = l.mu.durable
	}
	high = max(high, l.high.Load())
	stable := max(l.mu.producers.txns.stable(high), l.start.Load(), l.stable.Load())
	if high == l.high.Load() && stable == l.stable.Load() {
		return
	}
	l.high.Store(high)
	l.stable.Store(stable)
	l.watchers.notify()
}

// answersAfterSyncLocked tells whether a record is visible, and its append answered,
// only once it is fsynced.
func (l *Log) answersAfterSyncLocked() bool {
	return l.opts.Fsync && !l.mu.config.flushesItself()
}

func (l *Log) nowMs() int64 { return l.opts.Now().UnixMilli() }

// setSegmentsLocked publishes a new list of segments.
func (l *Log) setSegments(list []*segment) { l.segments.Store(&list) }

// Close stops the log cleanly: everything is made durable, and the next Open has
// nothing to recover. If it returns an error, the stop was not clean, and the next Open
// must have Options.Unclean. Further calls return what the first did.
func (l *Log) Close() error {
	unlock := l.stopUpkeep()
	defer unlock()
	if l.shut.Load() {
		return l.closeErr
	}
	err := l.stopAppends()
	l.watchers.notify()
	if err == nil {
		err = l.checkpointAll()
	}
	if closeErr := l.closeFiles(); err == nil {
		err = closeErr
	}
	if err != nil {
		l.closeErr = fmt.Errorf("close %s: %w", l.opts.Name, err)
	}
	return l.closeErr
}

// stopUpkeep ends a compaction that is running and keeps any other work on the
// segments away until unlock.
func (l *Log) stopUpkeep() (unlock func()) {
	l.stopping.Store(true)
	l.cleaning.Lock()
	l.upkeep.Lock()
	return func() {
		l.upkeep.Unlock()
		l.cleaning.Unlock()
	}
}

// stopAppends refuses appends from now on and waits until all before are durable.
func (l *Log) stopAppends() error {
	l.mu.Lock()
	l.mu.closed = true
	l.mu.flush.stopTimer()
	f := l.joinFlushLocked()
	l.mu.Unlock()
	<-f.done
	l.waitFlusher()
	return f.err
}

func (l *Log) closeFiles() error {
	l.shut.Store(true)
	var first error
	for _, s := range *l.segments.Load() {
		if err := s.leave(); err != nil && first == nil {
			first = err
		}
	}
	return first
}

// Remove closes the log and deletes its directory, durably.
func (l *Log) Remove() error {
	unlock := l.stopUpkeep()
	defer unlock()
	_ = l.stopAppends() // what was not durable needs not be
	l.watchers.notify()
	_ = l.closeFiles()
	if err := l.disk.fs.RemoveAll(l.opts.Dir); err != nil {
		return fmt.Errorf("remove %s: %w", l.opts.Name, err)
	}
	if err := l.disk.syncDirOf(l.disk.fs.PathDir(l.opts.Dir)); err != nil {
		return fmt.Errorf("remove %s: %w", l.opts.Name, err)
	}
	return nil
}
