package load

import (
	"context"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Msg is one delivered record.
type Msg struct {
	Part  int32
	Deliv int32
	Off   int64
	Key   []byte
	Val   []byte
	H     any
}

// Consumer is one member of a queue group.
type Consumer interface {
	// Poll appends delivered records to out; it waits a short time at most
	// (well under a second) and may return nothing.
	Poll(ctx context.Context, out []Msg) ([]Msg, error)
	// Ack settles records (may be asynchronous).
	Ack(ms []Msg) error
	// Flush returns once every Ack is confirmed by the server.
	Flush(ctx context.Context) error
	Close(graceful bool)
}

// QueueCfg drives one queue run.
type QueueCfg struct {
	N         int           // consumers
	Records   int64         // unique records that end the run
	Total     int           // size of the sequence space
	Secs      float64       // cap
	Stall     float64       // end when nothing new is delivered for so long
	LatePct   int           // this percentage of records is acked late
	LateFor   time.Duration // how late
	HoldFirst int64         // G: of the first 2G sequence numbers hold every odd one until the end
	HoldAll   bool          // never ack
	HotKey    string
	HotSleep  time.Duration
	Live      bool // record latency from the time stamp in the value
	Warm      time.Duration
	Abandon   bool // at the end drop the connections without acking what is held
	Pid       int
	RX        *atomic.Int64
	OnStart   func() // called once all consumers are open
	Debug     bool
	// UntilRedeliv ends the run at the first record whose delivery count is
	// above one; the result line gets first_s and first_redeliv_s.
	UntilRedeliv bool
}

type held struct {
	due time.Time
	m   Msg
}

// RunQueue runs the consumers and fills m.
func RunQueue(cfg QueueCfg, open func(i int) (Consumer, error), m map[string]any) error {
	run := Begin(cfg.Pid)
	seen := NewSeen(cfg.Total)
	var hist, cold, hot Hist
	var open0, maxOpen, redeliv, acked atomic.Int64
	var firstAt, lastAt, phase2At, redelAt atomic.Int64
	var phase2CPU atomic.Value
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	cs := make([]Consumer, cfg.N)
	errs := make(chan error, cfg.N*2)
	var wg sync.WaitGroup
	for i := range cs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			c, err := open(i)
			if err != nil {
				errs <- fmt.Errorf("open %d: %w", i, err)
				return
			}
			cs[i] = c
		}()
	}
	wg.Wait()
	select {
	case e := <-errs:
		return e
	default:
	}
	openSecs := time.Since(run.t0).Seconds()
	start := time.Now()
	warmUntil := start.Add(cfg.Warm)
	if cfg.OnStart != nil {
		cfg.OnStart()
	}
	per := make([]atomic.Int64, cfg.N)
	for i, c := range cs {
		wg.Add(1)
		go func() {
			defer wg.Done()
			var buf, acks []Msg
			var q []held
			for ctx.Err() == nil {
				var err error
				buf, err = c.Poll(ctx, buf[:0])
				if err != nil && ctx.Err() == nil {
					select {
					case errs <- fmt.Errorf("consumer %d: %w", i, err):
					default:
					}
					cancel()
					break
				}
				now := time.Now()
				if len(buf) > 0 {
					firstAt.CompareAndSwap(0, now.UnixNano())
					lastAt.Store(now.UnixNano())
				}
				acks = acks[:0]
				for j := range buf {
					x := &buf[j]
					if len(x.Val) < 16 {
						acks = append(acks, *x)
						continue
					}
					if x.Deliv > 1 {
						redelAt.CompareAndSwap(0, now.UnixNano())
					}
					seq := Seq(x.Val)
					isNew := seen.Add(seq)
					if !isNew {
						redeliv.Add(1)
					} else {
						per[i].Add(1)
					}
					if cfg.Live && isNew && now.After(warmUntil) {
						hist.Add(now.Sub(time.Unix(0, TS(x.Val))))
					}
					hold := false
					if cfg.HotKey != "" {
						if string(x.Key) == cfg.HotKey {
							time.Sleep(cfg.HotSleep)
							hot.Add(time.Since(start))
						} else {
							cold.Add(time.Since(start))
						}
						lastAt.Store(time.Now().UnixNano())
					}
					switch {
					case cfg.HoldAll:
						hold = true
					case cfg.HoldFirst > 0:
						hold = int64(seq) < 2*cfg.HoldFirst && seq&1 == 1
					case cfg.LatePct > 0 && isNew:
						hold = int((seq*2654435761)>>7%100) < cfg.LatePct
					}
					if hold {
						due := now.Add(cfg.LateFor)
						if cfg.HoldAll || cfg.HoldFirst > 0 {
							due = now.Add(time.Hour)
						}
						y := *x
						y.Key, y.Val = nil, nil
						q = append(q, held{due, y})
						n := open0.Add(1)
						if n > maxOpen.Load() {
							maxOpen.Store(n)
						}
					} else {
						acks = append(acks, *x)
					}
				}
				if cfg.HoldFirst > 0 && phase2At.Load() == 0 && seen.Uniq.Load() >= 2*cfg.HoldFirst {
					if phase2At.CompareAndSwap(0, time.Now().UnixNano()) {
						phase2CPU.Store(ReadProc(cfg.Pid).CPU)
					}
				}
				k := 0
				for k < len(q) && q[k].due.Before(now) {
					acks = append(acks, q[k].m)
					k++
				}
				if k > 0 {
					q = q[k:]
					open0.Add(int64(-k))
				}
				if len(acks) > 0 {
					if err := c.Ack(acks); err != nil && ctx.Err() == nil {
						select {
						case errs <- fmt.Errorf("ack %d: %w", i, err):
						default:
						}
						cancel()
					}
					acked.Add(int64(len(acks)))
				}
			}
			if !cfg.Abandon {
				fctx, fc := context.WithTimeout(context.Background(), 10*time.Second)
				if err := c.Flush(fctx); err != nil {
					select {
					case errs <- fmt.Errorf("flush %d: %w", i, err):
					default:
					}
				}
				fc()
			}
		}()
	}
	var line []int64
	prev := int64(0)
	lastProg := time.Now()
	tick := time.NewTicker(20 * time.Millisecond)
	nextSec := start.Add(time.Second)
	stalled := false
	for ctx.Err() == nil {
		<-tick.C
		now := time.Now()
		u := seen.Uniq.Load()
		if now.After(nextSec) {
			line = append(line, u-prev)
			if cfg.Debug {
				fmt.Fprintln(os.Stderr, "sec", len(line), "uniq", u, "dup", seen.Dup.Load(), "open", open0.Load())
			}
			prev = u
			nextSec = nextSec.Add(time.Second)
		}
		if t := lastAt.Load(); t != 0 && seen.Uniq.Load() > 0 {
			lp := time.Unix(0, t)
			if lp.After(lastProg) {
				lastProg = lp
			}
		}
		if u >= cfg.Records && !cfg.UntilRedeliv {
			break
		}
		if cfg.UntilRedeliv && redelAt.Load() != 0 {
			break
		}
		if now.Sub(start).Seconds() > cfg.Secs {
			break
		}
		if cfg.Stall > 0 && u > 0 && now.Sub(lastProg).Seconds() > cfg.Stall {
			stalled = true
			break
		}
	}
	uniq := seen.Uniq.Load()
	handled := time.Unix(0, lastAt.Load())
	cancel()
	wg.Wait()
	end := time.Now()
	if stalled || cfg.HotKey != "" {
		end = handled
	}
	el := 0.0
	if firstAt.Load() != 0 {
		el = end.Sub(time.Unix(0, firstAt.Load())).Seconds()
		m["join_secs"] = R3(time.Unix(0, firstAt.Load()).Sub(run.t0).Seconds())
	}
	run.EndAt(m, uniq, el)
	if t := redelAt.Load(); t != 0 {
		m["first_redeliv_s"] = R3(time.Unix(0, t).Sub(run.t0).Seconds())
		m["first_redeliv_unix_ms"] = t / 1e6
	}
	if t := firstAt.Load(); t != 0 && cfg.UntilRedeliv {
		m["first_unix_ms"] = t / 1e6
	}
	m["open_secs"] = R3(openSecs)
	m["consumers"] = cfg.N
	m["dup"] = seen.Dup.Load()
	m["stalled"] = stalled
	m["acked"] = acked.Load()
	m["max_open"] = maxOpen.Load()
	m["open_end"] = open0.Load()
	if len(line) <= 40 {
		m["line"] = line
	}
	active := 0
	for i := range per {
		if per[i].Load() > 0 {
			active++
		}
	}
	m["active"] = active
	if cfg.RX != nil && uniq > 0 {
		m["rx_b_rec"] = R3(float64(cfg.RX.Load()) / float64(uniq))
	}
	if cfg.Live {
		m["p50"], m["p99"], m["p999"], m["max_ms"] = hist.Q(.5), hist.Q(.99), hist.Q(.999), hist.Max()
		m["lat_n"] = hist.N()
	}
	if cfg.HotKey != "" {
		m["cold_p50"], m["cold_p99"], m["cold_max"] = cold.Q(.5), cold.Q(.99), cold.Max()
		m["hot_p50"], m["hot_max"], m["hot_n"] = hot.Q(.5), hot.Max(), hot.N()
	}
	if p := phase2At.Load(); p != 0 {
		n2 := uniq - 2*cfg.HoldFirst
		s2 := end.Sub(time.Unix(0, p)).Seconds()
		m["n2"] = n2
		m["rate2"] = int64(float64(n2) / s2)
		if n2 > 0 {
			m["cpu2_us_rec"] = R3((ReadProc(cfg.Pid).CPU - phase2CPU.Load().(float64)) / float64(n2) * 1e6)
		}
	}
	for i := range cs {
		wg.Add(1)
		go func() { defer wg.Done(); cs[i].Close(!cfg.Abandon) }()
	}
	wg.Wait()
	select {
	case e := <-errs:
		m["err"] = e.Error()
	default:
	}
	return nil
}
