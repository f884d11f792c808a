package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// subjectClasses is how many subjects the keys of a stream are spread over.
const subjectClasses = 16

// natsPeer is NATS JetStream: a stream stands for a partition.
type natsPeer struct{}

type countingDialer struct{}

func (countingDialer) Dial(network, addr string) (net.Conn, error) {
	c, err := net.DialTimeout(network, addr, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return traffic.Count(c), nil
}

func natsConnect() (*nats.Conn, jetstream.JetStream, error) {
	nc, err := nats.Connect("nats://"+settings.Addr, nats.SetCustomDialer(countingDialer{}),
		nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	if err != nil {
		return nil, nil, err
	}
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(16384))
	return nc, js, err
}

func (natsPeer) setup(ctx context.Context) error {
	nc, js, err := natsConnect()
	if err != nil {
		return err
	}
	defer nc.Close()
	for p := range settings.Parts {
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{
			Name: streamName(p), Subjects: []string{fmt.Sprintf("%s.%d.*", settings.Topic, p)}, Storage: jetstream.FileStorage,
		})
		if err != nil {
			return fmt.Errorf("create stream %s: %w", streamName(p), err)
		}
	}
	return nil
}

func (natsPeer) remove(ctx context.Context) error {
	nc, js, err := natsConnect()
	if err != nil {
		return err
	}
	defer nc.Close()
	for p := range settings.Parts {
		if err := js.DeleteStream(ctx, streamName(p)); err != nil {
			return fmt.Errorf("delete stream %s: %w", streamName(p), err)
		}
	}
	return nil
}

// published is a record on its way.
type published struct {
	ack jetstream.PubAckFuture
	due time.Time
}

func (natsPeer) produce(ctx context.Context, p load.ProduceFlags, n, seed int64, latency *load.Histogram) (int64, error) {
	nc, js, err := natsConnect()
	if err != nil {
		return 0, err
	}
	defer nc.Close()
	var done int64
	sent := make(chan published, 65536)
	finished := make(chan error)
	go func() {
		var last error
		for r := range sent {
			select {
			case <-r.ack.Ok():
				done++
				if latency != nil {
					latency.Add(time.Since(r.due))
				}
			case err := <-r.ack.Err():
				last = err
			}
		}
		finished <- last
	}()
	source := load.NewSource(&settings, p, seed)
	for i := int64(0); i < n && ctx.Err() == nil; i++ {
		key, value, due := source.Next(i)
		msg := &nats.Msg{Subject: subject(key), Header: nats.Header{"k": []string{string(key)}}, Data: value}
		ack, err := js.PublishMsgAsync(msg, jetstream.WithStallWait(20*time.Second))
		if err != nil {
			close(sent)
			return done, errors.Join(err, <-finished)
		}
		sent <- published{ack, due}
	}
	close(sent)
	return done, <-finished
}

// subject names the partition and the class of a key.
func subject(key []byte) string {
	partition := uint32(0)
	if settings.Parts > 1 {
		h := fnv.New32a()
		h.Write(key)
		partition = h.Sum32() % uint32(settings.Parts)
	}
	return fmt.Sprintf("%s.%d.%d", settings.Topic, partition, load.KeyNumber(key)%subjectClasses)
}

func (natsPeer) consume(context.Context, int64, int) (int64, int64, error) {
	return 0, 0, errors.New("JetStream is read with `queue -noack`")
}

func (natsPeer) newGroup(ctx context.Context, o *queueOptions) error {
	nc, js, err := natsConnect()
	if err != nil {
		return err
	}
	defer nc.Close()
	cfg := jetstream.ConsumerConfig{
		Durable: o.Group, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: o.maxAckPending,
		AckWait: o.ackWait, DeliverPolicy: jetstream.DeliverAllPolicy,
	}
	if o.noAck {
		cfg.AckPolicy, cfg.MaxAckPending, cfg.AckWait = jetstream.AckNonePolicy, 0, 0
	}
	if o.subjectClass >= 0 {
		cfg.FilterSubject = fmt.Sprintf("%s.0.%d", settings.Topic, o.subjectClass)
	}
	if _, err := js.CreateConsumer(ctx, streamName(0), cfg); err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
		return fmt.Errorf("create consumer %s: %w", o.Group, err)
	}
	return nil
}

func (natsPeer) open(ctx context.Context, o *queueOptions, _ int) (load.Consumer, error) {
	nc, js, err := natsConnect()
	if err != nil {
		return nil, err
	}
	durable, err := js.Consumer(ctx, streamName(0), o.Group)
	if err != nil {
		return nil, err
	}
	c := &natsConsumer{nc: nc, msgs: make(chan jetstream.Msg, o.MaxRec), max: o.MaxRec, noAck: o.noAck, counts: o.untilRedeliv}
	c.consuming, err = durable.Consume(func(m jetstream.Msg) { c.msgs <- m }, jetstream.PullMaxMessages(o.MaxRec))
	return c, err
}

// natsConsumer is one of several that share a durable consumer.
type natsConsumer struct {
	nc        *nats.Conn
	consuming jetstream.ConsumeContext
	msgs      chan jetstream.Msg
	max       int
	noAck     bool
	counts    bool // read the delivery count of each message
}

func (c *natsConsumer) Poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	timer := time.NewTimer(300 * time.Millisecond)
	defer timer.Stop()
	select {
	case m := <-c.msgs:
		out = append(out, c.convert(m))
	case <-timer.C:
		return out, nil
	case <-ctx.Done():
		return out, nil
	}
	for len(out) < c.max {
		select {
		case m := <-c.msgs:
			out = append(out, c.convert(m))
		default:
			return out, nil
		}
	}
	return out, nil
}

func (c *natsConsumer) convert(m jetstream.Msg) load.Msg {
	msg := load.Msg{Val: m.Data(), H: m, Deliv: 1}
	if h := m.Headers(); h != nil {
		msg.Key = []byte(h.Get("k"))
	}
	if c.counts {
		if md, err := m.Metadata(); err == nil {
			msg.Deliv = int32(md.NumDelivered)
		}
	}
	return msg
}

func (c *natsConsumer) Ack(ms []load.Msg) error {
	if c.noAck {
		return nil
	}
	for i := range ms {
		if err := ms[i].H.(jetstream.Msg).Ack(); err != nil {
			return err
		}
	}
	return nil
}

func (c *natsConsumer) Flush(ctx context.Context) error { return c.nc.FlushWithContext(ctx) }

func (c *natsConsumer) Close(bool) {
	c.consuming.Stop()
	c.nc.Close()
}
