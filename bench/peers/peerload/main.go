// peerload runs the same workloads as kload against NATS JetStream and Redis
// Streams.
//
//	peerload setup|produce|consume|queue -peer nats|redis -b ADDR -t NAME ...
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"hash/fnv"
	"net"
	"os"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/redis/go-redis/v9"
)

var (
	peer, addr, topic, outFile, label string
	pid                               int
	size                              = 100
	n                                 = int64(1000000)
	parts                             = 1
	nkeys                             = 100000
	zipf                              bool
	secs                              = 30.0
)

func common(fs *flag.FlagSet) {
	fs.StringVar(&peer, "peer", "nats", "nats or redis")
	fs.StringVar(&addr, "b", "127.0.0.1:4322", "server host:port")
	fs.StringVar(&topic, "t", "bench", "stream name")
	fs.IntVar(&pid, "pid", 0, "server pid")
	fs.StringVar(&outFile, "out", "", "append the JSON result line to this file")
	fs.StringVar(&label, "label", "", "label")
	fs.IntVar(&size, "size", size, "value size")
	fs.Int64Var(&n, "n", n, "records")
	fs.IntVar(&parts, "parts", parts, "partitions (one stream each)")
	fs.IntVar(&nkeys, "keys", nkeys, "keys")
	fs.BoolVar(&zipf, "zipf", false, "zipfian keys")
	fs.Float64Var(&secs, "secs", secs, "cap")
}

func die(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, "peerload:", err)
		os.Exit(1)
	}
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

type dialer struct{}

func (dialer) Dial(nw, a string) (net.Conn, error) {
	c, err := net.DialTimeout(nw, a, 5*time.Second)
	if err != nil {
		return nil, err
	}
	return countConn{c, &rx, &tx}, nil
}

func natsConn() (*nats.Conn, jetstream.JetStream) {
	nc, err := nats.Connect("nats://"+addr, nats.SetCustomDialer(dialer{}), nats.MaxReconnects(-1), nats.ReconnectWait(20*time.Millisecond))
	die(err)
	js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(16384))
	die(err)
	return nc, js
}

func redisConn() *redis.Client {
	return redis.NewClient(&redis.Options{Addr: addr, PoolSize: 2, ReadTimeout: 60 * time.Second, WriteTimeout: 60 * time.Second, MaxRetries: -1,
		DisableIdentity: true, Protocol: 2,
		Dialer: func(ctx context.Context, nw, a string) (net.Conn, error) { return dialer{}.Dial(nw, a) }})
}

func sname(p int) string { return fmt.Sprintf("%s-%d", topic, p) }

func part(key []byte) int {
	if parts == 1 {
		return 0
	}
	h := fnv.New32a()
	h.Write(key)
	return int(h.Sum32() % uint32(parts))
}

func keyNum(key []byte) int { x, _ := strconv.Atoi(string(key[4:])); return x }

func setupCmd(args []string) {
	fs := flag.NewFlagSet("setup", flag.ExitOnError)
	common(fs)
	rm := fs.Bool("rm", false, "delete")
	fs.Parse(args)
	ctx := context.Background()
	if peer == "redis" {
		c := redisConn()
		if *rm {
			for p := 0; p < parts; p++ {
				die(c.Unlink(ctx, sname(p)).Err())
			}
		}
		return
	}
	nc, js := natsConn()
	defer nc.Close()
	for p := 0; p < parts; p++ {
		if *rm {
			js.DeleteStream(ctx, sname(p))
			continue
		}
		_, err := js.CreateStream(ctx, jetstream.StreamConfig{Name: sname(p), Subjects: []string{fmt.Sprintf("%s.%d.*", topic, p)},
			Storage: jetstream.FileStorage, ConsumerLimits: jetstream.StreamConsumerLimits{}})
		die(err)
	}
}

