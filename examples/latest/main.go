// Command latest keeps the latest version of every key of a topic, and emits those that have
// changed every minute, to another topic. It has no changelog: a reading is acknowledged when
// a version of its key that is as new has been emitted, so what a crash takes away is read again.
//
//	go run ./examples/latest -every 5s
//	lacuna consume --topic latest --read-committed -K :
package main

import (
	"bytes"
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

func main() {
	brokers := flag.String("brokers", "127.0.0.1:9092", "brokers to connect to first, with commas between them")
	every := flag.Duration("every", time.Minute, "how often what has changed is emitted")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx, strings.Split(*brokers, ","), *every); err != nil {
		fmt.Fprintln(os.Stderr, "latest:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context, brokers []string, every time.Duration) error {
	kafka, err := kgo.NewClient(kgo.SeedBrokers(brokers...))
	if err != nil {
		return err
	}
	defer kafka.Close()
	for _, topic := range []string{"readings", "latest"} {
		if _, err := kadm.NewClient(kafka).CreateTopic(ctx, 2, 1, nil, topic); err != nil && !errors.Is(err, kerr.TopicAlreadyExists) {
			return fmt.Errorf("create topic %s: %w", topic, err)
		}
	}
	go measure(ctx, kafka)
	fmt.Printf("emitting to topic latest every %v; Ctrl-C ends it\n", every)
	return processor.Run(ctx, "latest", processor.Topology{
		Inputs: []string{"readings"}, Sinks: []string{"latest"}, Ack: processor.AckOnPunctuate,
		Processors: []processor.Node{{Name: "latest", Stores: []string{"latest"},
			New: func() processor.Processor { return &latest{every: every} }}},
	}, processor.SeedBrokers(brokers...), processor.ExactlyOnce())
}

// latest is the processor of a task.
type latest struct {
	every time.Duration
	c     *processor.Context
	store *processor.Store
}

func (p *latest) Init(c *processor.Context) (err error) {
	p.c = c
	if p.store, err = c.Store("latest"); err != nil {
		return err
	}
	_, err = c.Schedule(p.every, processor.WallClock, p.emit)
	return err
}

func (p *latest) Process(r *kgo.Record) error { return p.store.Put(r.Key, r.Value) }

// emit emits what has changed since the last time, and forgets it.
func (p *latest) emit(at time.Time) error {
	n := 0
	for e, err := range p.store.Prefix(nil) {
		if err != nil {
			return err
		}
		key := bytes.Clone(e.Key)
		if err := p.c.Forward(&kgo.Record{Key: key, Value: bytes.Clone(e.Value)}); err != nil {
			return err
		}
		if err := p.store.Delete(key); err != nil {
			return err
		}
		n++
	}
	// What was processed until now is acknowledged when the sink has confirmed all of it.
	p.c.RequestCommit()
	fmt.Printf("%s: %d keys, from bucket %d\n", at.Format(time.TimeOnly), n, p.c.Bucket())
	return nil
}

func (p *latest) Close() error { return nil }

// measure writes readings of ten sensors.
func measure(ctx context.Context, kafka *kgo.Client) {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for i := 0; ; i++ {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		kafka.Produce(ctx, &kgo.Record{Topic: "readings", Key: fmt.Appendf(nil, "sensor-%d", i%10), Value: fmt.Append(nil, i)},
			func(_ *kgo.Record, err error) {
				if err != nil && ctx.Err() == nil {
					fmt.Fprintln(os.Stderr, "latest: write a reading:", err)
				}
			})
	}
}
