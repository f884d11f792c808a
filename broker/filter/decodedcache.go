package filter

import (
	"sync"

	"github.com/lacunamq/lacuna/keyfilter"
)

// batchKey names a batch; a segment that is replaced gets another state, and with it
// other keys.
type batchKey struct {
	segment  *segment
	position int64
}

// decodedBatch is a batch in the cache. Those who acquired it may read it until they
// release it.
type decodedBatch struct {
	batch keyfilter.Decoded
	buf   []byte // the stored batch
	err   error  // why it could not be loaded

	loading sync.RWMutex // held by the one that loads it

	// Under the cache's lock.
	key        batchKey
	refs       int
	bytes      int64         // 0 until it is loaded
	prev, next *decodedBatch // in the list of recent ones; nil once it has been dropped
}

const (
	// decodedEntryBytes is about what an entry takes besides its buffers.
	decodedEntryBytes = 512

	// decodedReuseBytes is how large the buffers of a dropped batch may be to be used again.
	decodedReuseBytes = 256 << 10
)

// decodedCache shares decoded batches between fetches: the first that wants one loads
// it, those that come meanwhile wait for it. With too many bytes the least recently
// used are dropped; the memory of one in use is free only when it is released.
type decodedCache struct {
	max  int64
	free sync.Pool // of *decodedBatch

	mu struct {
		sync.Mutex
		entries map[batchKey]*decodedBatch
		recent  decodedBatch // the list's root: next is the most recently used
		bytes   int64
	}
}

func newDecodedCache(maxBytes int64) *decodedCache {
	c := &decodedCache{max: maxBytes}
	c.free.New = func() any { return new(decodedBatch) }
	c.mu.entries = make(map[batchKey]*decodedBatch)
	c.mu.recent.prev, c.mu.recent.next = &c.mu.recent, &c.mu.recent
	return c
}

// find acquires the batch if it is there, or on its way; else it is nil.
func (c *decodedCache) find(key batchKey) *decodedBatch {
	c.mu.Lock()
	e := c.mu.entries[key]
	if e == nil {
		c.mu.Unlock()
		return nil
	}
	e.refs++
	c.moveToFrontLocked(e)
	c.mu.Unlock()
	e.loading.RLock()
	defer e.loading.RUnlock()
	return e
}

// acquire is find, but when the batch is not there the caller has to load it, and
// everybody who wants it waits until it calls loaded.
func (c *decodedCache) acquire(key batchKey) (e *decodedBatch, load bool) {
	if e := c.find(key); e != nil {
		return e, false
	}
	e = c.free.Get().(*decodedBatch)
	e.loading.Lock()
	c.mu.Lock()
	if c.mu.entries[key] != nil { // somebody was faster
		c.mu.Unlock()
		e.loading.Unlock()
		c.free.Put(e)
		return c.acquire(key)
	}
	e.key, e.refs, e.bytes, e.err = key, 1, 0, nil
	c.mu.entries[key] = e
	c.linkLocked(e)
	c.mu.Unlock()
	return e, true
}

// loaded lets others see the batch that the caller was to load. One with an error is
// not kept, but those who waited see it.
func (c *decodedCache) loaded(e *decodedBatch) {
	e.loading.Unlock()
	c.mu.Lock()
	defer c.mu.Unlock()
	switch {
	case e.next == nil: // dropped meanwhile
	case e.err != nil:
		c.dropLocked(e)
	default:
		e.bytes = int64(e.batch.MemoryBytes()) + decodedEntryBytes
		c.mu.bytes += e.bytes
		c.shrinkLocked()
	}
}

// release ends the use of an acquired batch.
func (c *decodedCache) release(e *decodedBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	e.refs--
	c.recycleLocked(e)
}

// dropSegments drops what is there of the segments.
func (c *decodedCache) dropSegments(gone map[*segment]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for key, e := range c.mu.entries {
		if gone[key.segment] {
			c.dropLocked(e)
		}
	}
}

func (c *decodedCache) bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.bytes
}

func (c *decodedCache) shrinkLocked() {
	for e := c.mu.recent.prev; c.mu.bytes > c.max && e != &c.mu.recent; {
		before := e.prev
		if e.bytes > 0 { // not one that is being loaded
			c.dropLocked(e)
		}
		e = before
	}
}

func (c *decodedCache) dropLocked(e *decodedBatch) {
	delete(c.mu.entries, e.key)
	c.unlinkLocked(e)
	c.mu.bytes -= e.bytes
	c.recycleLocked(e)
}

// recycleLocked keeps the buffers of a batch that was dropped and that nobody uses.
func (c *decodedCache) recycleLocked(e *decodedBatch) {
	if e.next == nil && e.refs == 0 && e.batch.MemoryBytes() <= decodedReuseBytes {
		e.key = batchKey{}
		c.free.Put(e)
	}
}

func (c *decodedCache) moveToFrontLocked(e *decodedBatch) {
	if c.mu.recent.next != e {
		c.unlinkLocked(e)
		c.linkLocked(e)
	}
}

func (c *decodedCache) linkLocked(e *decodedBatch) {
	e.prev, e.next = &c.mu.recent, c.mu.recent.next
	e.prev.next, e.next.prev = e, e
}

func (c *decodedCache) unlinkLocked(e *decodedBatch) {
	e.prev.next, e.next.prev = e.next, e.prev
	e.prev, e.next = nil, nil
}
