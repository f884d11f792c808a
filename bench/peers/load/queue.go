package load

import (
	"context"
	"errors"
	"fmt"
	"os"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Msg is one delivered record.
type Msg struct {
	Part  int32
	Deliv int32 // delivery count, 0 where the server does not tell
	Off   int64
	Key   []byte
	Val   []byte
	H     any // the client's own handle
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
	Kill      bool // at the end, once every ack is confirmed, SIGKILL the server under what is held
	Pid       int
	RX        *atomic.Int64
	OnStart   func() // called once all consumers are open
	Debug     bool
	// UntilRedeliv ends the run at the first record whose delivery count is
	// above one; the result line gets first_s and first_redeliv_s.
	UntilRedeliv bool
}

// queue is one run of a queue workload.
type queue struct {
	cfg       QueueCfg
	run       *Run
	consumers []Consumer
	errs      chan error // the first ones; a full channel drops
	ctx       context.Context
	cancel    context.CancelFunc
	opened    time.Duration // how long it took until all consumers were open
	start     time.Time     // when they were

	seen                 *Seen
	per                  []atomic.Int64 // unique records by consumer
	latency, cold, hot   Histogram
	held, mostHeld       atomic.Int64
	acked                atomic.Int64
	firstAt, lastAt      atomic.Int64 // of a delivery, in unix nanoseconds; 0: none yet
	redeliveredAt        atomic.Int64
	phase2At             atomic.Int64 // when all of the gaps were open
	phase2CPU            atomic.Value // float64: the server's CPU seconds then
	line                 []int64      // unique records by second
	uniqueEnd            int64
	handledLast, endedAt time.Time
	stalled              bool
}

// RunQueue runs the consumers and fills m with what the run was.
func RunQueue(cfg QueueCfg, open func(i int) (Consumer, error), m map[string]any) error {
	q := &queue{
		cfg: cfg, run: Begin(cfg.Pid), seen: NewSeen(cfg.Total),
		consumers: make([]Consumer, cfg.N), per: make([]atomic.Int64, cfg.N), errs: make(chan error, cfg.N*2),
	}
	q.ctx, q.cancel = context.WithCancel(context.Background())
	defer q.cancel()
	if err := q.openAll(open); err != nil {
		return err
	}
	if cfg.OnStart != nil {
		cfg.OnStart()
	}
	var workers sync.WaitGroup
	for i := range q.consumers {
		workers.Go(func() { q.work(i) })
	}
	q.supervise()
	q.uniqueEnd = q.seen.Uniq.Load()
	q.handledLast = time.Unix(0, q.lastAt.Load())
	q.cancel()
	workers.Wait()
	q.endedAt = time.Now()
	if q.stalled || cfg.HotKey != "" {
		q.endedAt = q.handledLast
	}
	q.report(m)
	if cfg.Kill {
		if err := q.killServer(); err != nil {
			return err
		}
	}
	q.closeAll()
	select {
	case err := <-q.errs:
		m["err"] = err.Error()
	default:
	}
	return nil
}

func (q *queue) openAll(open func(i int) (Consumer, error)) error {
	var opening sync.WaitGroup
	for i := range q.consumers {
		opening.Go(func() {
			c, err := open(i)
			if err != nil {
				q.fail(fmt.Errorf("open %d: %w", i, err))
				return
			}
			q.consumers[i] = c
		})
	}
	opening.Wait()
	q.opened, q.start = time.Since(q.run.t0), time.Now()
	select {
	case err := <-q.errs:
		return err
	default:
		return nil
	}
}

func (q *queue) closeAll() {
	var closing sync.WaitGroup
	for _, c := range q.consumers {
		closing.Go(func() { c.Close(!q.cfg.Abandon && !q.cfg.Kill) })
	}
	closing.Wait()
}

// killServer ends the server as a crash would, while the members still hold their records.
func (q *queue) killServer() error {
	if q.cfg.Pid <= 0 {
		return errors.New("no pid of the server to kill")
	}
	if err := syscall.Kill(q.cfg.Pid, syscall.SIGKILL); err != nil {
		return fmt.Errorf("kill the server: %w", err)
	}
	return nil
}

// fail keeps an error for the result and ends the run.
func (q *queue) fail(err error) {
	select {
	case q.errs <- err:
	default:
	}
	q.cancel()
}

// supervise watches until the run has what it wants, stalls, or has run long enough.
func (q *queue) supervise() {
	progress, nextSecond := time.Now(), q.start.Add(time.Second)
	before := int64(0)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for q.ctx.Err() == nil {
		<-tick.C
		now, unique := time.Now(), q.seen.Uniq.Load()
		if now.After(nextSecond) {
			q.line = append(q.line, unique-before)
			if q.cfg.Debug {
				fmt.Fprintln(os.Stderr, "sec", len(q.line), "uniq", unique, "dup", q.seen.Dup.Load(), "open", q.held.Load())
			}
			before, nextSecond = unique, nextSecond.Add(time.Second)
		}
		if at := q.lastAt.Load(); at != 0 && unique > 0 && time.Unix(0, at).After(progress) {
			progress = time.Unix(0, at)
		}
		done := unique >= q.cfg.Records
		if q.cfg.UntilRedeliv {
			done = q.redeliveredAt.Load() != 0
		}
		if done || now.Sub(q.start).Seconds() > q.cfg.Secs {
			return
		}
		if q.cfg.Stall > 0 && unique > 0 && now.Sub(progress).Seconds() > q.cfg.Stall {
			q.stalled = true
			return
		}
	}
}
