package main

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kgo"
)

// txnCommand measures transactions of kgo's own producer, one after another in each of some
// producers, with some records in each.
func txnCommand(args []string) {
	fs := flags("txn")
	producers := fs.Int("c", 1, "producers")
	records := fs.Int("records", 1, "records in a transaction")
	warm := fs.Int64("warm", 0, "transactions before the clock starts")
	load.Check(fs.Parse(args))
	ctx, cancel := context.WithTimeout(context.Background(), settings.Cap())
	defer cancel()
	clients := make([]*kgo.Client, *producers)
	for i := range clients {
		cl, err := client(kgo.TransactionalID(fmt.Sprintf("%s-%d-%d", settings.Topic, time.Now().UnixNano(), i)),
			kgo.DefaultProduceTopic(settings.Topic))
		load.Check(err)
		defer cl.Close()
		clients[i] = cl
	}
	runTxns(ctx, clients, *records, max(*warm, int64(*producers)))
	run := load.Begin(settings.Pid)
	n := runTxns(ctx, clients, *records, settings.N)
	m := map[string]any{"w": "txn", "label": settings.Label, "size": settings.Size, "c": *producers, "records": *records}
	run.End(m, n)
	load.Emit(settings.Out, m)
}

// runTxns commits n transactions, or fewer if ctx ends, and tells how many.
func runTxns(ctx context.Context, clients []*kgo.Client, records int, n int64) int64 {
	var begun, done atomic.Int64
	var wg sync.WaitGroup
	for _, cl := range clients {
		wg.Go(func() {
			value := make([]byte, settings.Size)
			for begun.Add(1) <= n && ctx.Err() == nil {
				load.Check(cl.BeginTransaction())
				batch := make([]*kgo.Record, records)
				for i := range batch {
					batch[i] = &kgo.Record{Value: value}
				}
				load.Check(cl.ProduceSync(context.Background(), batch...).FirstErr())
				load.Check(cl.EndTransaction(context.Background(), kgo.TryCommit))
				done.Add(1)
			}
		})
	}
	wg.Wait()
	return done.Load()
}
