// Command grow lets a job grow from 2 to 5 workers under load, and draws what happens. The
// workers are in one process to be easily started, each with a state of its own. A record takes
// a while to process, so two workers are too few and lag behind, and five catch up.
//
//	go run ./examples/grow
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"strings"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

const keys, partitions = 1000, 2 // key i is in partition i modulo partitions

var (
	brokers = flag.String("brokers", "127.0.0.1:9092", "brokers to connect to first, with commas between them")
	rate    = flag.Int("rate", 2400, "records per second that come in")
	cost    = flag.Duration("cost", time.Millisecond, "how long it takes to process a record")
	step    = flag.Duration("step", 4*time.Second, "how long the job runs before another worker comes")
	every   = flag.Duration("every", 500*time.Millisecond, "how often a line is drawn")
	topic   = fmt.Sprintf("clicks-%d", time.Now().UnixMilli()) // of this run alone, and the group too

	workers           []*processor.App
	produced, counted atomic.Int64
)

func main() {
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "grow:", err)
		os.Exit(1)
	}
}

func run(ctx context.Context) (err error) {
	kafka, err := kgo.NewClient(kgo.SeedBrokers(strings.Split(*brokers, ",")...), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer kafka.Close()
	dir, err := os.MkdirTemp("", "grow")
	if err != nil {
		return err
	}
	admin, end := kadm.NewClient(kafka), context.WithoutCancel(ctx)
	if _, err = admin.CreateTopic(ctx, partitions, 1, nil, topic); err != nil {
		return errors.Join(fmt.Errorf("create topic %s: %w", topic, err), os.RemoveAll(dir))
	}
	defer func() {
		for _, w := range workers {
			err = errors.Join(err, w.Close(end))
		}
		_, gone := admin.DeleteTopic(end, topic)
		err = errors.Join(err, gone, os.RemoveAll(dir))
	}()
	if err := errors.Join(hire(ctx, dir), hire(ctx, dir)); err != nil {
		return err
	}
	p := new(picture)
	fmt.Println("two workers divide the keys between them")
	for tick := time.Tick(10 * time.Millisecond); ctx.Err() == nil && failure() == nil && !p.everyoneHasKeys(); {
		<-tick
	}
	l := startLoad(ctx, kafka)
	defer l.end()
	return grow(ctx, dir, p, l)
}

// grow lets the next worker come when the last one has its keys, and has the load end some time
// after that. It ends when all that was produced is counted.
func grow(ctx context.Context, dir string, p *picture, l *load) error {
	p.begin()
	last := time.Now()
	for tick := time.Tick(*every); ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick:
		}
		if err := failure(); err != nil {
			return err
		}
		p.draw()
		settled := p.everyoneHasKeys() && time.Since(last) >= *step
		switch {
		case settled && len(workers) < 5:
			if err := hire(ctx, dir); err != nil {
				return err
			}
			last = time.Now()
		case settled && !l.ended():
			l.end()
		case l.ended() && (l.err != nil || counted.Load() >= produced.Load()):
			fmt.Printf("produced %d records, counted %d, with %d workers\n", produced.Load(), counted.Load(), len(workers))
			return l.err
		}
	}
}

// failure is why a worker failed, nil if none did.
func failure() (err error) {
	for _, w := range workers {
		err = errors.Join(err, w.Err())
	}
	return err
}

// hire opens one more worker, which counts the clicks of its keys.
func hire(ctx context.Context, dir string) error {
	name := fmt.Sprintf("w%d", len(workers)+1)
	count := func(c *processor.Context, r *kgo.Record) error {
		if !c.Replaying() { // a state that is built up has only to follow
			time.Sleep(*cost)
		}
		clicks, err := c.Store("clicks")
		if err != nil {
			return err
		}
		n, _, err := clicks.Get(r.Key)
		if err != nil {
			return err
		}
		return clicks.Put(r.Key, append(n, 'I')) // a tally
	}
	w, err := processor.Open(ctx, topic, processor.Topology{Inputs: []string{topic},
		Processors: []processor.Node{{Name: "count", Stores: []string{"clicks"}, New: processor.ProcessFunc(count)}},
	}, processor.SeedBrokers(strings.Split(*brokers, ",")...), processor.StateDir(filepath.Join(dir, name)), processor.Name(name), processor.ExactlyOnce(),
		processor.UnitRecords(200), processor.OnEvents(processor.Hooks{Committed: func(_ int32, n, _ int) { counted.Add(int64(n)) }}))
	if err == nil {
		workers = append(workers, w)
	}
	return err
}
