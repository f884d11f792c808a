package main

import (
	"context"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kgo"
)

// consumeCommand measures consuming; with -keymod, of records of which the client drops
// all but some.
func consumeCommand(args []string) {
	fs := flags("consume")
	keymod := fs.Int("keymod", 0, "want only keys whose number is 0 mod this (client-side filter)")
	load.Check(fs.Parse(args))
	offsets := map[int32]kgo.Offset{}
	for p := range settings.Parts {
		offsets[int32(p)] = kgo.NewOffset().AtStart()
	}
	cl, err := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{settings.Topic: offsets}))
	load.Check(err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(context.Background(), settings.Cap())
	defer cancel()
	run := load.Begin(settings.Pid)
	var got, wanted int64
	for got < settings.N && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil && ctx.Err() == nil {
			load.Check(err)
		}
		fetches.EachRecord(func(r *kgo.Record) {
			got++
			if *keymod > 0 && load.KeyNumber(r.Key)%*keymod == 0 {
				wanted++
			}
		})
	}
	m := map[string]any{"w": "consume", "label": settings.Label, "size": settings.Size, "parts": settings.Parts}
	run.End(m, got)
	m["mb_s"] = load.R3(m["rate"].(float64) * float64(settings.Size) / 1e6)
	received := float64(traffic.RX.Load())
	if got > 0 {
		m["rx_b_rec"] = load.R3(received / float64(got))
	}
	if wanted > 0 {
		m["w"] = "keyrange"
		m["wanted"] = wanted
		m["rx_b_wanted"] = load.R3(received / float64(wanted))
		m["cpu_us_wanted"] = load.R3(m["cpu_broker"].(float64) / float64(wanted) * 1e6)
	}
	load.Emit(settings.Out, m)
}
