package txncoordinator

import (
	"context"
	"time"

	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/lacunamq/lacuna/protocol"
	"go.uber.org/zap"
)

// Markers ends transactions in the partitions that they have written to.
type Markers interface {
	// Begin begins to write the marker of a transaction to a partition, and returns what
	// waits until it is durable. version is the transaction version that the marker is of.
	// A partition that is no more needs none. Writing it again changes nothing.
	Begin(tp transaction.TopicPartition, m protocol.EndTxnMarker, version int16) (wait func(context.Context) error)
}

// live is a transactional id in whose transaction somebody writes, or which is being
// ended. It belongs to who holds the shard's lock.
type live struct {
	// writers is how many write in the transaction. From the moment that it is decided there
	// come no more.
	writers int
	// drained is closed when there are none left, for who waits to write the markers.
	drained chan struct{}
	// running says that a goroutine ends it.
	running bool
	// written is closed when the markers are durable, or could not be written at once; nil:
	// nothing is being ended.
	written chan struct{}
}

// liveLocked is the live of an id.
func (s *shard) liveLocked(id string) *live {
	l := s.mu.live[id]
	if l == nil {
		l = new(live)
		s.mu.live[id] = l
	}
	return l
}

// endLocked sees that the markers of a transaction are written whose outcome is decided.
func (s *shard) endLocked(id string) {
	l := s.liveLocked(id)
	if l.written == nil {
		l.written = make(chan struct{})
	}
	if !l.running && s.c.ctx.Err() == nil {
		l.running = true
		s.c.wg.Go(func() { s.end(id, l) })
	}
}

// retryAfter is how long it waits before it tries again what failed.
const retryAfter = time.Second

// end writes the markers of an id's transactions until none is being ended.
func (s *shard) end(id string, l *live) {
	ctx := s.c.ctx
	for {
		more, err := s.endOne(ctx, id, l)
		if err == nil && !more {
			return
		}
		if err == nil {
			continue
		}
		if ctx.Err() == nil {
			s.log.Error("a transaction cannot be ended now and is tried again", zap.String("transactional_id", id), zap.Error(err))
		}
		select {
		case <-time.After(retryAfter):
		case <-ctx.Done():
			s.letGo(id, l)
			return
		}
	}
}

// endOne writes the markers of one transaction. more is false when there is none to end.
func (s *shard) endOne(ctx context.Context, id string, l *live) (more bool, err error) {
	loaded, err := s.lock(ctx)
	if err != nil {
		return true, err
	}
	c, ok := loaded.view.state.Completion(id)
	receipt := loaded.last
	if !ok {
		s.letGoLocked(id, l)
	}
	s.mu.Unlock()
	if !ok {
		return false, nil
	}
	if err := s.await(ctx, receipt); err != nil {
		return true, err
	}
	if err := s.writeMarkers(ctx, l, &c); err != nil {
		s.answerEnd(l)
		return true, err
	}
	err = s.note(ctx, func(now time.Time, state *transaction.State, out *transaction.Output) {
		state.Complete(now, id, c.Producer, out)
	})
	s.answerEnd(l)
	return true, err
}

// writeMarkers writes the markers once nobody writes in the transaction any more, and
// waits until they are durable.
func (s *shard) writeMarkers(ctx context.Context, l *live, c *transaction.Completion) error {
	marker := protocol.EndTxnMarker{ProducerID: c.ID, ProducerEpoch: c.Epoch, Commit: c.Commit}
	if err := s.awaitWriters(ctx, l); err != nil {
		return err
	}
	waits := make([]func(context.Context) error, 0, len(c.Partitions))
	for _, tp := range c.Partitions {
		waits = append(waits, s.c.opts.Markers.Begin(tp, marker, int16(c.Version)))
	}
	var failed error
	for _, wait := range waits {
		if err := wait(ctx); err != nil {
			failed = err
		}
	}
	return failed
}

// awaitWriters waits until nobody writes in a transaction that is decided.
func (s *shard) awaitWriters(ctx context.Context, l *live) error {
	s.mu.Lock()
	if l.writers == 0 {
		s.mu.Unlock()
		return nil
	}
	if l.drained == nil {
		l.drained = make(chan struct{})
	}
	drained := l.drained
	s.mu.Unlock()
	select {
	case <-drained:
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}

// answerEnd lets those go on who wait for the end.
func (s *shard) answerEnd(l *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	l.answerLocked()
}

func (l *live) answerLocked() {
	if l.written != nil {
		close(l.written)
		l.written = nil
	}
}

// letGo says that nobody ends transactions of an id any more.
func (s *shard) letGo(id string, l *live) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.letGoLocked(id, l)
}

func (s *shard) letGoLocked(id string, l *live) {
	l.running = false
	l.answerLocked()
	s.forgetLocked(id, l)
}

// forgetLocked drops the live of an id that nobody uses.
func (s *shard) forgetLocked(id string, l *live) {
	if !l.running && l.writers == 0 {
		delete(s.mu.live, id)
	}
}
