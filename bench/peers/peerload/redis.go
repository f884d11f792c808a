package main

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/redis/go-redis/v9"
)

// redisPeer is Redis Streams: a stream stands for a partition.
type redisPeer struct{}

func redisConnect() *redis.Client {
	return redis.NewClient(&redis.Options{
		Addr: settings.Addr, PoolSize: 2, ReadTimeout: 60 * time.Second, WriteTimeout: 60 * time.Second, MaxRetries: -1,
		DisableIdentity: true, Protocol: 2,
		Dialer: func(_ context.Context, network, addr string) (net.Conn, error) {
			return countingDialer{}.Dial(network, addr)
		},
	})
}

// setup has nothing to do: streams come into being with their first record.
func (redisPeer) setup(context.Context) error { return nil }

func (redisPeer) remove(ctx context.Context) error {
	c := redisConnect()
	defer c.Close()
	for p := range settings.Parts {
		if err := c.Unlink(ctx, streamName(p)).Err(); err != nil {
			return fmt.Errorf("delete stream %s: %w", streamName(p), err)
		}
	}
	return nil
}

// redisRecord is a record that waits to be written.
type redisRecord struct {
	stream     string
	key, value []byte
	due        time.Time
}

const (
	redisWriters  = 2
	redisPipeline = 256 // XADDs in flight per writer
)

func (redisPeer) produce(ctx context.Context, p load.ProduceFlags, n, seed int64, latency *load.Histogram) (int64, error) {
	queue := make(chan redisRecord, 4096)
	var writing sync.WaitGroup
	var done atomic.Int64
	var failure atomic.Pointer[error]
	for range redisWriters {
		writing.Go(func() {
			if err := redisWrite(queue, &done, latency); err != nil {
				failure.CompareAndSwap(nil, &err)
			}
		})
	}
	source := load.NewSource(&settings, p, seed)
	for i := int64(0); i < n && ctx.Err() == nil; i++ {
		key, value, due := source.Next(i)
		queue <- redisRecord{streamOf(key), key, value, due}
	}
	close(queue)
	writing.Wait()
	if err := failure.Load(); err != nil {
		return done.Load(), *err
	}
	return done.Load(), nil
}

// streamOf is the stream that a key belongs to.
func streamOf(key []byte) string {
	if settings.Parts == 1 {
		return streamName(0)
	}
	h := fnv.New32a()
	h.Write(key)
	return streamName(int(h.Sum32() % uint32(settings.Parts)))
}

// redisWrite writes what is queued in pipelines, until the queue is closed. It returns
// the first error, and goes on after it.
func redisWrite(queue <-chan redisRecord, done *atomic.Int64, latency *load.Histogram) error {
	c := redisConnect()
	defer c.Close()
	ctx := context.Background()
	var failure error
	var dues []time.Time
	for r := range queue {
		pipeline := c.Pipeline()
		dues = dues[:0]
		for more := true; more; {
			pipeline.Do(ctx, "XADD", r.stream, "*", "k", r.key, "v", r.value)
			dues = append(dues, r.due)
			more = false
			if len(dues) < redisPipeline {
				select {
				case r, more = <-queue:
				default:
				}
			}
		}
		if _, err := pipeline.Exec(ctx); err != nil {
			failure = errors.Join(failure, err)
			continue
		}
		done.Add(int64(len(dues)))
		for _, due := range dues {
			if latency != nil {
				latency.Add(time.Since(due))
			}
		}
	}
	return failure
}

func (redisPeer) consume(ctx context.Context, n int64, keymod int) (got, wanted int64, err error) {
	c := redisConnect()
	defer c.Close()
	for from := "-"; got < n; {
		msgs, err := c.XRangeN(ctx, streamName(0), from, "+", 1000).Result()
		if err != nil || len(msgs) == 0 {
			return got, wanted, err
		}
		got += int64(len(msgs))
		for i := range msgs {
			key, _ := msgs[i].Values["k"].(string)
			if keymod > 0 && load.KeyNumber([]byte(key))%keymod == 0 {
				wanted++
			}
		}
		from = "(" + msgs[len(msgs)-1].ID
	}
	return got, wanted, nil
}

func (redisPeer) newGroup(ctx context.Context, o *queueOptions) error {
	c := redisConnect()
	defer c.Close()
	err := c.XGroupCreateMkStream(ctx, streamName(0), o.Group, "0").Err()
	if err != nil && err.Error() != "BUSYGROUP Consumer Group name already exists" {
		return fmt.Errorf("create group %s: %w", o.Group, err)
	}
	return nil
}

func (redisPeer) open(_ context.Context, o *queueOptions, i int) (load.Consumer, error) {
	return &redisConsumer{
		c: redisConnect(), group: o.Group, name: fmt.Sprintf("c%d", i), stream: streamName(0),
		max: int64(o.MaxRec), wait: 200 * time.Millisecond, claim: o.claim,
	}, nil
}

// redisConsumer is one member of a consumer group.
type redisConsumer struct {
	c                   *redis.Client
	group, name, stream string
	max                 int64
	wait                time.Duration
	claim               bool // take over what others hold, instead of reading new records
}

func (r *redisConsumer) Poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	msgs, deliveries, err := r.read(ctx)
	if errors.Is(err, redis.Nil) {
		return out, nil
	}
	for i := range msgs {
		key, _ := msgs[i].Values["k"].(string)
		value, _ := msgs[i].Values["v"].(string)
		out = append(out, load.Msg{Key: []byte(key), Val: []byte(value), H: msgs[i].ID, Deliv: deliveries})
	}
	return out, err
}

// read returns messages, and the count with which they are delivered at least.
func (r *redisConsumer) read(ctx context.Context) ([]redis.XMessage, int32, error) {
	if r.claim {
		msgs, _, err := r.c.XAutoClaim(ctx, &redis.XAutoClaimArgs{
			Stream: r.stream, Group: r.group, Consumer: r.name, Start: "0", Count: r.max,
		}).Result()
		return msgs, 2, err
	}
	streams, err := r.c.XReadGroup(ctx, &redis.XReadGroupArgs{
		Group: r.group, Consumer: r.name, Streams: []string{r.stream, ">"}, Count: r.max, Block: r.wait,
	}).Result()
	if err != nil || len(streams) == 0 {
		return nil, 0, err
	}
	return streams[0].Messages, 1, nil
}

func (r *redisConsumer) Ack(ms []load.Msg) error {
	ids := make([]string, len(ms))
	for i := range ms {
		ids[i] = ms[i].H.(string)
	}
	return r.c.XAck(context.Background(), r.stream, r.group, ids...).Err()
}

func (r *redisConsumer) Flush(context.Context) error { return nil }
func (r *redisConsumer) Close(bool)                  { r.c.Close() }
