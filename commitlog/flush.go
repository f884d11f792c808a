package commitlog

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"sync"
	"time"
)

// Flush is one group commit: an fsync that many appends share.
type Flush struct {
	done chan struct{}
	err  error
}

// Done is closed when the group commit has ended, well or not.
func (f *Flush) Done() <-chan struct{} { return f.done }

// Err tells, once Done is closed, how it ended: nil, or an error that wraps
// ErrReadOnly.
func (f *Flush) Err() error { return f.err }

// flushState is the appender's side of group commit. A goroutine, the flusher, lives
// only while there is something to fsync.
type flushState struct {
	running sync.WaitGroup // the flusher
	started bool           // ... is there

	pending *Flush // the next fsync, joined by appends
	current *Flush // the running one
	upTo    int64  // ... covers offsets below

	timer    *time.Timer
	armed    bool
	messages int64 // appended since the last fsync began

	rolled   []rolledSegment // sealed, but not on disk yet
	rollNow  bool            // ... and the flusher has not seen them all
	dirDirty bool            // a segment's name is not durable yet

	checkpointed int64 // bytes of the active segment that its index file vouches for
}

// rolledSegment is a segment that is sealed by the flusher, as its topic does not wait
// for fsyncs.
type rolledSegment struct {
	segment *segment
	image   *indexImage
}

// flushAfterAppendLocked decides when an append of that many records becomes durable.
// It returns what the append's answer waits for, if it does.
func (l *Log) flushAfterAppendLocked(noWait bool, messages int64) *Flush {
	f, c := &l.mu.flush, &l.mu.config
	switch {
	case !l.opts.Fsync:
	case c.flushesItself():
		f.messages += messages
		if c.FlushMessages >= 0 && f.messages >= c.FlushMessages {
			l.joinFlushLocked()
		} else if c.FlushMs >= 0 {
			l.flushWithinLocked(time.Duration(c.FlushMs) * time.Millisecond)
		}
	case noWait:
		l.flushWithinLocked(l.opts.FlushInterval)
	default:
		return l.joinFlushLocked()
	}
	return nil
}

// flushCoveringLocked is the group commit that makes offsets below next durable; nil if
// they are, or nobody waits for that here.
func (l *Log) flushCoveringLocked(next int64) *Flush {
	f := &l.mu.flush
	switch {
	case !l.answersAfterSyncLocked() || next <= l.mu.durable:
		return nil
	case f.current != nil && next <= f.upTo:
		return f.current
	}
	return l.joinFlushLocked()
}

// joinFlushLocked is the next group commit; what is appended by now is in it.
func (l *Log) joinFlushLocked() *Flush {
	f := &l.mu.flush
	if f.pending == nil {
		f.pending = &Flush{done: make(chan struct{})}
	}
	l.startFlusherLocked()
	return f.pending
}

func (l *Log) startFlusherLocked() {
	f := &l.mu.flush
	if f.started {
		return
	}
	f.started = true
	f.running.Add(1)
	go l.flusher()
}

// flushWithinLocked has all that is appended by now fsynced within d.
func (l *Log) flushWithinLocked(d time.Duration) {
	f := &l.mu.flush
	if f.pending != nil || f.armed {
		return
	}
	f.armed = true
	if f.timer == nil {
		f.timer = time.AfterFunc(d, l.flushDue)
		return
	}
	f.timer.Reset(d)
}

func (l *Log) flushDue() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.mu.flush.armed = false
	if !l.mu.closed && l.mu.durable < l.end.Load() {
		l.joinFlushLocked() // after a failed write too: what came before it was accepted
	}
}

func (f *flushState) stopTimer() {
	if f.timer != nil {
		f.timer.Stop()
	}
	f.armed = false
}

// Flush makes all that is appended durable, whatever the configuration says, and waits
// for it.
func (l *Log) Flush(ctx context.Context) error {
	l.mu.Lock()
	if err := l.writableLocked(); err != nil {
		l.mu.Unlock()
		return err
	}
	if l.mu.durable == l.end.Load() && len(l.mu.flush.rolled) == 0 {
		l.mu.Unlock()
		return nil
	}
	f := l.joinFlushLocked()
	l.mu.Unlock()
	select {
	case <-f.done:
		return f.err
	case <-ctx.Done():
		return fmt.Errorf("flush %s: %w", l.opts.Name, ctx.Err())
	}
}

