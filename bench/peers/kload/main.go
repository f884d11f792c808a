// kload drives any Kafka-protocol broker, given by host:port.
//
//	kload topic   -b ADDR -t T -parts P [-rm]
//	kload produce -b ADDR -t T -n N -size S [-rate R]
//	kload consume -b ADDR -t T -n N [-keymod 16]
//	kload filter  -b ADDR -t T [-slots 0-4095]
//	kload queue   -b ADDR -t T -n N -c CONSUMERS -ack STYLE [...]
//
// -pid of the broker process adds its CPU seconds and RSS to the result line.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"net"
	"os"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var (
	addr    = "127.0.0.1:9092"
	topic   = "bench"
	pid     int
	outFile string
	label   string
	size    = 100
	n       = int64(1000000)
	parts   = 1
	nkeys   = 100000
	zipf    bool
	secs    = 30.0
)

func common(fs *flag.FlagSet) {
	fs.StringVar(&addr, "b", addr, "broker host:port")
	fs.StringVar(&topic, "t", topic, "topic")
	fs.IntVar(&pid, "pid", 0, "broker pid, for CPU and RSS")
	fs.StringVar(&outFile, "out", "", "append the JSON result line to this file")
	fs.StringVar(&label, "label", "", "label of the run")
	fs.IntVar(&size, "size", size, "value size in bytes (>= 16)")
	fs.Int64Var(&n, "n", n, "records")
	fs.IntVar(&parts, "parts", parts, "partitions")
	fs.IntVar(&nkeys, "keys", nkeys, "distinct keys")
	fs.BoolVar(&zipf, "zipf", false, "zipfian keys (s=1.07) instead of uniform")
	fs.Float64Var(&secs, "secs", secs, "time cap in seconds")
	fs.IntVar(&batch, "batch", 0, "max produce batch bytes (0: client default, 1 MB)")
}

type countConn struct {
	net.Conn
	rx, tx *atomic.Int64
}

func (c countConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.rx.Add(int64(n))
	return n, err
}
func (c countConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.tx.Add(int64(n))
	return n, err
}

var rx, tx atomic.Int64

func client(opts ...kgo.Opt) (*kgo.Client, error) {
	d := net.Dialer{Timeout: 5 * time.Second}
	opts = append(opts, kgo.SeedBrokers(addr), kgo.ClientID("kload"),
		kgo.Dialer(func(ctx context.Context, nw, host string) (net.Conn, error) {
			c, err := d.DialContext(ctx, nw, host)
			if err != nil {
				return nil, err
			}
			return countConn{c, &rx, &tx}, nil
		}))
	return kgo.NewClient(opts...)
}

func die(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "kload:", err)
		os.Exit(1)
	}
}