func produceN(ctx context.Context, from uint64, n int64, rate float64, seed int64, hot string, hotEvery int, lat *load.Hist) (int64, error) {
	keys := load.NewKeys(nkeys, zipf).Picker(seed)
	vals := load.NewValues(size, seed)
	var done atomic.Int64
	t0 := time.Now()
	next := func(i int64) ([]byte, []byte, time.Time) {
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
		return k, vals.Make(from+uint64(i), ts.UnixNano()), ts
	}
	if peer == "nats" {
		nc, err := nats.Connect("nats://"+addr, nats.SetCustomDialer(dialer{}))
		if err != nil {
			return 0, err
		}
		defer nc.Close()
		js, err := jetstream.New(nc, jetstream.WithPublishAsyncMaxPending(16384))
		if err != nil {
			return 0, err
		}
		subj := make([][16]string, parts)
		for p := range subj {
			for r := range subj[p] {
				subj[p][r] = fmt.Sprintf("%s.%d.%d", topic, p, r)
			}
		}
		type pend struct {
			f  jetstream.PubAckFuture
			ts time.Time
		}
		ch := make(chan pend, 65536)
		fin := make(chan error)
		go func() {
			var e error
			for p := range ch {
				select {
				case <-p.f.Ok():
					done.Add(1)
					if lat != nil {
						lat.Add(time.Since(p.ts))
					}
				case err := <-p.f.Err():
					e = err
				}
			}
			fin <- e
		}()
		for i := int64(0); i < n && ctx.Err() == nil; i++ {
			k, v, ts := next(i)
			m := &nats.Msg{Subject: subj[part(k)][keyNum2(k)%16], Header: nats.Header{"k": []string{string(k)}}, Data: v}
			f, err := js.PublishMsgAsync(m, jetstream.WithStallWait(20*time.Second))
			if err != nil {
				return done.Load(), err
			}
			ch <- pend{f, ts}
		}
		close(ch)
		err = <-fin
		return done.Load(), err
	}
	// redis: pipelines of up to 256 XADD on 2 connections
	type item struct {
		p    string
		k, v []byte
		ts   time.Time
	}
	ch := make(chan item, 4096)
	var wg sync.WaitGroup
	var perr atomic.Value
	for w := 0; w < 2; w++ {
		wg.Add(1)
		c := redisConn()
		go func() {
			defer wg.Done()
			defer c.Close()
			var ts []time.Time
			for it := range ch {
				pl := c.Pipeline()
				ts = ts[:0]
				for {
					pl.Do(context.Background(), "XADD", it.p, "*", "k", it.k, "v", it.v)
					ts = append(ts, it.ts)
					if len(ts) == 256 {
						break
					}
					var ok bool
					select {
					case it, ok = <-ch:
					default:
					}
					if !ok {
						break
					}
				}
				if _, err := pl.Exec(context.Background()); err != nil {
					perr.CompareAndSwap(nil, err)
					continue
				}
				done.Add(int64(len(ts)))
				if lat != nil {
					for _, t := range ts {
						lat.Add(time.Since(t))
					}
				}
			}
		}()
	}
	names := make([]string, parts)
	for p := range names {
		names[p] = sname(p)
	}
	for i := int64(0); i < n && ctx.Err() == nil; i++ {
		k, v, ts := next(i)
		ch <- item{names[part(k)], k, v, ts}
	}
	close(ch)
	wg.Wait()
	e, _ := perr.Load().(error)
	return done.Load(), e
}

func keyNum2(k []byte) int {
	x := 0
	for _, c := range k[4:] {
		if c >= '0' && c <= '9' {
			x = x*10 + int(c-'0')
		}
	}
	return x
}

func produceCmd(args []string) {
	fs := flag.NewFlagSet("produce", flag.ExitOnError)
	common(fs)
	rate := fs.Float64("rate", 0, "records/s")
	hot := fs.String("hot", "", "hot key")
	hotEvery := fs.Int("hotevery", 100, "")
	from := fs.Int64("from", 0, "first seq")
	warm := fs.Int64("warm", 0, "warm-up records")
	fs.Parse(args)
	ctx, c := context.WithTimeout(context.Background(), time.Duration(secs*1e9))
	defer c()
	if *warm > 0 {
		_, err := produceN(ctx, 1<<40, *warm, 0, 7, "", 0, nil)
		die(err)
	}
	var lat *load.Hist
	if *rate > 0 {
		lat = new(load.Hist)
	}
	run := load.Begin(pid)
	txb := tx.Load()
	got, err := produceN(ctx, uint64(*from), n, *rate, 42, *hot, *hotEvery, lat)
	m := map[string]any{"w": "produce", "label": label, "size": size, "parts": parts, "zipf": zipf}
	run.End(m, got)
	m["mb_s"] = load.R3(m["rate"].(float64) * float64(size) / 1e6)
	m["tx_b_rec"] = load.R3(float64(tx.Load()-txb) / float64(got))
	if lat != nil {
		m["p50"], m["p99"], m["p999"] = lat.Q(.5), lat.Q(.99), lat.Q(.999)
	}
	if err != nil {
		m["err"] = err.Error()
	}
	load.Emit(outFile, m)
}

// ---- consumers ----

type natsCons struct {
	nc    *nats.Conn
	cc    jetstream.ConsumeContext
	ch    chan jetstream.Msg
	max   int
	noack bool
	meta  bool
}

