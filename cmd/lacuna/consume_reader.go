package main

import (
	"context"

	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readerSource reads without being a member of a group.
type readerSource struct{ r *client.Reader }

func (c *cli) openReaderSource(ctx context.Context, o *consumeOptions, from client.Position) (recordSource, error) {
	opts := []client.ReaderOpt{client.KafkaOpts(c.kafkaOptions()...), client.ResetPosition(from)}
	if o.group != "" {
		opts = append(opts, client.Group(o.group))
	}
	if len(o.partitions) > 0 {
		opts = append(opts, client.Partitions(o.topics[0], o.partitions...))
	} else {
		opts = append(opts, client.Topics(o.topics...))
	}
	if o.readCommitted {
		opts = append(opts, client.ReadCommitted())
	}
	chosen, err := o.chosen()
	if err != nil {
		return nil, err
	}
	for _, opt := range chosen {
		opts = append(opts, opt)
	}
	r, err := client.OpenReader(ctx, opts...)
	if err != nil {
		return nil, err
	}
	return &readerSource{r}, nil
}

// chosen are the options for the records with the slots and keys that were asked for.
func (o *consumeOptions) chosen() (opts []client.ConsumeOpt, err error) {
	for _, text := range o.slots {
		slots, err := parseSlots(text)
		if err != nil {
			return nil, err
		}
		opts = append(opts, client.Slots(slots))
	}
	for _, key := range o.keys {
		opts = append(opts, client.Keys([]byte(key)))
	}
	return opts, nil
}

func (s *readerSource) poll(ctx context.Context) ([]*kgo.Record, error) { return s.r.Poll(ctx) }

func (s *readerSource) left(ends map[client.TopicPartition]int64) (left int64) {
	for _, p := range s.r.Status() {
		left += max(ends[p.TopicPartition]-p.Position, 0)
		if p.Redelivering {
			left++ // how many gaps are left it does not say
		}
	}
	return left
}

func (s *readerSource) trouble() error {
	for _, p := range s.r.Status() {
		if p.Err != nil {
			return p.Err
		}
	}
	return nil
}

func (s *readerSource) commit(ctx context.Context, records []*kgo.Record) error {
	return s.r.Enqueue(ctx, records...)
}

func (s *readerSource) close(ctx context.Context) error { return s.r.Close(ctx) }