func topicCmd(args []string) {
	fs := flag.NewFlagSet("topic", flag.ExitOnError)
	common(fs)
	rm := fs.Bool("rm", false, "delete it")
	cfgs := fs.String("c", "", "topic configs k=v,k=v")
	fs.Parse(args)
	cl, err := client()
	die(err)
	defer cl.Close()
	ctx, c := context.WithTimeout(context.Background(), 20*time.Second)
	defer c()
	if *rm {
		req := kmsg.NewPtrDeleteTopicsRequest()
		req.TopicNames = []string{topic}
		t := kmsg.NewDeleteTopicsRequestTopic()
		t.Topic = kmsg.StringPtr(topic)
		req.Topics = append(req.Topics, t)
		_, err := req.RequestWith(ctx, cl)
		die(err)
		return
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic = topic
	t.NumPartitions = int32(parts)
	t.ReplicationFactor = 1
	for _, kv := range strings.Split(*cfgs, ",") {
		if k, v, ok := strings.Cut(kv, "="); ok {
			c := kmsg.NewCreateTopicsRequestTopicConfig()
			c.Name, c.Value = k, kmsg.StringPtr(v)
			t.Configs = append(t.Configs, c)
		}
	}
	req.Topics = append(req.Topics, t)
	r, err := req.RequestWith(ctx, cl)
	die(err)
	if e := kerr.ErrorForCode(r.Topics[0].ErrorCode); e != nil && !errors.Is(e, kerr.TopicAlreadyExists) {
		die(e)
	}
}

var batch int

func producerOpts(linger time.Duration) []kgo.Opt {
	o := []kgo.Opt{
		kgo.RequiredAcks(kgo.AllISRAcks()),
		kgo.ProducerBatchCompression(kgo.NoCompression()),
		kgo.ProducerLinger(linger),
		kgo.MaxBufferedRecords(200000),
		kgo.DefaultProduceTopic(topic),
	}
	if batch > 0 {
		o = append(o, kgo.ProducerBatchMaxBytes(int32(batch)))
	}
	return o
}

// produceN produces seq [from, from+n), paced at rate when > 0.
func produceN(ctx context.Context, cl *kgo.Client, from uint64, n int64, rate float64, seed int64, hot string, hotEvery int, lat *load.Hist) (int64, error) {
	keys := load.NewKeys(nkeys, zipf).Picker(seed)
	vals := load.NewValues(size, seed)
	var done, failed atomic.Int64
	var firstErr atomic.Value
	t0 := time.Now()
	for i := int64(0); i < n && ctx.Err() == nil; i++ {
		ts := time.Now()
		if rate > 0 {
			due := t0.Add(time.Duration(float64(i) / rate * 1e9))
			if d := time.Until(due); d > 500*time.Microsecond {
				time.Sleep(d)
			}
			ts = due
		}
		k := keys.Next()
		if hot != "" && i%int64(hotEvery) == 0 {
			k = []byte(hot)
		}
		r := &kgo.Record{Key: k, Value: vals.Make(from+uint64(i), ts.UnixNano())}
		cl.Produce(ctx, r, func(r *kgo.Record, err error) {
			if err != nil {
				failed.Add(1)
				firstErr.CompareAndSwap(nil, err)
				return
			}
			done.Add(1)
			if lat != nil {
				lat.Add(time.Since(ts))
			}
		})
	}
	fctx, c := context.WithTimeout(context.Background(), 30*time.Second)
	defer c()
	err := cl.Flush(fctx)
	if e, ok := firstErr.Load().(error); ok && err == nil && ctx.Err() == nil {
		err = e
	}
	return done.Load(), err
}

func produceCmd(args []string) {
	fs := flag.NewFlagSet("produce", flag.ExitOnError)
	common(fs)
	rate := fs.Float64("rate", 0, "records/s, 0 = as fast as possible")
	linger := fs.Duration("linger", 5*time.Millisecond, "producer linger")
	warm := fs.Int64("warm", 0, "warm-up records first (sequence numbers above the measured ones)")
	hot := fs.String("hot", "", "hot key")
	hotEvery := fs.Int("hotevery", 100, "every so many records carries the hot key")
	from := fs.Int64("from", 0, "first sequence number")
	quiet := fs.Bool("q", false, "no result line")
	fs.Parse(args)
	cl, err := client(producerOpts(*linger)...)
	die(err)
	defer cl.Close()
	ctx := context.Background()
	if *warm > 0 {
		_, err := produceN(ctx, cl, 1<<40, *warm, 0, 7, "", 0, nil)
		die(err)
	}
	var lat *load.Hist
	if *rate > 0 {
		lat = new(load.Hist)
	}
	cctx, cc := context.WithTimeout(ctx, time.Duration(secs*float64(time.Second)))
	defer cc()
	run := load.Begin(pid)
	txb := tx.Load()
	got, err := produceN(cctx, cl, uint64(*from), n, *rate, 42, *hot, *hotEvery, lat)
	m := map[string]any{"w": "produce", "label": label, "size": size, "parts": parts, "zipf": zipf, "batch": batch}
	run.End(m, got)
	m["mb_s"] = load.R3(m["rate"].(float64) * float64(size) / 1e6)
	m["tx_b_rec"] = load.R3(float64(tx.Load()-txb) / float64(got))
	if lat != nil {
		m["p50"], m["p99"], m["p999"] = lat.Q(.5), lat.Q(.99), lat.Q(.999)
	}
	if err != nil {
		m["err"] = err.Error()
	}
	if !*quiet {
		load.Emit(outFile, m)
	} else {
		fmt.Println(m["n"], m["rate"], m["err"])
	}
}

func consumeCmd(args []string) {
	fs := flag.NewFlagSet("consume", flag.ExitOnError)
	common(fs)
	keymod := fs.Int("keymod", 0, "want only keys whose number is 0 mod this (client-side filter)")
	fs.Parse(args)
	ps := map[int32]kgo.Offset{}
	for i := 0; i < parts; i++ {
		ps[int32(i)] = kgo.NewOffset().AtStart()
	}
	cl, err := client(kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: ps}))
	die(err)
	defer cl.Close()
	ctx, c := context.WithTimeout(context.Background(), time.Duration(secs*float64(time.Second)))
	defer c()
	run := load.Begin(pid)
	var got, wanted int64
	var first time.Time
	for got < n && ctx.Err() == nil {
		fs := cl.PollFetches(ctx)
		if first.IsZero() && fs.NumRecords() > 0 {
			first = time.Now()
		}
		if e := fs.Err0(); e != nil && ctx.Err() == nil {
			die(e)
		}
		fs.EachRecord(func(r *kgo.Record) {
			got++
			if *keymod > 0 {
				x := 0
				for _, ch := range r.Key[4:] {
					x = x*10 + int(ch-'0')
				}
				if x%*keymod == 0 {
					wanted++
				}
			}
		})
	}
	m := map[string]any{"w": "consume", "label": label, "size": size, "parts": parts}
	run.End(m, got)
	m["mb_s"] = load.R3(m["rate"].(float64) * float64(size) / 1e6)
	m["rx_b_rec"] = load.R3(float64(rx.Load()) / float64(got))
	if *keymod > 0 {
		m["w"] = "keyrange"
		m["wanted"] = wanted
		m["rx_b_wanted"] = load.R3(float64(rx.Load()) / float64(wanted))
		m["cpu_us_wanted"] = load.R3(m["cpu_broker"].(float64) / float64(wanted) * 1e6)
	}
	load.Emit(outFile, m)
}

