package main

import (
	"context"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kgo"
)

func producerOpts(linger time.Duration) []kgo.Opt {
	opts := []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(linger),
		kgo.MaxBufferedRecords(200_000),
		kgo.DefaultProduceTopic(settings.Topic),
	}
	if batchBytes > 0 {
		opts = append(opts, kgo.ProducerBatchMaxBytes(int32(batchBytes)))
	}
	return opts
}

// produce writes n records, or fewer when ctx ends, and returns how many were
// acknowledged.
func produce(ctx context.Context, cl *kgo.Client, p load.ProduceFlags, n, seed int64, latency *load.Histogram) (int64, error) {
	source := load.NewSource(&settings, p, seed)
	var done atomic.Int64
	var failure atomic.Pointer[error]
	for i := int64(0); i < n && ctx.Err() == nil; i++ {
		key, value, due := source.Next(i)
		cl.Produce(ctx, &kgo.Record{Key: key, Value: value}, func(_ *kgo.Record, err error) {
			if err != nil {
				failure.CompareAndSwap(nil, &err)
				return
			}
			done.Add(1)
			if latency != nil {
				latency.Add(time.Since(due))
			}
		})
	}
	flushing, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	err := cl.Flush(flushing)
	if first := failure.Load(); first != nil && err == nil && ctx.Err() == nil {
		err = *first
	}
	return done.Load(), err
}

// produceCommand measures producing.
func produceCommand(args []string) {
	fs := flags("produce")
	var p load.ProduceFlags
	p.Register(fs)
	linger := fs.Duration("linger", 5*time.Millisecond, "producer linger")
	quiet := fs.Bool("q", false, "no result line")
	load.Check(fs.Parse(args))
	cl, err := client(producerOpts(*linger)...)
	load.Check(err)
	defer cl.Close()
	if p.Warm > 0 {
		_, err := produce(context.Background(), cl, p.WarmUp(), p.Warm, 7, nil)
		load.Check(err)
	}
	var latency *load.Histogram
	if p.Rate > 0 {
		latency = new(load.Histogram)
	}
	ctx, cancel := context.WithTimeout(context.Background(), settings.Cap())
	defer cancel()
	run := load.Begin(settings.Pid)
	before := traffic.TX.Load()
	got, err := produce(ctx, cl, p, settings.N, 42, latency)
	m := map[string]any{
		"w": "produce", "label": settings.Label, "size": settings.Size, "parts": settings.Parts,
		"zipf": settings.Zipf, "batch": batchBytes,
	}
	run.End(m, got)
	m["mb_s"] = load.R3(m["rate"].(float64) * float64(settings.Size) / 1e6)
	if got > 0 {
		m["tx_b_rec"] = load.R3(float64(traffic.TX.Load()-before) / float64(got))
	}
	if latency != nil {
		m["p50"], m["p99"], m["p999"] = latency.Q(.5), latency.Q(.99), latency.Q(.999)
	}
	if err != nil {
		m["err"] = err.Error()
	}
	if *quiet {
		fmt.Println(m["n"], m["rate"], m["err"])
		return
	}
	load.Emit(settings.Out, m)
}