func (c *natsCons) conv(m jetstream.Msg, out []load.Msg) []load.Msg {
	var k []byte
	if h := m.Headers(); h != nil {
		k = []byte(h.Get("k"))
	}
	d := int32(1)
	if c.meta {
		if md, err := m.Metadata(); err == nil {
			d = int32(md.NumDelivered)
		}
	}
	return append(out, load.Msg{Key: k, Val: m.Data(), H: m, Deliv: d})
}

func (c *natsCons) Poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	t := time.NewTimer(300 * time.Millisecond)
	defer t.Stop()
	select {
	case m := <-c.ch:
		out = c.conv(m, out)
	case <-t.C:
		return out, nil
	case <-ctx.Done():
		return out, nil
	}
	for len(out) < c.max {
		select {
		case m := <-c.ch:
			out = c.conv(m, out)
		default:
			return out, nil
		}
	}
	return out, nil
}

func (c *natsCons) Ack(ms []load.Msg) error {
	if c.noack {
		return nil
	}
	for i := range ms {
		if err := ms[i].H.(jetstream.Msg).Ack(); err != nil {
			return err
		}
	}
	return nil
}
func (c *natsCons) Flush(ctx context.Context) error { return c.nc.FlushWithContext(ctx) }
func (c *natsCons) Close(bool)                      { c.cc.Stop(); c.nc.Close() }

type redisCons struct {
	c     *redis.Client
	g, me string
	s     string
	max   int64
	wait  time.Duration
	claim bool
}

func (r *redisCons) Poll(ctx context.Context, out []load.Msg) ([]load.Msg, error) {
	var ms []redis.XMessage
	if r.claim {
		x, _, err := r.c.XAutoClaim(ctx, &redis.XAutoClaimArgs{Stream: r.s, Group: r.g, Consumer: r.me, MinIdle: 0, Start: "0", Count: r.max}).Result()
		if err != nil {
			return out, err
		}
		ms = x
	} else {
		x, err := r.c.XReadGroup(ctx, &redis.XReadGroupArgs{Group: r.g, Consumer: r.me, Streams: []string{r.s, ">"}, Count: r.max, Block: r.wait}).Result()
		if errors.Is(err, redis.Nil) {
			return out, nil
		}
		if err != nil {
			return out, err
		}
		ms = x[0].Messages
	}
	for i := range ms {
		k, _ := ms[i].Values["k"].(string)
		v, _ := ms[i].Values["v"].(string)
		d := int32(1)
		if r.claim {
			d = 2
		}
		out = append(out, load.Msg{Key: []byte(k), Val: []byte(v), H: ms[i].ID, Deliv: d})
	}
	return out, nil
}

func (r *redisCons) Ack(ms []load.Msg) error {
	ids := make([]string, len(ms))
	for i := range ms {
		ids[i] = ms[i].H.(string)
	}
	return r.c.XAck(context.Background(), r.s, r.g, ids...).Err()
}
func (r *redisCons) Flush(context.Context) error { return nil }
func (r *redisCons) Close(bool)                  { r.c.Close() }

