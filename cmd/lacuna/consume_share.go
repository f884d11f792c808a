package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// shareSource reads as a member of a share group: what was written out is accepted, what
// was not is released.
type shareSource struct {
	w *client.Worker
	// handed are records that a handler has, and waits to be told the outcome of.
	handed chan handedRecord
	closed chan struct{}                // closed when no more records are taken
	done   map[*kgo.Record]chan<- error // of those that poll has returned
	adm    *kadm.Client                 // nil: how far the group is does not matter
	group  string
	topics []string
	asked  time.Time // when it was looked up last how far the group is
	starts map[client.TopicPartition]int64

	mu    sync.Mutex
	wrong error // the last failure, until something comes again
}

type handedRecord struct {
	record *kgo.Record
	done   chan<- error
}

// errNotWritten releases a record.
var errNotWritten = errors.New("the record was not written out")

func (c *cli) openShareSource(ctx context.Context, o *consumeOptions) (recordSource, error) {
	s := &shareSource{
		handed: make(chan handedRecord), closed: make(chan struct{}), done: make(map[*kgo.Record]chan<- error),
		group: o.group, topics: o.topics,
	}
	opts := []client.WorkerOpt{
		client.KafkaOpts(c.kafkaOptions()...), client.Group(o.group), client.Topics(o.topics...),
		client.Concurrency(1), // so that they are written in the order in which they come
		client.Hooks(client.WorkerHooks{Failed: s.failed, Lost: func(_ *client.ShareRecord, _ client.Outcome, err error) { s.failed(err) }}),
	}
	if o.maxRecords > 0 {
		opts = append(opts, client.MaxRecords(o.maxRecords))
	}
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	for _, opt := range chosen {
		opts = append(opts, opt)
	}
	if o.exit {
		if s.adm, err = c.kafkaAdmin(); err != nil {
			return nil, err
		}
	}
	if s.w, err = client.OpenWorker(ctx, s.handle, opts...); err != nil && s.adm != nil {
		s.adm.Close()
	}
	return s, err
}

// handle hands a record to poll, and waits for what becomes of it.
func (s *shareSource) handle(ctx context.Context, r *client.ShareRecord) error {
	done := make(chan error, 1)
	select {
	case s.handed <- handedRecord{r.Record, done}:
	case <-s.closed:
		return errNotWritten
	case <-ctx.Done():
		return errNotWritten
	}
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return errNotWritten
	}
}

func (s *shareSource) failed(err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.wrong = err
}

func (s *shareSource) poll(ctx context.Context) ([]*kgo.Record, error) {
	s.release()
	select {
	case h := <-s.handed:
		s.done[h.record] = h.done
		s.failed(nil)
		return []*kgo.Record{h.record}, nil
	case <-ctx.Done():
	}
	s.look(context.WithoutCancel(ctx))
	return nil, ctx.Err()
}

// release gives back what was not written out.
func (s *shareSource) release() {
	for r, done := range s.done {
		done <- errNotWritten
		delete(s.done, r)
	}
}

// lookEvery is how often it is looked up how far the group is, while nothing comes.
const lookEvery = time.Second

// look finds out how far the group is, which other members have a part in.
func (s *shareSource) look(ctx context.Context) {
	if s.adm == nil || time.Since(s.asked) < lookEvery/4 {
		return
	}
	s.asked = time.Now()
	ctx, cancel := context.WithTimeout(ctx, lookEvery)
	defer cancel()
	described, err := s.adm.DescribeShareGroupOffsets(ctx, s.group)
	if err == nil {
		err = described[s.group].Err
	}
	if err != nil {
		s.failed(fmt.Errorf("how far group %s is: %w", s.group, err))
		return
	}
	s.starts = make(map[client.TopicPartition]int64)
	for topic, partitions := range described[s.group].Offsets {
		for n, p := range partitions {
			if slices.Contains(s.topics, topic) && p.Err == nil && p.StartOffset >= 0 {
				s.starts[client.TopicPartition{Topic: topic, Partition: n}] = p.StartOffset
			}
		}
	}
}

// left is what the group, and not only this member, has not done.
func (s *shareSource) left(ends map[client.TopicPartition]int64) (left int64) {
	for tp, end := range ends {
		start, begun := s.starts[tp]
		if !begun {
			return -1 // it begins every partition once it has a member
		}
		left += max(end-start, 0)
	}
	return left
}

func (s *shareSource) trouble() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.wrong
}

func (s *shareSource) commit(_ context.Context, records []*kgo.Record) error {
	for _, r := range records {
		s.done[r] <- nil
		delete(s.done, r)
	}
	return nil
}

func (s *shareSource) close(ctx context.Context) error {
	close(s.closed)
	s.release()
	if s.adm != nil {
		s.adm.Close()
	}
	return s.w.Close(ctx)
}
