package processor_test

import (
	"bytes"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/processor"
)

// A record is done when it was processed: each cup that is sold makes the count of its drink
// one higher, in the store and in the sink, exactly once.
func ExampleOpen() {
	addr, stop := demo("tea", "coffee", "tea")
	defer stop()
	dir, err := os.MkdirTemp("", "counts")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(dir)

	count := func(c *processor.Context, sold *kgo.Record) error {
		counts, err := c.Store("counts")
		if err != nil {
			return err
		}
		before, _, err := counts.Get(sold.Key)
		if err != nil {
			return err
		}
		n, _ := strconv.Atoi(string(before)) // none is 0
		after := strconv.AppendInt(nil, int64(n+1), 10)
		if err := counts.Put(sold.Key, after); err != nil {
			return err
		}
		return c.Forward(&kgo.Record{Key: sold.Key, Value: after})
	}
	ctx := context.Background()
	app, err := processor.Open(ctx, "counting", processor.Topology{
		Inputs: []string{"sales"}, Sinks: []string{"results"}, Ack: processor.AckAtProcess,
		Processors: []processor.Node{{Name: "count", Stores: []string{"counts"}, New: processor.ProcessFunc(count)}},
	}, processor.SeedBrokers(addr), processor.StateDir(dir), processor.ExactlyOnce())
	if err != nil {
		log.Fatal(err)
	}
	defer app.Close(ctx)

	printResults(ctx, addr, 3)
	// Output:
	// tea: 1
	// coffee: 1
	// tea: 2
}

// A record is done when a punctuation has emitted what became of it: every minute the
// latest sale of each drink. There is no changelog, and no directory.
func ExampleOpen_ackOnPunctuate() {
	addr, stop := demo("tea", "coffee", "tea", "cocoa")
	defer stop()

	ctx := context.Background()
	app, err := processor.Open(ctx, "latest", processor.Topology{
		Inputs: []string{"sales"}, Sinks: []string{"results"}, Ack: processor.AckOnPunctuate,
		Processors: []processor.Node{{Name: "latest", Stores: []string{"latest"}, New: func() processor.Processor { return new(latestSales) }}},
	}, processor.SeedBrokers(addr), processor.ExactlyOnce())
	if err != nil {
		log.Fatal(err)
	}
	defer app.Close(ctx)

	printResults(ctx, addr, 3)
	// Output:
	// cocoa: at 12:01:00
	// coffee: at 12:00:20
	// tea: at 12:00:40
}

// latestSales keeps the latest sale of each drink until it is emitted.
type latestSales struct {
	c      *processor.Context
	latest *processor.Store
}

func (p *latestSales) Init(c *processor.Context) (err error) {
	p.c = c
	if p.latest, err = c.Store("latest"); err != nil {
		return err
	}
	_, err = c.Schedule(time.Minute, processor.StreamTime, p.emit) // or by processor.WallClock
	return err
}

func (p *latestSales) Process(sold *kgo.Record) error { return p.latest.Put(sold.Key, sold.Value) }

func (p *latestSales) emit(time.Time) error {
	for e, err := range p.latest.Prefix(nil) {
		if err != nil {
			return err
		}
		key := bytes.Clone(e.Key)
		if err := p.c.Forward(&kgo.Record{Key: key, Value: bytes.Clone(e.Value)}); err != nil {
			return err
		}
		if err := p.latest.Delete(key); err != nil {
			return err
		}
	}
	p.c.RequestCommit() // all that was processed is done when this has arrived
	return nil
}

func (p *latestSales) Close() error { return nil }

// demo starts a broker in memory with a sale of each drink in the topic sales, one every 20
// seconds from noon on.
func demo(drinks ...string) (addr string, stop func()) {
	ctx := context.Background()
	b, err := broker.Start(ctx, broker.Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem(),
		Settings: map[string]string{"group.initial.rebalance.delay.ms": "0"},
	})
	if err != nil {
		log.Fatal(err)
	}
	kafka, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()
	if made, err := kadm.NewClient(kafka).CreateTopics(ctx, 1, 1, nil, "sales", "results"); err != nil || made.Error() != nil {
		log.Fatal(err, made.Error())
	}
	var records []*kgo.Record
	for i, drink := range drinks {
		at := time.Date(2026, 1, 1, 12, 0, 20*i, 0, time.UTC)
		records = append(records, &kgo.Record{Topic: "sales", Key: []byte(drink), Value: []byte(at.Format("at 15:04:05")), Timestamp: at})
	}
	if err := kafka.ProduceSync(ctx, records...).FirstErr(); err != nil {
		log.Fatal(err)
	}
	return b.Addr(), func() {
		if err := b.Stop(ctx); err != nil {
			log.Fatal(err)
		}
	}
}

// printResults prints n records of the topic results that are committed.
func printResults(ctx context.Context, addr string, n int) {
	kafka, err := kgo.NewClient(kgo.SeedBrokers(addr), kgo.ConsumeTopics("results"), kgo.FetchIsolationLevel(kgo.ReadCommitted()))
	if err != nil {
		log.Fatal(err)
	}
	defer kafka.Close()
	for n > 0 {
		fetched := kafka.PollFetches(ctx)
		if err := fetched.Err(); err != nil {
			log.Fatal(err)
		}
		fetched.EachRecord(func(r *kgo.Record) {
			fmt.Printf("%s: %s\n", r.Key, r.Value)
			n--
		})
	}
}