func queueCmd(args []string, seq bool) {
	fs := flag.NewFlagSet("queue", flag.ExitOnError)
	common(fs)
	cons := fs.Int("c", 1, "consumers")
	group := fs.String("g", "", "group")
	rate := fs.Float64("rate", 0, "offered records/s")
	late := fs.Int("late", 0, "percent late")
	lateFor := fs.Duration("latefor", 5*time.Second, "how late")
	gaps := fs.Int64("gaps", 0, "gaps")
	holdAll := fs.Bool("holdall", false, "never ack")
	hot := fs.String("hot", "", "hot key")
	hotSleep := fs.Duration("hotsleep", 50*time.Millisecond, "")
	stall := fs.Float64("stall", 5, "")
	maxRec := fs.Int("max", 500, "")
	map_ := fs.Int("maxackpending", 1000, "JetStream MaxAckPending (-1 unlimited)")
	ackWait := fs.Duration("ackwait", 60*time.Second, "JetStream AckWait")
	filter := fs.Int("filter", -1, "JetStream: subject class wanted, of 16")
	abandon := fs.Bool("abandon", false, "")
	claim := fs.Bool("claim", false, "redis: XAUTOCLAIM instead of reading new ones")
	noack := fs.Bool("noack", seq, "JetStream: AckNone; redis: plain read")
	warm := fs.Duration("warm", 2*time.Second, "")
	until := fs.Bool("redeliv", false, "end at the first redelivered record")
	dbg := fs.Bool("v", false, "")
	fs.Parse(args)
	if *group == "" {
		*group = fmt.Sprintf("g%d", time.Now().UnixNano())
	}
	ctx := context.Background()
	if peer == "nats" {
		nc, js := natsConn()
		cc := jetstream.ConsumerConfig{Durable: *group, AckPolicy: jetstream.AckExplicitPolicy, MaxAckPending: *map_, AckWait: *ackWait, DeliverPolicy: jetstream.DeliverAllPolicy}
		if *noack {
			cc.AckPolicy = jetstream.AckNonePolicy
			cc.MaxAckPending = 0
			cc.AckWait = 0
		}
		if *filter >= 0 {
			cc.FilterSubject = fmt.Sprintf("%s.0.%d", topic, *filter)
		}
		_, err := js.CreateConsumer(ctx, sname(0), cc)
		if err != nil && !errors.Is(err, jetstream.ErrConsumerExists) {
			die(err)
		}
		nc.Close()
		rx.Store(0)
	} else {
		c := redisConn()
		err := c.XGroupCreateMkStream(ctx, sname(0), *group, "0").Err()
		if err != nil && err.Error() != "BUSYGROUP Consumer Group name already exists" {
			die(err)
		}
		c.Close()
		rx.Store(0)
	}
	open := func(i int) (load.Consumer, error) {
		if peer == "redis" {
			return &redisCons{c: redisConn(), g: *group, me: fmt.Sprintf("c%d", i), s: sname(0), max: int64(*maxRec), wait: 200 * time.Millisecond, claim: *claim}, nil
		}
		nc, js := natsConn()
		co, err := js.Consumer(ctx, sname(0), *group)
		if err != nil {
			return nil, err
		}
		c := &natsCons{nc: nc, ch: make(chan jetstream.Msg, *maxRec), max: *maxRec, noack: *noack, meta: *until}
		c.cc, err = co.Consume(func(m jetstream.Msg) { c.ch <- m }, jetstream.PullMaxMessages(*maxRec))
		return c, err
	}
	cfg := load.QueueCfg{N: *cons, Records: n, Total: int(n) * 4, Secs: secs, UntilRedeliv: *until, Stall: *stall, LatePct: *late, LateFor: *lateFor,
		HoldFirst: *gaps, HoldAll: *holdAll, HotKey: *hot, HotSleep: *hotSleep, Live: *rate > 0, Warm: *warm,
		Abandon: *abandon, Pid: pid, RX: &rx, Debug: *dbg}
	if cfg.Total < 8<<20 {
		cfg.Total = 8 << 20
	}
	var wg sync.WaitGroup
	if *rate > 0 {
		cfg.OnStart = func() {
			wg.Add(1)
			go func() {
				defer wg.Done()
				time.Sleep(time.Second)
				got, err := produceN(ctx, 0, n, *rate, 42, *hot, 100, nil)
				if err != nil || got != n {
					fmt.Fprintln(os.Stderr, "live producer:", got, err)
				}
			}()
		}
	}
	m := map[string]any{"w": "queue", "label": label, "ack": peer, "size": size, "late": *late, "gaps": *gaps, "offered": *rate, "maxrec": *maxRec, "map": *map_, "group": *group}
	if *noack {
		m["ack"] = peer + "-noack"
	}
	die(load.RunQueue(cfg, open, m))
	load.Emit(outFile, m)
	wg.Wait()
}

// consume for redis: plain XRANGE paging
func consumeCmd(args []string) {
	fs := flag.NewFlagSet("consume", flag.ExitOnError)
	common(fs)
	keymod := fs.Int("keymod", 0, "")
	fs.Parse(args)
	c := redisConn()
	ctx := context.Background()
	run := load.Begin(pid)
	var got, wanted int64
	last := "-"
	for got < n {
		ms, err := c.XRangeN(ctx, sname(0), last, "+", 1000).Result()
		die(err)
		if len(ms) == 0 {
			break
		}
		got += int64(len(ms))
		if *keymod > 0 {
			for i := range ms {
				k, _ := ms[i].Values["k"].(string)
				if keyNum2([]byte(k))%*keymod == 0 {
					wanted++
				}
			}
		}
		last = "(" + ms[len(ms)-1].ID
	}
	m := map[string]any{"w": "consume", "label": label, "size": size, "parts": 1}
	run.End(m, got)
	m["rx_b_rec"] = load.R3(float64(rx.Load()) / float64(got))
	if *keymod > 0 {
		m["w"] = "keyrange"
		m["wanted"] = wanted
		m["rx_b_wanted"] = load.R3(float64(rx.Load()) / float64(wanted))
	}
	load.Emit(outFile, m)
}

func main() {
	if len(os.Args) < 2 {
		os.Exit(2)
	}
	switch os.Args[1] {
	case "setup":
		setupCmd(os.Args[2:])
	case "produce":
		produceCmd(os.Args[2:])
	case "consume":
		consumeCmd(os.Args[2:])
	case "queue":
		queueCmd(os.Args[2:], false)
	default:
		die(errors.New("unknown command"))
	}
}
