package load

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"sync"
	"time"
)

// Run measures one run.
type Run struct {
	pid              int
	t0               time.Time
	p0               Proc
	self0            float64
	busy0, st0       float64
	loadBefore       float64
	foreignBeforePct float64
}

// Begin samples the machine for 200 ms (to see foreign load) and starts the clock.
func Begin(pid int) *Run {
	r := &Run{pid: pid, loadBefore: Load1()}
	b0, i0, _ := machine()
	time.Sleep(200 * time.Millisecond)
	b1, i1, _ := machine()
	if b1-b0+i1-i0 > 0 {
		r.foreignBeforePct = 100 * (b1 - b0) / (b1 - b0 + i1 - i0)
	}
	r.busy0, _, r.st0 = machine()
	r.p0 = ReadProc(pid)
	r.self0 = SelfCPU()
	r.t0 = time.Now()
	return r
}

// End fills the shared columns. n is the number of records the run moved.
func (r *Run) End(m map[string]any, n int64) {
	r.EndAt(m, n, time.Since(r.t0).Seconds())
}

// EndAt is End for a run whose clock was stopped after elapsed seconds.
func (r *Run) EndAt(m map[string]any, n int64, elapsed float64) {
	wall := time.Since(r.t0).Seconds()
	busy, _, st := machine()
	p := ReadProc(r.pid)
	self := SelfCPU() - r.self0
	br := p.CPU - r.p0.CPU
	m["n"] = n
	m["secs"] = R3(elapsed)
	m["rate"] = 0.0
	if elapsed > 0 {
		m["rate"] = math.Round(float64(n) / elapsed)
	}
	m["cpu_broker"] = R3(br)
	m["cpu_self"] = R3(self)
	// what neither the broker nor the driver used: kernel threads + others
	m["cpu_other"] = R3(busy - r.busy0 - br - self)
	m["steal"] = R3(st - r.st0)
	m["wall"] = R3(wall)
	if n > 0 {
		m["cpu_us_rec"] = R3(br / float64(n) * 1e6)
		m["self_us_rec"] = R3(self / float64(n) * 1e6)
	}
	m["rss_mb"] = p.RSS / 1024
	m["wr_mb"] = (p.WrB - r.p0.WrB) >> 20
	m["load1"] = r.loadBefore
	m["pre_busy_pct"] = math.Round(r.foreignBeforePct)
}

// R3 rounds to three decimals.
func R3(f float64) float64 { return math.Round(f*1000) / 1000 }

var emitMu sync.Mutex

// Emit prints one JSON line and appends it to file when set.
func Emit(file string, m map[string]any) {
	b, _ := json.Marshal(m)
	emitMu.Lock()
	defer emitMu.Unlock()
	fmt.Println(string(b))
	if file != "" {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
		if err == nil {
			f.Write(append(b, '\n'))
			f.Close()
		}
	}
}
