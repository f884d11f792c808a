package commitlog

import "sync/atomic"

// vector is a slice that one goroutine at a time appends to while others read it
// without a lock. Elements are never changed. The zero value is empty.
type vector[T any] struct {
	items atomic.Pointer[[]T] // of length = capacity; the first n are set
	n     atomic.Int64
}

// set replaces the content, before anybody else knows the vector.
func (v *vector[T]) set(items []T) {
	items = items[:len(items):len(items)]
	v.items.Store(&items)
	v.n.Store(int64(len(items)))
}

func (v *vector[T]) append(x T) {
	n := int(v.n.Load())
	items := v.items.Load()
	if items == nil || n == len(*items) {
		grown := make([]T, max(8, 2*n))
		if items != nil {
			copy(grown, *items)
		}
		items = &grown
		v.items.Store(items)
	}
	(*items)[n] = x
	v.n.Store(int64(n + 1)) // after the element, so that readers of n see it
}

// view is the elements so far; the caller does not change them.
func (v *vector[T]) view() []T {
	n := v.n.Load()
	items := v.items.Load() // after n, so it holds at least n
	if items == nil {
		return nil
	}
	return (*items)[:n:n]
}
