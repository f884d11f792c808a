package client

import (
	"context"
	"slices"
	"sync"
)

// memberIdentity is who commits: a member of a group in one of its generations.
type memberIdentity struct {
	member     string
	instance   *string
	generation int32
}

// membership is the identity of a member that keeps what it holds while its group goes on
// from one generation to the next.
type membership struct {
	mu struct {
		sync.Mutex
		now memberIdentity
		// entered is closed when the next generation has begun for the member; nil while it
		// is in one.
		entered chan struct{}
		ended   bool // the group has the member no more
	}
}

func newMembership(now memberIdentity) *membership {
	m := new(membership)
	m.mu.now = now
	return m
}

// identity is who commits now; nil is nobody of a group, as Kafka's tools are.
func (m *membership) identity() *memberIdentity {
	if m == nil {
		return nil
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	now := m.mu.now
	return &now
}

// precedes tells whether the member was in its group all the time up to the generation of
// now. If it was not, others may have had what it held.
func (m *membership) precedes(now *memberIdentity) bool {
	before := m.identity()
	if before.member != now.member {
		return false // it was removed, and came back as somebody else
	}
	// A static member stays although it misses a generation. Others come in every one, also
	// if they are in two before they are assigned anything.
	return now.instance == nil || now.generation <= before.generation+1
}

// leave notes that the member is about to join the next generation.
func (m *membership) leave() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.mu.entered == nil && !m.mu.ended {
		m.mu.entered = make(chan struct{})
	}
}

// enter notes that the next generation has begun.
func (m *membership) enter(now memberIdentity) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.now = now
	m.arrivedLocked()
}

// end notes that the group has the member no more, so it goes on to no other generation.
func (m *membership) end() {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.mu.ended = true
	m.arrivedLocked()
}

func (m *membership) hasEnded() bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.mu.ended
}

func (m *membership) arrivedLocked() {
	if m.mu.entered != nil {
		close(m.mu.entered)
		m.mu.entered = nil
	}
}

// movedOn tells whether the member is in another generation than before. If it is between
// two it waits for the next, or for the end of ctx.
func (m *membership) movedOn(ctx context.Context, before *memberIdentity) bool {
	m.mu.Lock()
	entered := m.mu.entered
	m.mu.Unlock()
	if entered != nil {
		select {
		case <-entered:
		case <-ctx.Done():
			return false
		}
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	return !m.mu.ended && m.mu.now.generation != before.generation
}

// commitAs commits as the member for whom the Reader reads. What is refused because the
// member has gone on to the next generation since, in which it still holds what the Reader
// reads, is sent again in that one: to commit twice is to commit once.
func (r *Reader) commitAs(ctx context.Context, changes []change) ([]changed, error) {
	for {
		as := r.cfg.as.identity()
		answers, err := commitOffsets(ctx, r.cl, r.cfg.group, as, changes)
		if err != nil || as == nil || !slices.ContainsFunc(answers, func(a changed) bool { return fenced(a.err) }) ||
			!r.cfg.as.movedOn(ctx, as) {
			return answers, err
		}
	}
}
