package txncoordinator

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/broker/transaction"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// shard is one partition of __transaction_state with its transactions.
type shard struct {
	c     *Coordinator
	index int32
	log   *zap.Logger
	// loading is held while the shard is loaded.
	loading sync.Mutex

	mu struct {
		sync.Mutex
		closed bool
		loaded *loaded // nil: not loaded
		// live are the ids in whose transaction somebody writes, or which is being ended. It
		// outlives what is loaded.
		live map[string]*live
	}
}

// loaded is what a shard knows of its log. It belongs to who holds the shard's lock.
type loaded struct {
	view         *viewState
	config       *transaction.Config
	journal      *journal.Journal
	checkpointer *journal.Checkpointer
	applied      int64           // the offset after the last record appended or loaded
	viewAt       int64           // the offset up to which the view is written
	last         journal.Receipt // of the last append
	out          transaction.Output
	records      []journal.Record
}

func newShard(c *Coordinator, index int32) *shard {
	s := &shard{c: c, index: index, log: c.opts.Logger.With(zap.Int32("transactions_partition", index))}
	s.mu.live = make(map[string]*live)
	return s
}

// lock takes the shard's lock and gives what is loaded, loading it if need be. With an
// error the lock is not taken.
func (s *shard) lock(ctx context.Context) (*loaded, error) {
	for {
		s.mu.Lock()
		if s.mu.closed {
			s.mu.Unlock()
			return nil, ErrStopped
		}
		if l := s.mu.loaded; l != nil {
			if config := s.c.config.Load(); config != l.config {
				l.config = config
				l.view.state.SetConfig(*config)
			}
			return l, nil
		}
		s.mu.Unlock()
		if err := s.load(ctx); err != nil {
			return nil, err
		}
	}
}

// load reads the shard's transactions, unless they are there, and goes on ending those
// that were being ended.
func (s *shard) load(ctx context.Context) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	s.mu.Lock()
	there, closed := s.mu.loaded != nil, s.mu.closed
	s.mu.Unlock()
	if closed {
		return ErrStopped
	}
	if there {
		return nil
	}
	l, err := s.recover(ctx)
	if err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return ErrStopped
	}
	s.mu.loaded = l
	for _, id := range l.view.state.Ending() {
		s.endLocked(id)
	}
	if at, ok := l.view.state.NextDeadline(); ok {
		s.c.clock.expect(at)
	}
	return nil
}

func (s *shard) recover(ctx context.Context) (*loaded, error) {
	part, err := s.c.opts.Open(s.index)
	if err != nil {
		return nil, fmt.Errorf("open partition %d of the transaction coordinator: %w: %w", s.index, kerr.NotCoordinator, err)
	}
	config := s.c.config.Load()
	v := &viewState{config: *config, log: s.log}
	recovered, err := journal.Recover(ctx, part.View, part.Source, part.Log, v)
	if err != nil {
		return nil, fmt.Errorf("load partition %d of the transaction coordinator: %w: %w", s.index, kerr.CoordinatorNotAvailable, err)
	}
	if recovered.Dropped != "" {
		s.log.Warn("the view of transactions was dropped and built anew", zap.String("why", recovered.Dropped))
	}
	return &loaded{
		view: v, config: config, applied: recovered.Applied, viewAt: recovered.From,
		journal:      journal.Open(part.Log, part.Source),
		checkpointer: journal.NewCheckpointer(part.View, part.Source, part.Log),
	}, nil
}

// decide calls f under the lock and appends what it decided. The answer waits with await
// for the receipt: it may tell of what others have decided before, too.
func (s *shard) decide(ctx context.Context, f func(now time.Time, state *transaction.State, out *transaction.Output)) (journal.Receipt, error) {
	l, err := s.lock(ctx)
	if err != nil {
		return journal.Receipt{}, err
	}
	defer s.mu.Unlock()
	f(s.c.opts.Now(), l.view.state, &l.out)
	return s.appendLocked(l, (*journal.Journal).Append)
}

