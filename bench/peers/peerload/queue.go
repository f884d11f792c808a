package main

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
)

// queueCommand runs a queue workload.
func queueCommand(args []string) {
	fs, chosen := flags("queue")
	var o queueOptions
	o.Register(fs, &settings)
	fs.IntVar(&o.maxAckPending, "maxackpending", 1000, "JetStream MaxAckPending (-1 unlimited)")
	fs.DurationVar(&o.ackWait, "ackwait", 60*time.Second, "JetStream AckWait")
	fs.IntVar(&o.subjectClass, "filter", -1, "JetStream: subject class wanted, of 16")
	fs.BoolVar(&o.claim, "claim", false, "redis: XAUTOCLAIM instead of reading new ones")
	fs.BoolVar(&o.noAck, "noack", false, "JetStream: AckNone; redis: plain read")
	load.Check(fs.Parse(args))
	cfg := o.Config(&traffic)
	o.untilRedeliv = cfg.UntilRedeliv
	p := peerNamed(*chosen)
	ctx := context.Background()
	load.Check(p.newGroup(ctx, &o))
	traffic.RX.Store(0)
	var producing sync.WaitGroup
	if o.Rate > 0 {
		cfg.OnStart = func() { producing.Go(func() { o.produceLive(ctx, p) }) }
	}
	m := o.Result()
	m["ack"], m["map"] = *chosen, o.maxAckPending
	if o.noAck {
		m["ack"] = *chosen + "-noack"
	}
	load.Check(load.RunQueue(cfg, func(i int) (load.Consumer, error) { return p.open(ctx, &o, i) }, m))
	load.Emit(settings.Out, m)
	producing.Wait()
}

// produceLive offers records at the rate of the workload.
func (o *queueOptions) produceLive(ctx context.Context, p peer) {
	time.Sleep(time.Second) // let the members settle
	f := load.ProduceFlags{Rate: o.Rate, Hot: o.Hot, HotEvery: 100}
	got, err := p.produce(ctx, f, settings.N, 42, nil)
	if err != nil || got != settings.N {
		fmt.Fprintln(os.Stderr, "live producer:", got, err)
	}
}
