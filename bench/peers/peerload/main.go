// Peerload runs the workloads of kload against NATS JetStream and Redis Streams.
//
//	peerload setup|produce|consume|queue -peer nats|redis -b ADDR -t NAME ...
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
)

var (
	settings load.Settings
	traffic  load.Traffic
)

// A peer is a server with its client.
type peer interface {
	// setup makes the streams; remove deletes them.
	setup(ctx context.Context) error
	remove(ctx context.Context) error
	// produce writes n records and returns how many were acknowledged.
	produce(ctx context.Context, p load.ProduceFlags, n, seed int64, latency *load.Histogram) (int64, error)
	// consume reads n records in order, without acknowledging, and counts those whose
	// key number is 0 mod keymod.
	consume(ctx context.Context, n int64, keymod int) (got, wanted int64, err error)
	// newGroup makes the group of a queue workload.
	newGroup(ctx context.Context, o *queueOptions) error
	open(ctx context.Context, o *queueOptions, i int) (load.Consumer, error)
}

func main() {
	commands := map[string]func(args []string){
		"setup": setupCommand, "produce": produceCommand, "consume": consumeCommand, "queue": queueCommand,
	}
	if len(os.Args) < 2 || commands[os.Args[1]] == nil {
		fmt.Fprintln(os.Stderr, "peerload setup|produce|consume|queue ...")
		os.Exit(2)
	}
	commands[os.Args[1]](os.Args[2:])
}

// flags begins the flags of a command.
func flags(command string) (fs *flag.FlagSet, chosen *string) {
	fs = flag.NewFlagSet(command, flag.ExitOnError)
	settings.Register(fs, "127.0.0.1:4322")
	return fs, fs.String("peer", "nats", "nats or redis")
}

func peerNamed(name string) peer {
	switch name {
	case "nats":
		return natsPeer{}
	case "redis":
		return redisPeer{}
	}
	load.Check(fmt.Errorf("unknown peer %q: nats or redis", name))
	return nil
}

// streamName is the stream that stands for a partition.
func streamName(partition int) string { return fmt.Sprintf("%s-%d", settings.Topic, partition) }

func setupCommand(args []string) {
	fs, chosen := flags("setup")
	remove := fs.Bool("rm", false, "delete")
	load.Check(fs.Parse(args))
	p := peerNamed(*chosen)
	if *remove {
		load.Check(p.remove(context.Background()))
		return
	}
	load.Check(p.setup(context.Background()))
}

func produceCommand(args []string) {
	fs, chosen := flags("produce")
	var f load.ProduceFlags
	f.Register(fs)
	load.Check(fs.Parse(args))
	p := peerNamed(*chosen)
	ctx, cancel := context.WithTimeout(context.Background(), settings.Cap())
	defer cancel()
	if f.Warm > 0 {
		_, err := p.produce(ctx, f.WarmUp(), f.Warm, 7, nil)
		load.Check(err)
	}
	var latency *load.Histogram
	if f.Rate > 0 {
		latency = new(load.Histogram)
	}
	run := load.Begin(settings.Pid)
	before := traffic.TX.Load()
	got, err := p.produce(ctx, f, settings.N, 42, latency)
	m := map[string]any{"w": "produce", "label": settings.Label, "size": settings.Size, "parts": settings.Parts, "zipf": settings.Zipf}
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
	load.Emit(settings.Out, m)
}

func consumeCommand(args []string) {
	fs, chosen := flags("consume")
	keymod := fs.Int("keymod", 0, "want only keys whose number is 0 mod this")
	load.Check(fs.Parse(args))
	run := load.Begin(settings.Pid)
	got, wanted, err := peerNamed(*chosen).consume(context.Background(), settings.N, *keymod)
	load.Check(err)
	m := map[string]any{"w": "consume", "label": settings.Label, "size": settings.Size, "parts": 1}
	run.End(m, got)
	received := float64(traffic.RX.Load())
	if got > 0 {
		m["rx_b_rec"] = load.R3(received / float64(got))
	}
	if wanted > 0 {
		m["w"] = "keyrange"
		m["wanted"] = wanted
		m["rx_b_wanted"] = load.R3(received / float64(wanted))
	}
	load.Emit(settings.Out, m)
}

// queueOptions are the flags of a queue workload on one of the peers.
type queueOptions struct {
	load.QueueFlags
	maxAckPending int
	ackWait       time.Duration
	subjectClass  int // of 16; -1: all
	claim         bool
	noAck         bool
	untilRedeliv  bool
}
