package main

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

// groupSource reads as a member of a group, as any Kafka consumer does.
type groupSource struct {
	cl *kgo.Client

	mu sync.Mutex
	// at is the next offset in each partition that is assigned, as far as it is known.
	at map[client.TopicPartition]int64
	// committed is what the group had committed when the run began, if it stops at the end.
	committed kadm.OffsetResponses
	joined    bool
}

func (c *cli) openGroupSource(ctx context.Context, o *consumeOptions, from client.Position) (recordSource, error) {
	s := &groupSource{at: make(map[client.TopicPartition]int64)}
	reset, err := resetOffset(from)
	if err != nil {
		return nil, err
	}
	opts := []kgo.Opt{
		kgo.ConsumerGroup(o.group), kgo.ConsumeTopics(o.topics...), kgo.ConsumeResetOffset(reset),
		kgo.AutoCommitMarks(), kgo.BlockRebalanceOnPoll(),
		kgo.KeepControlRecords(), // they tell that a partition's end was reached
		kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, assigned map[string][]int32) { s.assigned(assigned) }),
		kgo.OnPartitionsRevoked(func(ctx context.Context, cl *kgo.Client, revoked map[string][]int32) {
			// What was written out is committed before another member takes over.
			if err := cl.CommitMarkedOffsets(ctx); err != nil {
				fmt.Fprintf(c.err, "lacuna: commit before the partitions move: %v\n", err)
			}
			s.revoked(revoked)
		}),
		kgo.OnPartitionsLost(func(_ context.Context, _ *kgo.Client, lost map[string][]int32) { s.revoked(lost) }),
	}
	if o.noCommit {
		opts = append(opts, kgo.DisableAutoCommit())
	}
	if o.readCommitted {
		opts = append(opts, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	}
	if s.cl, err = c.connect(opts...); err != nil {
		return nil, err
	}
	if err := s.cl.Ping(ctx); err != nil {
		s.cl.Close()
		return nil, err
	}
	if o.exit {
		if s.committed, err = committedOffsets(ctx, s.cl, o.group); err != nil {
			s.cl.Close()
			return nil, fmt.Errorf("read the offsets of group %s: %w", o.group, err)
		}
	}
	return s, nil
}

// coordinatorPause is how long to wait for a coordinator: the first group of a cluster
// makes the topic that it lives in.
const coordinatorPause = 200 * time.Millisecond

func committedOffsets(ctx context.Context, cl *kgo.Client, group string) (kadm.OffsetResponses, error) {
	for {
		committed, err := kadm.NewClient(cl).FetchOffsets(ctx, group)
		if err == nil || !kerr.IsRetriable(err) {
			return committed, err
		}
		select {
		case <-time.After(coordinatorPause):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// resetOffset is a position in kgo's terms.
func resetOffset(p client.Position) (kgo.Offset, error) {
	if at, ok := p.Time(); ok {
		return kgo.NewOffset().AfterMilli(at.UnixMilli()), nil
	}
	switch offset, ok := p.Offset(); {
	case ok:
		return kgo.NewOffset().At(offset), nil
	case p == client.Latest():
		return kgo.NewOffset().AtEnd(), nil
	}
	return kgo.NewOffset().AtStart(), nil
}

func (s *groupSource) assigned(assigned map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.joined = true
	for topic, numbers := range assigned {
		for _, n := range numbers {
			at := int64(0)
			if o, ok := s.committed.Lookup(topic, n); ok && o.Err == nil {
				at = max(o.At, 0)
			}
			s.at[client.TopicPartition{Topic: topic, Partition: n}] = at
		}
	}
}

func (s *groupSource) revoked(revoked map[string][]int32) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for topic, numbers := range revoked {
		for _, n := range numbers {
			delete(s.at, client.TopicPartition{Topic: topic, Partition: n})
		}
	}
}

func (s *groupSource) poll(ctx context.Context) ([]*kgo.Record, error) {
	s.cl.AllowRebalance() // the records of the last poll are written out by now
	fetches := s.cl.PollFetches(ctx)
	var errs []error
	fetches.EachError(func(topic string, partition int32, err error) {
		if topic != "" {
			err = fmt.Errorf("fetch %s[%d]: %w", topic, partition, err)
		}
		errs = append(errs, err)
	})
	if len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	var records []*kgo.Record
	fetches.EachRecord(func(r *kgo.Record) {
		tp := client.TopicPartition{Topic: r.Topic, Partition: r.Partition}
		if _, mine := s.at[tp]; mine {
			s.at[tp] = r.Offset + 1
		}
		if !r.Attrs.IsControl() {
			records = append(records, r)
		}
	})
	return records, nil
}

func (s *groupSource) left(ends map[client.TopicPartition]int64) (left int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.joined {
		return -1 // which partitions will be ours is not known yet
	}
	for tp, at := range s.at {
		left += max(ends[tp]-at, 0)
	}
	return left
}

// trouble is always nil: kgo keeps it to itself.
func (s *groupSource) trouble() error { return nil }

func (s *groupSource) commit(_ context.Context, records []*kgo.Record) error {
	s.cl.MarkCommitRecords(records...)
	return nil
}

func (s *groupSource) close(ctx context.Context) error {
	defer s.cl.CloseAllowingRebalance()
	if err := s.cl.CommitMarkedOffsets(ctx); err != nil {
		return fmt.Errorf("commit what was written out: %w", err)
	}
	return nil
}
