package main

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kgo"
)

// pollWait is how long a poll waits for records.
const pollWait = 500 * time.Millisecond

// shareConsumer is kgo's share consumer.
type shareConsumer struct {
	cl    *kgo.Client
	flush bool // confirm the acks of each poll
	bad   atomic.Int64
}

func newShareConsumer(o *queueOptions, wait kgo.Opt) (load.Consumer, error) {
	c := &shareConsumer{flush: o.ack == "share-flush"}
	opts := []kgo.Opt{
		kgo.ShareGroup(o.Group), kgo.ConsumeTopics(settings.Topic), kgo.ShareMaxRecords(int32(o.MaxRec)), wait,
		kgo.ShareAckCallback(func(_ *kgo.Client, r kgo.ShareAckResults) {
			if !r.Ok() {
				c.bad.Add(1)
			}
		}),
	}
	if o.strict {
		opts = append(opts, kgo.ShareMaxRecordsStrict())
	}
	var err error
	c.cl, err = client(opts...)
	return c, err
}

func (c *shareConsumer) Poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	return appendFetched(ctx, out, c.cl.PollFetches(ctx))
}

func (c *shareConsumer) Ack(ms []load.Msg) error {
	c.cl.MarkAcks(kgo.AckAccept, records(ms)...)
	if !c.flush {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return c.cl.FlushAcks(ctx)
}

func (c *shareConsumer) Flush(ctx context.Context) error { return c.cl.FlushAcks(ctx) }
func (c *shareConsumer) Close(bool)                      { c.cl.Close() }

// groupConsumer is a member of a classic group.
type groupConsumer struct {
	cl   *kgo.Client
	each bool // commit each record on its own
	max  int
}

func (c *groupConsumer) Poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	ctx, cancel := context.WithTimeout(ctx, pollWait)
	defer cancel()
	return appendFetched(ctx, out, c.cl.PollRecords(ctx, c.max))
}

func (c *groupConsumer) Ack(ms []load.Msg) error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	rs := records(ms)
	if !c.each {
		return c.cl.CommitRecords(ctx, rs...)
	}
	for _, r := range rs {
		if err := c.cl.CommitRecords(ctx, r); err != nil {
			return err
		}
	}
	return nil
}

func (c *groupConsumer) Flush(context.Context) error { return nil }
func (c *groupConsumer) Close(bool)                  { c.cl.Close() }

// appendFetched adds what a poll returned; that its time was up is no error.
func appendFetched(ctx context.Context, out []load.Msg, fetches kgo.Fetches) ([]load.Msg, error) {
	if err := fetches.Err0(); err != nil && ctx.Err() == nil {
		return out, err
	}
	fetches.EachRecord(func(r *kgo.Record) {
		out = append(out, load.Msg{Part: r.Partition, Off: r.Offset, Key: r.Key, Val: r.Value, H: r})
	})
	return out, nil
}

func records(ms []load.Msg) []*kgo.Record {
	rs := make([]*kgo.Record, len(ms))
	for i := range ms {
		rs[i] = ms[i].H.(*kgo.Record)
	}
	return rs
}
