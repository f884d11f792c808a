package tests

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
	"github.com/lacunamq/lacuna/processor/processortest"
	"github.com/lacunamq/lacuna/statestore"
)

// processorJobVariable makes a process of the test binary one that runs processors.
const processorJobVariable = "LACUNA_PROCESSOR_JOB"

// processorJob is what such a process is told.
type processorJob struct {
	Addr, Name, Dir string
	Kind            string // of topology
	ExactlyOnce     bool
}

const (
	// foldKind emits of each key the latest version, with the offsets that it was made of,
	// every so often: acknowledged on punctuation.
	foldKind = "fold"
	// earlyKind is the same, wrongly acknowledged before the punctuation.
	earlyKind = "early"
	// countKind counts the records of each key in a durable store.
	countKind = "count"
)

// runProcessors is the process: it works until its stdin is closed.
func runProcessors(encoded string) error {
	var job processorJob
	if err := json.Unmarshal([]byte(encoded), &job); err != nil {
		return err
	}
	opts := []processor.Option{processor.SeedBrokers(job.Addr), processor.Name(job.Name), processor.StateDir(job.Dir),
		processor.TransactionTimeout(time.Second), processor.HandOverThreshold(5), processor.UnitRecords(20),
		processor.MemberOpts(kgo.SessionTimeout(500*time.Millisecond), kgo.HeartbeatInterval(50*time.Millisecond), kgo.RebalanceTimeout(5*time.Second)),
		processor.KafkaOpts(kgo.RetryBackoffFn(func(int) time.Duration { return 20 * time.Millisecond }))}
	if job.ExactlyOnce {
		opts = append(opts, processor.ExactlyOnce())
	}
	topology := processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"}}
	switch job.Kind {
	case countKind:
		topology.Processors = []processor.Node{{Name: "count", Stores: []string{"counts"}, New: processor.ProcessFunc(countRecord)}}
	default:
		topology.Processors = []processor.Node{{Name: "fold", Stores: []string{"folded"}, New: func() processor.Processor { return new(folding) }}}
		topology.Ack = processor.AckOnPunctuate
		if job.Kind == earlyKind {
			topology.Ack = processor.AckAtProcess
			opts = append(opts, processor.StoreOpener(statestore.InMemory()))
		}
	}
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		io.Copy(io.Discard, os.Stdin)
		cancel()
	}()
	for ctx.Err() == nil {
		a, err := processor.Open(ctx, "job", topology, opts...)
		if err != nil {
			continue // the broker is away
		}
		select {
		case <-ctx.Done():
		case <-a.Failed():
		}
		if err := errors.Join(a.Err(), a.Close(context.Background())); err != nil {
			return err
		}
	}
	return nil
}

func countRecord(c *processor.Context, r *kgo.Record) error {
	before, err := processortest.Count(c, "counts", r.Key)
	if err != nil {
		return err
	}
	if string(r.Value) != strconv.Itoa(before+1) {
		return fmt.Errorf("%s comes after %d", r.Value, before)
	}
	return c.Forward(&kgo.Record{Key: r.Key, Value: r.Value})
}

// folding keeps of each key "version|offset,offset,...".
type folding struct {
	c     *processor.Context
	store *processor.Store
}

func (p *folding) Init(c *processor.Context) (err error) {
	p.c = c
	if p.store, err = c.Store("folded"); err == nil {
		_, err = c.Schedule(25*time.Millisecond, processor.WallClock, p.punctuate)
	}
	return err
}

func (p *folding) Process(r *kgo.Record) error {
	before, _, err := p.store.Get(r.Key)
	if err != nil {
		return err
	}
	_, offsets, _ := strings.Cut(string(before), "|")
	at := fmt.Sprintf("%d/%d", r.Partition, r.Offset)
	return p.store.Put(r.Key, fmt.Appendf(nil, "%s|%s", r.Value, strings.TrimPrefix(offsets+","+at, ",")))
}

func (p *folding) punctuate(time.Time) error { return processortest.Drain(p.c, p.store) }

func (p *folding) Close() error { return nil }