// ---- queue consumers ----

// kgo share consumer
type kshare struct {
	cl    *kgo.Client
	flush bool
	bad   atomic.Int64
}

func (k *kshare) Poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	pctx, c := context.WithTimeout(ctx, 500*time.Millisecond)
	defer c()
	f := k.cl.PollFetches(pctx)
	if e := f.Err0(); e != nil && pctx.Err() == nil {
		return out, e
	}
	f.EachRecord(func(r *kgo.Record) {
		out = append(out, load.Msg{Part: r.Partition, Off: r.Offset, Key: r.Key, Val: r.Value, H: r})
	})
	return out, nil
}

func (k *kshare) Ack(ms []load.Msg) error {
	rs := make([]*kgo.Record, len(ms))
	for i := range ms {
		rs[i] = ms[i].H.(*kgo.Record)
	}
	k.cl.MarkAcks(kgo.AckAccept, rs...)
	if k.flush {
		ctx, c := context.WithTimeout(context.Background(), 10*time.Second)
		defer c()
		return k.cl.FlushAcks(ctx)
	}
	return nil
}
func (k *kshare) Flush(ctx context.Context) error { return k.cl.FlushAcks(ctx) }
func (k *kshare) Close(g bool)                    { k.cl.Close() }

// classic consumer group
type kgroup struct {
	cl   *kgo.Client
	each bool
	max  int
}