// note is decide for what a restart would decide again: nobody waits for it, and so it
// costs no fsync of its own. It is in front of all that is decided later.
func (s *shard) note(ctx context.Context, f func(now time.Time, state *transaction.State, out *transaction.Output)) error {
	l, err := s.lock(ctx)
	if err != nil {
		return err
	}
	defer s.mu.Unlock()
	f(s.c.opts.Now(), l.view.state, &l.out)
	last := l.last // of what others wait for
	_, err = s.appendLocked(l, (*journal.Journal).AppendNoWait)
	l.last = last
	return err
}

// appendLocked has what was decided appended. When that fails the shard is loaded anew.
func (s *shard) appendLocked(l *loaded, log func(*journal.Journal, []journal.Record) (journal.Receipt, error)) (journal.Receipt, error) {
	defer func() { l.out.Records, l.out.Ended = l.out.Records[:0], l.out.Ended[:0] }()
	if len(l.out.Records) > 0 {
		nowMs := s.c.opts.Now().UnixMilli()
		l.records = l.records[:0]
		for _, r := range l.out.Records {
			l.records = append(l.records, journal.Record{Key: r.Key, Value: r.Value, TimestampMs: nowMs})
		}
		receipt, err := log(l.journal, l.records)
		clear(l.records)
		if err != nil {
			s.dropLocked(err)
			return journal.Receipt{}, s.gone(err)
		}
		for _, r := range l.out.Records {
			l.view.unseen.Note(r.Key, r.Value)
		}
		l.last, l.applied = receipt, receipt.Next
		if at, ok := l.view.state.NextDeadline(); ok {
			s.c.clock.expect(at)
		}
	}
	for _, id := range l.out.Ended {
		s.endLocked(id)
	}
	return l.last, nil
}

// await waits until what the receipt is for is durable. If it never will be, the shard is
// loaded anew.
func (s *shard) await(ctx context.Context, receipt journal.Receipt) error {
	err := receipt.Wait(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.mu.loaded; l != nil && l.last == receipt {
		s.dropLocked(err)
	}
	return s.gone(err)
}

// do is decide and await.
func (s *shard) do(ctx context.Context, f func(now time.Time, state *transaction.State, out *transaction.Output)) error {
	receipt, err := s.decide(ctx, f)
	if err != nil {
		return err
	}
	return s.await(ctx, receipt)
}

// gone is what a client is told: to look for its coordinator again.
func (s *shard) gone(err error) error {
	return fmt.Errorf("transaction coordinator, partition %d: %w: %w", s.index, kerr.NotCoordinator, err)
}

// dropLocked forgets all that is not in the log.
func (s *shard) dropLocked(err error) {
	s.log.Error("the state of transactions is loaded anew, since their log did not take it", zap.Error(err))
	s.mu.loaded = nil
}

// tick ends what is due, and returns when something is again, zero for never. A shard
// without records has nothing.
func (s *shard) tick(ctx context.Context, now time.Time) (time.Time, error) {
	if !s.c.opts.Written(s.index) {
		return time.Time{}, nil
	}
	l, err := s.lock(ctx)
	if err != nil {
		return time.Time{}, err
	}
	defer s.mu.Unlock()
	at, ok := l.view.state.NextDeadline()
	if ok && !at.After(now) {
		l.view.state.Tick(now, &l.out)
		if _, err := s.appendLocked(l, (*journal.Journal).Append); err != nil {
			return time.Time{}, err
		}
		at, ok = l.view.state.NextDeadline()
	}
	if !ok {
		return time.Time{}, nil
	}
	return at, nil
}

// checkpoint writes the view.
func (s *shard) checkpoint(ctx context.Context) error {
	s.mu.Lock()
	l := s.mu.loaded
	if l == nil || l.applied == l.viewAt {
		s.mu.Unlock()
		return nil
	}
	upTo := l.applied
	err := l.checkpointer.Stage(l.view, upTo)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	if err := l.checkpointer.Commit(ctx); err != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	l.viewAt = upTo
	return nil
}

func (s *shard) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed, s.mu.loaded = true, nil
}
