package filter

import (
	"container/list"
	"sync"
)

// indexCache bounds the memory of the slot indexes of all segments. It holds the
// segments, which hold their indexes.
type indexCache struct {
	max int64

	mu struct {
		sync.Mutex
		used    int64
		entries map[*segment]*list.Element
		recent  list.List // of *indexUse, the most recently used first
	}
}

type indexUse struct {
	segment *segment
	bytes   int64
}

func newIndexCache(maxBytes int64) *indexCache {
	c := &indexCache{max: maxBytes}
	c.mu.entries = make(map[*segment]*list.Element)
	return c
}

// use notes that the segment's indexes were used and how large they are now. It drops
// those that were not used for longest when there is too much, and saves them before
// if they are whole; the segment's own if they alone are too large. The caller holds no
// lock of a segment.
func (c *indexCache) use(s *segment, bytes int64) {
	for _, victim := range c.account(s, bytes) {
		if victim != s || bytes <= c.max {
			victim.partition.saveIndexOf(victim)
		}
		victim.evict(c.max)
	}
}

// account returns whose indexes must go.
func (c *indexCache) account(s *segment, bytes int64) (victims []*segment) {
	c.mu.Lock()
	defer c.mu.Unlock()
	element := c.mu.entries[s]
	if element == nil {
		element = c.mu.recent.PushFront(&indexUse{segment: s})
		c.mu.entries[s] = element
	}
	c.mu.recent.MoveToFront(element)
	u := element.Value.(*indexUse)
	c.mu.used += bytes - u.bytes
	u.bytes = bytes
	for c.mu.used > c.max {
		victims = append(victims, c.removeLocked(c.mu.recent.Back()))
	}
	return victims
}

// forget drops the accounts of segments that are gone.
func (c *indexCache) forget(gone map[*segment]bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for s := range gone {
		if element := c.mu.entries[s]; element != nil {
			c.removeLocked(element)
		}
	}
}

func (c *indexCache) bytes() int64 {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.mu.used
}

func (c *indexCache) removeLocked(element *list.Element) *segment {
	u := c.mu.recent.Remove(element).(*indexUse)
	delete(c.mu.entries, u.segment)
	c.mu.used -= u.bytes
	return u.segment
}
