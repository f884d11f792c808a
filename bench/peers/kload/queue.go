package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// groupConfig sets configs of a group.
func groupConfig(group string, configs map[string]string) error {
	cl, err := client()
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType, res.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	for k, v := range configs {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = k, kmsg.StringPtr(v)
		res.Configs = append(res.Configs, c)
	}
	req.Resources = append(req.Resources, res)
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, r := range resp.Resources {
		if err := kerr.ErrorForCode(r.ErrorCode); err != nil {
			if r.ErrorMessage != nil {
				err = fmt.Errorf("%w: %s", err, *r.ErrorMessage)
			}
			return fmt.Errorf("configure group %s: %w", group, err)
		}
	}
	return nil
}

// queueOptions are the flags of a queue workload on Kafka's protocol.
type queueOptions struct {
	load.QueueFlags
	ack    string
	waitMs int
	strict bool
	retry  time.Duration
}

// open joins one consumer, trying again for a while where the broker is restarting.
func (o *queueOptions) open(int) (load.Consumer, error) {
	for end := time.Now().Add(o.retry); ; time.Sleep(10 * time.Millisecond) {
		c, err := o.openOnce()
		if err == nil || !time.Now().Before(end) {
			return c, err
		}
	}
}

func (o *queueOptions) openOnce() (load.Consumer, error) {
	wait := kgo.FetchMaxWait(time.Duration(o.waitMs) * time.Millisecond)
	switch o.ack {
	case "share-raw":
		return newRawShare(o)
	case "share", "share-flush":
		return newShareConsumer(o, wait)
	case "group-batch", "group-each":
		cl, err := client(kgo.ConsumerGroup(o.Group), kgo.ConsumeTopics(settings.Topic), kgo.DisableAutoCommit(),
			kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), wait)
		if err != nil {
			return nil, err
		}
		return &groupConsumer{cl: cl, each: o.ack == "group-each", max: o.MaxRec}, nil
	}
	return nil, fmt.Errorf("unknown ack style %q", o.ack)
}

// queueCommand runs a queue workload.
func queueCommand(args []string) {
	fs := flags("queue")
	var o queueOptions
	o.Register(fs, &settings)
	fs.StringVar(&o.ack, "ack", "share", "share | share-flush | share-raw | group-batch | group-each")
	fs.IntVar(&o.waitMs, "wait", 100, "fetch max wait ms")
	fs.BoolVar(&o.strict, "strict", false, "record-limit share acquire mode")
	fs.DurationVar(&o.retry, "retry", 0, "keep trying to join so long (broker restart)")
	configs := fs.String("gc", "", "group configs k=v,k=v")
	load.Check(fs.Parse(args))
	cfg := o.Config(&traffic)
	if strings.HasPrefix(o.ack, "share") && o.retry == 0 {
		all := pairs(*configs)
		all["share.auto.offset.reset"] = "earliest"
		load.Check(groupConfig(o.Group, all))
	}
	var producing sync.WaitGroup
	if o.Rate > 0 {
		cl, err := client(producerOpts(0)...)
		load.Check(err)
		defer cl.Close()
		cfg.OnStart = func() { producing.Go(func() { o.produceLive(cl) }) }
	}
	m := o.Result()
	m["ack"], m["strict"] = o.ack, o.strict
	load.Check(load.RunQueue(cfg, o.open, m))
	load.Emit(settings.Out, m)
	producing.Wait()
}

// produceLive offers records at the rate of the workload.
func (o *queueOptions) produceLive(cl *kgo.Client) {
	time.Sleep(time.Second) // let the members settle
	p := load.ProduceFlags{Rate: o.Rate, Hot: o.Hot, HotEvery: 100}
	got, err := produce(context.Background(), cl, p, settings.N, 42, nil)
	if err != nil || got != settings.N {
		fmt.Fprintln(os.Stderr, "live producer:", got, err)
	}
}
