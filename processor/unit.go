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
		sent.wg.Add(1)
		o.producer.Produce(ctx, r, sent.answered)
		return sent.failure()
	})
	sent.await(ctx, o.producer)
	if err != nil {
		return err
	}
	if err := sent.failure(); err != nil {
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
	wg sync.WaitGroup
	mu struct {
		sync.Mutex
		err error
	}
}

func (s *sending) answered(r *kgo.Record, err error) {
	if err != nil {
		s.mu.Lock()
		s.mu.err = errors.Join(s.mu.err, fmt.Errorf("produce to %s: %w", r.Topic, err))
		s.mu.Unlock()
	}
	s.wg.Done()
}

// await waits until all is answered. The producer does not linger meanwhile, since the unit
// has nothing more for it. Its Flush alone would also wait for what other tasks produce.
func (s *sending) await(ctx context.Context, producer *kgo.Client) {
	ctx, answered := context.WithCancel(ctx)
	var waiting sync.WaitGroup
	waiting.Go(func() {
		s.wg.Wait()
		answered()
	})
	_ = producer.Flush(ctx) // each record says for itself whether it was sent
	waiting.Wait()
}

func (s *sending) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.mu.err
}