func (k *kgroup) Poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	pctx, c := context.WithTimeout(ctx, 500*time.Millisecond)
	defer c()
	f := k.cl.PollRecords(pctx, k.max)
	if e := f.Err0(); e != nil && pctx.Err() == nil {
		return out, e
	}
	f.EachRecord(func(r *kgo.Record) {
		out = append(out, load.Msg{Part: r.Partition, Off: r.Offset, Key: r.Key, Val: r.Value, H: r})
	})
	return out, nil
}

func (k *kgroup) Ack(ms []load.Msg) error {
	ctx, c := context.WithTimeout(context.Background(), 10*time.Second)
	defer c()
	if k.each {
		for i := range ms {
			if err := k.cl.CommitRecords(ctx, ms[i].H.(*kgo.Record)); err != nil {
				return err
			}
		}
		return nil
	}
	rs := make([]*kgo.Record, len(ms))
	for i := range ms {
		rs[i] = ms[i].H.(*kgo.Record)
	}
	return k.cl.CommitRecords(ctx, rs...)
}
func (k *kgroup) Flush(ctx context.Context) error { return nil }
func (k *kgroup) Close(g bool)                    { k.cl.Close() }

type rawc struct{ s *rawShare }

func (r rawc) Poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	return r.s.poll(ctx, out)
}
func (r rawc) Ack(ms []load.Msg) error         { r.s.ack(ms); return nil }
func (r rawc) Flush(ctx context.Context) error { return r.s.flush(ctx) }
func (r rawc) Close(g bool)                    { r.s.close(g) }

func groupConfig(group string, kv map[string]string) error {
	cl, err := client()
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	res := kmsg.NewIncrementalAlterConfigsRequestResource()
	res.ResourceType = 32 // GROUP
	res.ResourceName = group
	for k, v := range kv {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		c.Name, c.Value = k, kmsg.StringPtr(v)
		res.Configs = append(res.Configs, c)
	}
	req.Resources = append(req.Resources, res)
	ctx, c := context.WithTimeout(context.Background(), 10*time.Second)
	defer c()
	r, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	for _, x := range r.Resources {
		if e := kerr.ErrorForCode(x.ErrorCode); e != nil {
			msg := ""
			if x.ErrorMessage != nil {
				msg = *x.ErrorMessage
			}
			return fmt.Errorf("%w: %s", e, msg)
		}
	}
	return nil
}

