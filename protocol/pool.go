package protocol

import "sync" //nolint:depguard // the pool has no lock to forget: what is taken from it has one owner

// pool keeps values that are costly to make, for whoever needs one next. T is a
// pointer, so that keeping one allocates nothing.
type pool[T any] struct {
	kept sync.Pool
}

func newPool[T any](create func() T) *pool[T] {
	return &pool[T]{kept: sync.Pool{New: func() any { return create() }}}
}

func (p *pool[T]) get() T  { return p.kept.Get().(T) }
func (p *pool[T]) put(v T) { p.kept.Put(v) }
