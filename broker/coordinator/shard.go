package coordinator

import (
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// maxQueued is how many requests may wait for their turn in a shard.
const maxQueued = 1 << 16

// errBusy refuses a request that a client may repeat.
var errBusy = fmt.Errorf("too many requests wait for the group coordinator: %w", kerr.CoordinatorLoadInProgress)

// shard is one partition of __consumer_offsets. See the package comment for who may
// touch what.
type shard struct {
	c     *Coordinator
	index int32
	log   *zap.Logger
	// used says that a request has come.
	used atomic.Bool

	mu struct {
		sync.Mutex
		queue   []*op
		running bool        // a goroutine owns the shard
		stopped bool        // nothing is queued any more
		timer   *time.Timer // wakes the owner at a deadline; nil before the first
		wakeAt  time.Time   // when it does; zero: it does not
	}
	// idle is signalled, under mu, when the owner's goroutine ends.
	idle *sync.Cond

	// committing is held while the view is written or read, so that a reload and a
	// checkpoint keep apart.
	committing struct {
		sync.Mutex
		checkpointer *journal.Checkpointer // of the state that is loaded; nil: none
	}
	// viewAt is the offset up to which the view is written.
	viewAt atomic.Int64
	shares shareViews

	owner owner
}

// owner is what only the goroutine in turn touches.
type owner struct {
	state   *group.State // nil: not loaded
	config  *group.Config
	cluster *share.Cluster
	out     group.Output
	spare   []*op // the queue's other buffer

	journal      *journal.Journal // nil: the partition is not opened
	checkpointer *journal.Checkpointer
	view         *viewState
	applied      int64           // the offset after the last record appended or loaded
	last         journal.Receipt // of the last append

	parked  map[group.Ticket]*parked
	tickets group.Ticket
}

func newShard(c *Coordinator, index int32) *shard {
	s := &shard{c: c, index: index, log: c.opts.Logger.With(zap.Int32("offsets_partition", index))}
	s.idle = sync.NewCond(&s.mu)
	return s
}

// enqueue puts o in the queue, and sees that somebody works on it.
func (s *shard) enqueue(o *op) error {
	s.used.Store(true)
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.mu.stopped:
		return ErrStopped
	case len(s.mu.queue) >= maxQueued:
		return errBusy
	}
	s.mu.queue = append(s.mu.queue, o)
	s.runLocked()
	return nil
}

func (s *shard) runLocked() {
	if !s.mu.running {
		s.mu.running = true
		s.c.owners.Go(s.run)
	}
}

// run works until nothing is queued and nothing is due.
func (s *shard) run() {
	for {
		ops, more := s.take()
		if !more {
			return
		}
		s.work(ops)
		clear(ops)
		s.owner.spare = ops[:0]
	}
}

// take takes the queue. It returns false, and the goroutine is the owner no more, when
// there is nothing to do.
func (s *shard) take() ([]*op, bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	ops := s.mu.queue
	if len(ops) == 0 && (s.mu.stopped || !s.dueLocked()) {
		s.mu.running = false
		s.idle.Broadcast()
		return nil, false
	}
	s.mu.queue, s.owner.spare = s.owner.spare, nil
	return ops, true
}

// dueLocked tells whether a deadline has come; if it has not, the timer is set for it.
func (s *shard) dueLocked() bool {
	if s.owner.state == nil {
		return false
	}
	at, ok := s.owner.state.NextDeadline()
	if !ok {
		return false
	}
	now := s.c.opts.Now()
	if !at.After(now) {
		return true
	}
	if !s.mu.wakeAt.IsZero() && !at.Before(s.mu.wakeAt) {
		return false // the timer rings before
	}
	s.mu.wakeAt = at
	if s.mu.timer == nil {
		s.mu.timer = time.AfterFunc(at.Sub(now), s.wake)
	} else {
		s.mu.timer.Reset(at.Sub(now))
	}
	return false
}

// wake is called by the timer.
func (s *shard) wake() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.wakeAt = time.Time{}
	if !s.mu.stopped {
		s.runLocked()
	}
}

// work carries out one turn: what is due, then the requests.
func (s *shard) work(ops []*op) {
	w := &s.owner
	if w.state == nil || s.lastFailed() {
		if err := s.load(); err != nil {
			finish(ops, err)
			return
		}
	}
	if config := s.c.config.Load(); config != w.config {
		w.config = config
		w.state.SetConfig(*config)
	}
	t := &turn{s: s, state: w.state, now: s.c.opts.Now(), out: &w.out}
	if cluster := s.c.cluster.Load(); cluster != w.cluster {
		w.cluster = cluster
		w.state.SetCluster(t.now, *cluster, t.out)
	}
	w.state.Tick(t.now, t.out)
	for _, o := range ops {
		if t.err == nil && o.begin() {
			o.do(t)
		}
	}
	if t.err == nil {
		w.state.Tick(t.now, t.out) // a delay may be zero
		t.err = s.append(t.now)
	}
	if t.err != nil {
		s.fail(t.err)
		finish(ops, s.gone(t.err))
		return
	}
	s.tell()
	s.followCluster()
	for _, o := range ops {
		o.receipt = w.last
	}
	finish(ops, nil)
}

// finish lets those who asked go on; with err nil, to wait for their receipt.
func finish(ops []*op, err error) {
	for _, o := range ops {
		o.err = err
		close(o.done)
	}
}

// tell hands the decisions of this turn to who waits for them, and logs what happened.
func (s *shard) tell() {
	w := &s.owner
	for _, r := range w.out.Replies {
		if p := w.parked[r.Ticket]; p != nil {
			delete(w.parked, r.Ticket)
			p.decided <- decision{reply: r, receipt: w.last}
		}
	}
	s.publish(w.out.Shares)
	for _, e := range w.out.Events {
		s.log.Info(e.What, zap.String("group", e.Group), zap.Int32("generation", e.Generation),
			zap.Int("members", e.Members), zap.String("detail", e.Detail))
	}
	w.out.Reset()
}

// lastFailed tells whether the last append turned out not to be durable.
func (s *shard) lastFailed() bool {
	select {
	case <-s.owner.last.Done():
	default:
		return false
	}
	err := s.owner.last.Err()
	if err == nil {
		return false
	}
	s.fail(err)
	return true
}

// fail forgets all that is not in the log.
func (s *shard) fail(err error) {
	s.log.Error("the state of groups is loaded anew, since their log did not take it", zap.Error(err))
	s.drop(s.gone(err))
}

// gone is what a client is told: to look for its coordinator again.
func (s *shard) gone(err error) error {
	return fmt.Errorf("group coordinator, partition %d: %w: %w", s.index, kerr.NotCoordinator, err)
}

// drop unloads the state, and tells who is parked.
func (s *shard) drop(err error) {
	w := &s.owner
	for ticket, p := range w.parked {
		delete(w.parked, ticket)
		p.decided <- decision{err: err}
	}
	w.state, w.journal, w.checkpointer, w.view = nil, nil, nil, nil
	s.retract()
	w.last = journal.Receipt{}
	w.out.Reset()
}

// stop ends the shard: what is queued is still carried out, then who is parked is told.
// It returns what is left to write to the view.
func (s *shard) stop() staged {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.stopped = true
	for s.mu.running {
		s.idle.Wait()
	}
	if s.mu.timer != nil {
		s.mu.timer.Stop()
	}
	left, err := s.stage()
	if err != nil {
		s.log.Error("cannot write the view of committed offsets", zap.Error(err))
	}
	s.drop(ErrStopped)
	return left
}