func queueCmd(args []string) {
	fs := flag.NewFlagSet("queue", flag.ExitOnError)
	common(fs)
	cons := fs.Int("c", 1, "consumers")
	ack := fs.String("ack", "share", "share | share-flush | share-raw | group-batch | group-each")
	group := fs.String("g", "", "group (default: a fresh one)")
	rate := fs.Float64("rate", 0, "offer this many records/s live; 0 = drain what is there")
	late := fs.Int("late", 0, "percent of records acked late")
	lateFor := fs.Duration("latefor", 5*time.Second, "how late")
	gaps := fs.Int64("gaps", 0, "hold every odd one of the first 2G records")
	holdAll := fs.Bool("holdall", false, "never ack")
	hot := fs.String("hot", "", "hot key")
	hotSleep := fs.Duration("hotsleep", 50*time.Millisecond, "handler time of the hot key")
	stall := fs.Float64("stall", 5, "give up after so many seconds without a delivery")
	maxRec := fs.Int("max", 500, "max records per poll/fetch")
	wait := fs.Int("wait", 100, "share fetch max wait ms")
	strict := fs.Bool("strict", false, "record-limit share acquire mode")
	abandon := fs.Bool("abandon", false, "drop connections at the end, do not ack held ones")
	gcfg := fs.String("gc", "", "group configs k=v,k=v")
	warm := fs.Duration("warm", 2*time.Second, "live mode: ignore latencies this long")
	dbg := fs.Bool("v", false, "one line a second on stderr")
	until := fs.Bool("redeliv", false, "end at the first redelivered record")
	retry := fs.Duration("retry", 0, "keep trying to join so long (broker restart)")
	fs.Parse(args)
	if *group == "" {
		*group = fmt.Sprintf("g-%d", time.Now().UnixNano())
	}
	isShare := strings.HasPrefix(*ack, "share")
	if isShare {
		kv := map[string]string{"share.auto.offset.reset": "earliest"}
		for _, x := range strings.Split(*gcfg, ",") {
			if k, v, ok := strings.Cut(x, "="); ok {
				kv[k] = v
			}
		}
		if *retry == 0 {
			die(groupConfig(*group, kv))
		}
	}
	open1 := func(i int) (load.Consumer, error) {
		switch *ack {
		case "share-raw":
			s, err := newRawShare(addr, *group, topic, int32(*maxRec), int32(*wait), *strict, &rx)
			if err != nil {
				return nil, err
			}
			return rawc{s}, nil
		case "share", "share-flush":
			k := &kshare{flush: *ack == "share-flush"}
			o := []kgo.Opt{kgo.ShareGroup(*group), kgo.ConsumeTopics(topic), kgo.ShareMaxRecords(int32(*maxRec)),
				kgo.FetchMaxWait(time.Duration(*wait) * time.Millisecond),
				kgo.ShareAckCallback(func(_ *kgo.Client, r kgo.ShareAckResults) {
					if !r.Ok() {
						k.bad.Add(1)
					}
				})}
			if *strict {
				o = append(o, kgo.ShareMaxRecordsStrict())
			}
			cl, err := client(o...)
			if err != nil {
				return nil, err
			}
			k.cl = cl
			return k, nil
		case "group-batch", "group-each":
			cl, err := client(kgo.ConsumerGroup(*group), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(),
				kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(time.Duration(*wait)*time.Millisecond))
			if err != nil {
				return nil, err
			}
			return &kgroup{cl: cl, each: *ack == "group-each", max: *maxRec}, nil
		}
		return nil, fmt.Errorf("unknown ack style %q", *ack)
	}
	open := func(i int) (c load.Consumer, err error) {
		for end := time.Now().Add(*retry); ; time.Sleep(10 * time.Millisecond) {
			if c, err = open1(i); err == nil || !time.Now().Before(end) {
				return
			}
		}
	}
	cfg := load.QueueCfg{N: *cons, Records: n, Total: int(n) * 4, Secs: secs, UntilRedeliv: *until, Stall: *stall, LatePct: *late, LateFor: *lateFor,
		HoldFirst: *gaps, HoldAll: *holdAll, HotKey: *hot, HotSleep: *hotSleep, Live: *rate > 0, Warm: *warm,
		Abandon: *abandon, Pid: pid, RX: &rx, Debug: *dbg}
	if cfg.Total < 8<<20 {
		cfg.Total = 8 << 20
	}
	var wg sync.WaitGroup
	if *rate > 0 {
		pc, err := client(producerOpts(0)...)
		die(err)
		defer pc.Close()
		cfg.OnStart = func() {
			wg.Add(1)
			go func() {
				defer wg.Done()
				time.Sleep(time.Second) // let the members settle
				got, err := produceN(context.Background(), pc, 0, n, *rate, 42, *hot, 100, nil)
				if err != nil || got != n {
					fmt.Fprintln(os.Stderr, "live producer:", got, err)
				}
			}()
		}
	}
	m := map[string]any{"w": "queue", "label": label, "ack": *ack, "size": size, "late": *late, "gaps": *gaps, "offered": *rate, "maxrec": *maxRec, "strict": *strict, "group": *group}
	die(load.RunQueue(cfg, open, m))
	load.Emit(outFile, m)
	wg.Wait()
}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "kload topic|produce|consume|queue ...")
		os.Exit(2)
	}
	switch os.Args[1] {
	case "topic":
		topicCmd(os.Args[2:])
	case "produce":
		produceCmd(os.Args[2:])
	case "filter":
		filterCmd(os.Args[2:])
	case "consume":
		consumeCmd(os.Args[2:])
	case "queue":
		queueCmd(os.Args[2:])
	default:
		die(fmt.Errorf("unknown command %q", os.Args[1]))
	}
}
