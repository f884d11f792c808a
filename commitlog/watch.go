package commitlog

import (
	"sync"
	"sync/atomic"
)

// watchers is who wants to know of changes.
type watchers struct {
	count atomic.Int32 // so that nobody watching costs one load
	mu    struct {
		sync.Mutex
		next  uint64
		chans map[uint64]chan<- struct{}
	}
}

// Watch sends on ch, if it has room, after each change of the high watermark, the last
// stable offset or the log start, and when the log fails or is closed. With a channel
// of capacity 1 no change is missed: one that comes while a signal waits is seen by
// whoever takes that signal and then looks at Bounds.
func (l *Log) Watch(ch chan<- struct{}) (cancel func()) {
	w := &l.watchers
	w.mu.Lock()
	defer w.mu.Unlock()
	id := w.mu.next
	w.mu.next++
	if w.mu.chans == nil {
		w.mu.chans = make(map[uint64]chan<- struct{})
	}
	w.mu.chans[id] = ch
	w.count.Add(1)
	return func() { w.cancel(id) }
}

func (w *watchers) cancel(id uint64) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if _, ok := w.mu.chans[id]; ok {
		delete(w.mu.chans, id)
		w.count.Add(-1)
	}
}

func (w *watchers) notify() {
	if w.count.Load() == 0 {
		return
	}
	w.mu.Lock()
	defer w.mu.Unlock()
	for _, ch := range w.mu.chans {
		select {
		case ch <- struct{}{}:
		default:
		}
	}
}
