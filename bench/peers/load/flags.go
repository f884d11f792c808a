package load

import (
	"flag"
	"fmt"
	"net"
	"os"
	"sync/atomic"
	"time"
)

// Settings are the flags that every command of a driver has.
type Settings struct {
	Addr, Topic string
	Pid         int
	Out, Label  string
	Size        int
	N           int64
	Parts, Keys int
	Zipf        bool
	Secs        float64
}

// Register adds the flags to fs; addr is where the server is by default.
func (s *Settings) Register(fs *flag.FlagSet, addr string) {
	fs.StringVar(&s.Addr, "b", addr, "server host:port")
	fs.StringVar(&s.Topic, "t", "bench", "topic or stream")
	fs.IntVar(&s.Pid, "pid", 0, "server's pid, for CPU and memory")
	fs.StringVar(&s.Out, "out", "", "append the JSON result line to this file")
	fs.StringVar(&s.Label, "label", "", "label of the run")
	fs.IntVar(&s.Size, "size", 100, "value size in bytes (>= 16)")
	fs.Int64Var(&s.N, "n", 1_000_000, "records")
	fs.IntVar(&s.Parts, "parts", 1, "partitions, or streams")
	fs.IntVar(&s.Keys, "keys", 100_000, "distinct keys")
	fs.BoolVar(&s.Zipf, "zipf", false, "zipfian keys (s=1.07) instead of uniform")
	fs.Float64Var(&s.Secs, "secs", 30, "time cap in seconds")
}

// Cap is the time cap.
func (s *Settings) Cap() time.Duration { return time.Duration(s.Secs * float64(time.Second)) }

// QueueFlags are the flags of a queue workload.
type QueueFlags struct {
	Group    string
	Rate     float64 // offered records a second, live; 0: drain what is there
	MaxRec   int     // records a poll
	Hot      string
	cfg      QueueCfg
	settings *Settings
}

// Register adds the flags to fs.
func (q *QueueFlags) Register(fs *flag.FlagSet, s *Settings) {
	q.settings = s
	fs.StringVar(&q.Group, "g", "", "group (default: a fresh one)")
	fs.Float64Var(&q.Rate, "rate", 0, "offer this many records/s live; 0 = drain what is there")
	fs.IntVar(&q.MaxRec, "max", 500, "max records per poll or fetch")
	fs.IntVar(&q.cfg.N, "c", 1, "consumers")
	fs.IntVar(&q.cfg.LatePct, "late", 0, "percent of records acked late")
	fs.DurationVar(&q.cfg.LateFor, "latefor", 5*time.Second, "how late")
	fs.Int64Var(&q.cfg.HoldFirst, "gaps", 0, "hold every odd one of the first 2G records")
	fs.BoolVar(&q.cfg.HoldAll, "holdall", false, "never ack")
	fs.StringVar(&q.Hot, "hot", "", "hot key")
	fs.DurationVar(&q.cfg.HotSleep, "hotsleep", 50*time.Millisecond, "handler time of the hot key")
	fs.Float64Var(&q.cfg.Stall, "stall", 5, "give up after so many seconds without a delivery")
	fs.BoolVar(&q.cfg.Abandon, "abandon", false, "drop connections at the end, do not ack held ones")
	fs.BoolVar(&q.cfg.Kill, "kill", false, "SIGKILL the server (-pid) at the end, acks confirmed and held records open")
	fs.DurationVar(&q.cfg.Warm, "warm", 2*time.Second, "live mode: ignore latencies this long")
	fs.BoolVar(&q.cfg.UntilRedeliv, "redeliv", false, "end at the first redelivered record")
	fs.BoolVar(&q.cfg.Debug, "v", false, "one line a second on stderr")
}

// Config is the workload that the flags describe; it names a fresh group where none was
// given.
func (q *QueueFlags) Config(traffic *Traffic) QueueCfg {
	if q.Group == "" {
		q.Group = fmt.Sprintf("g-%d", time.Now().UnixNano())
	}
	cfg := q.cfg
	cfg.Records, cfg.Secs, cfg.Pid = q.settings.N, q.settings.Secs, q.settings.Pid
	cfg.Total = max(int(q.settings.N)*4, 8<<20)
	cfg.HotKey, cfg.Live, cfg.RX = q.Hot, q.Rate > 0, &traffic.RX
	return cfg
}

// Result begins the result line of the workload.
func (q *QueueFlags) Result() map[string]any {
	return map[string]any{
		"w": "queue", "label": q.settings.Label, "size": q.settings.Size, "late": q.cfg.LatePct,
		"gaps": q.cfg.HoldFirst, "offered": q.Rate, "maxrec": q.MaxRec, "group": q.Group,
	}
}

// Traffic counts the bytes of a driver's connections.
type Traffic struct{ RX, TX atomic.Int64 }

// Count returns a connection whose bytes are counted.
func (t *Traffic) Count(c net.Conn) net.Conn { return countedConn{c, t} }

type countedConn struct {
	net.Conn
	traffic *Traffic
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.traffic.RX.Add(int64(n))
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.traffic.TX.Add(int64(n))
	return n, err
}

// Check ends the program when err is not nil.
func Check(err error) {
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}
