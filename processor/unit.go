package processor

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"github.com/twmb/franz-go/pkg/kgo"
	"golang.org/x/sync/errgroup"

	"github.com/lacunamq/lacuna/client"
)

// acks are the offsets that a unit of work acknowledges, by feed and partition.
type acks map[*feed]map[client.TopicPartition][]client.Run

func (a acks) add(f *feed, r *kgo.Record) {
	parts := a[f]
	if parts == nil {
		parts = make(map[client.TopicPartition][]client.Run)
		a[f] = parts
	}
	tp := partitionOf(r)
	runs := parts[tp]
	if n := len(runs); n > 0 && runs[n-1].End == r.Offset {
		runs[n-1].End++
		return
	}
	parts[tp] = append(runs, client.Run{Start: r.Offset, End: r.Offset + 1})
}

// each calls fn with the runs of each partition.
func (a acks) each(fn func(r *client.Reader, tp client.TopicPartition, runs []client.Run) error) error {
	for f, parts := range a {
		for tp, runs := range parts {
			if err := fn(f.reader, tp, runs); err != nil {
				return err
			}
		}
	}
	return nil
}

// outlet takes what units of work emit and acknowledge.
type outlet interface {
	// do runs a unit: work emits, and returns what is acknowledged. When do returns nil
	// the outputs and then the acknowledgements are durable, or both in one transaction. After
	// an error of work, which is returned as it is, nothing is acknowledged.
	do(ctx context.Context, work func(emit func(*kgo.Record) error) (acks, error)) error
}

// transactions are the outlet of exactly once.
type transactions struct{ transactor *client.Transactor }

func (o transactions) do(ctx context.Context, work func(emit func(*kgo.Record) error) (acks, error)) error {
	return o.transactor.Do(ctx, func(tx *client.Txn) error {
		done, err := work(func(r *kgo.Record) error { return tx.Produce(r) })
		if err != nil {
			return err
		}
		return done.each(func(r *client.Reader, tp client.TopicPartition, runs []client.Run) error {
			return tx.AckRuns(r, tp.Topic, tp.Partition, runs...)
		})
	})
}

// plain is the outlet of at least once.
type plain struct{ producer *kgo.Client }

func (o plain) do(ctx context.Context, work func(emit func(*kgo.Record) error) (acks, error)) error {
	var sent sending
	done, err := work(func(r *kgo.Record) error {
		sent.begin()
		o.producer.Produce(ctx, r, sent.answered)
		return sent.failure()
	})
	if failed := sent.wait(ctx, o.producer); err == nil {
		err = failed
	}
	if err != nil {
		return err
	}
	// Commits of all partitions travel together.
	var commits errgroup.Group
	_ = done.each(func(r *client.Reader, tp client.TopicPartition, runs []client.Run) error {
		commits.Go(func() error { return r.CommitRuns(ctx, tp.Topic, tp.Partition, runs...) })
		return nil
	})
	if err := commits.Wait(); err != nil {
		return fmt.Errorf("acknowledge: %w", err)
	}
	return nil
}

// sending is what has been produced and not answered.
type sending struct {
	mu struct {
		sync.Mutex
		open int
		err  error
		all  func() // nil: nobody waits; called when nothing is open
	}
}

func (s *sending) begin() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.open++
}

func (s *sending) answered(r *kgo.Record, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if err != nil {
		s.mu.err = errors.Join(s.mu.err, fmt.Errorf("produce to %s: %w", r.Topic, err))
	}
	if s.mu.open--; s.mu.open == 0 && s.mu.all != nil {
		s.mu.all()
	}
}

func (s *sending) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}

// mayAwait has all called when everything is answered, unless it is.
func (s *sending) mayAwait(all func()) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.all = all
	return s.mu.open > 0
}

// wait waits until all is answered, and says what failed. The producer does not linger meanwhile,
// since the unit has nothing more for it; its Flush alone would also wait for what other
// tasks produce. When ctx ends it does not wait on: kgo notices that only when it tries a
// request again.
func (s *sending) wait(ctx context.Context, producer *kgo.Client) error {
	flushing, answered := context.WithCancel(ctx)
	defer answered()
	if !s.mayAwait(answered) {
		return s.failure()
	}
	_ = producer.Flush(flushing) // each record says for itself whether it was sent
	<-flushing.Done()
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.open > 0 {
		return fmt.Errorf("produce: %w", context.Cause(ctx))
	}
	return s.mu.err
}