// flushWork is one round of the flusher.
type flushWork struct {
	flush  *Flush // nil: only segments to seal
	rolled []rolledSegment
	dir    bool

	active     *segment // nil: nothing to fsync in it
	bytes, end int64
	checkpoint *indexImage // of what is durable after the round; nil: none due
}

// flusher runs rounds until there is nothing to do.
func (l *Log) flusher() {
	defer l.mu.flush.running.Done()
	runtime.Gosched() // appends that are about to be made share the first fsync, as others do the later ones
	for {
		w, ok := l.nextFlush()
		if !ok {
			return
		}
		err := l.runFlush(&w)
		l.endFlush(&w, err)
		if err == nil && w.checkpoint != nil {
			l.checkpoint(w.active, w.checkpoint)
		}
	}
}

func (l *Log) nextFlush() (flushWork, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.mu.flush
	if f.pending == nil && !f.rollNow {
		f.started = false
		return flushWork{}, false
	}
	w := flushWork{flush: f.pending, rolled: f.rolled, dir: f.dirDirty, end: l.end.Load()}
	f.pending, f.rolled, f.rollNow, f.dirDirty = nil, nil, false, false
	if w.flush == nil {
		return w, true
	}
	f.current, f.upTo, f.messages = w.flush, w.end, 0
	f.stopTimer() // what it was set for is in this round
	if s := l.mu.active; s != nil && l.mu.durable < w.end {
		w.active, w.bytes = s, s.size.Load()
		if w.bytes-f.checkpointed >= l.opts.checkpointBytes {
			w.checkpoint, _ = l.imageLocked(s, false) // an index that cannot be read is found elsewhere
		}
	}
	return w, true
}

// runFlush does the fsyncs of a round, oldest bytes first, so that what is durable is
// always a prefix of the log.
func (l *Log) runFlush(w *flushWork) error {
	l.syncing.Lock()
	defer l.syncing.Unlock()
	if l.syncing.failed != nil {
		return l.syncing.failed
	}
	err := l.sealRolled(w)
	if err == nil && w.dir {
		err = l.disk.syncDir()
	}
	if err == nil && w.active != nil {
		err = l.syncSegment(w.active)
	}
	l.syncing.failed = err
	return err
}

// sealRolled makes the rolled segments durable. Those whose index found no space stay
// in w, their data is durable all the same.
func (l *Log) sealRolled(w *flushWork) error {
	if len(w.rolled) == 0 {
		return nil
	}
	for _, r := range w.rolled {
		if err := l.syncSegment(r.segment); err != nil {
			return err
		}
	}
	// Their names, too, are durable before an index says that they are whole.
	if err := l.disk.syncDir(); err != nil {
		return err
	}
	var left []rolledSegment
	for _, r := range w.rolled {
		err := l.writeIndex(r.segment, r.image)
		switch {
		case isNoSpace(err):
			left = append(left, r)
		case err != nil:
			return err
		default:
			r.segment.indexed.Store(true)
			w.dir = true
		}
	}
	w.rolled = left
	return nil
}

// syncSegment makes what was written to the segment durable.
func (l *Log) syncSegment(s *segment) error {
	if s.indexed.Load() {
		return nil // it was sealed meanwhile, and is
	}
	f, err := s.share()
	if errors.Is(err, ErrSegmentGone) {
		return nil // only what is sealed, or was empty, goes
	}
	if err != nil {
		return err
	}
	defer s.handle.RUnlock() // nobody closes the file meanwhile
	return l.disk.syncData(f, s.name(logExt))
}

// endFlush tells everybody how a round ended.
func (l *Log) endFlush(w *flushWork, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	f := &l.mu.flush
	if err != nil {
		l.syncFailedLocked(w, err)
		return
	}
	f.rolled = append(w.rolled, f.rolled...)
	if w.flush == nil {
		return
	}
	if w.end > l.mu.durable {
		l.mu.durable = w.end
		l.mu.durableBytes = w.bytes
	}
	f.current = nil
	l.publishLocked()
	close(w.flush.done)
}

// syncFailedLocked ends the log's writing, and every group commit with an error.
func (l *Log) syncFailedLocked(w *flushWork, cause error) {
	f := &l.mu.flush
	err := l.failLocked(cause)
	l.suspectLocked(err)
	for _, g := range []*Flush{w.flush, f.pending} {
		if g != nil {
			g.err = err
			close(g.done)
		}
	}
	f.pending, f.current, f.rolled = nil, nil, nil
}

func (l *Log) waitFlusher() { l.mu.flush.running.Wait() }
