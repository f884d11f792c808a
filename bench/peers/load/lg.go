// Package load holds what every load driver shares: histogram, key and value
// generators, /proc sampling and the result line.
package load

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"math/bits"
	"math/rand"
	"os"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// Hist is a log-linear histogram of microseconds (64 buckets per octave).
type Hist struct {
	c   [64 * 40]atomic.Int64
	n   atomic.Int64
	max atomic.Int64
}

func bucket(us int64) int {
	if us < 64 {
		if us < 0 {
			us = 0
		}
		return int(us)
	}
	e := bits.Len64(uint64(us)) - 7
	return (e+1)*64 + int(us>>uint(e)) - 64
}

func bucketVal(b int) int64 {
	if b < 64 {
		return int64(b)
	}
	e := b/64 - 1
	return int64(b%64+64) << uint(e)
}

func (h *Hist) Add(d time.Duration) {
	us := d.Microseconds()
	b := bucket(us)
	if b >= len(h.c) {
		b = len(h.c) - 1
	}
	h.c[b].Add(1)
	h.n.Add(1)
	for {
		m := h.max.Load()
		if us <= m || h.max.CompareAndSwap(m, us) {
			return
		}
	}
}

func (h *Hist) N() int64 { return h.n.Load() }

// Q returns quantile q in milliseconds.
func (h *Hist) Q(q float64) float64 {
	n := h.n.Load()
	if n == 0 {
		return 0
	}
	want := int64(math.Ceil(q * float64(n)))
	var s int64
	for i := range h.c {
		s += h.c[i].Load()
		if s >= want {
			return float64(bucketVal(i)) / 1000
		}
	}
	return float64(h.max.Load()) / 1000
}

func (h *Hist) Max() float64 { return float64(h.max.Load()) / 1000 }

// Keys returns a table of pre-made keys and a picker.
type Keys struct {
	tab  [][]byte
	zipf bool
	n    int
}

func NewKeys(n int, zipf bool) *Keys {
	k := &Keys{n: n, zipf: zipf}
	for i := 0; i < n; i++ {
		k.tab = append(k.tab, []byte(fmt.Sprintf("key-%08d", i)))
	}
	return k
}

type Picker struct {
	k *Keys
	r *rand.Rand
	z *rand.Zipf
}

func (k *Keys) Picker(seed int64) *Picker {
	r := rand.New(rand.NewSource(seed))
	p := &Picker{k: k, r: r}
	if k.zipf {
		p.z = rand.NewZipf(r, 1.07, 1, uint64(k.n-1))
	}
	return p
}

func (p *Picker) Index() int {
	if p.z != nil {
		return int(p.z.Uint64())
	}
	return p.r.Intn(p.k.n)
}
func (p *Picker) Next() []byte { return p.k.tab[p.Index()] }

func (k *Keys) Key(i int) []byte { return k.tab[i] }

// Values hands out values: 8 bytes seq, 8 bytes unix-nanos, then random bytes.
type Values struct {
	size int
	rnd  []byte
	r    *rand.Rand
}

func NewValues(size int, seed int64) *Values {
	v := &Values{size: size, r: rand.New(rand.NewSource(seed))}
	v.rnd = make([]byte, 1<<20)
	v.r.Read(v.rnd)
	return v
}

func (v *Values) Make(seq uint64, ts int64) []byte {
	b := make([]byte, v.size)
	binary.BigEndian.PutUint64(b, seq)
	binary.BigEndian.PutUint64(b[8:], uint64(ts))
	if v.size > 16 {
		o := v.r.Intn(len(v.rnd) - v.size)
		copy(b[16:], v.rnd[o:])
	}
	return b
}

func Seq(b []byte) uint64 { return binary.BigEndian.Uint64(b) }
func TS(b []byte) int64   { return int64(binary.BigEndian.Uint64(b[8:])) }

// Seen counts unique sequence numbers and duplicates.
type Seen struct {
	w    []atomic.Uint64
	Uniq atomic.Int64
	Dup  atomic.Int64
}

func NewSeen(n int) *Seen { return &Seen{w: make([]atomic.Uint64, n/64+1)} }

func (s *Seen) Add(seq uint64) bool {
	i := seq / 64
	if int(i) >= len(s.w) {
		return false
	}
	m := uint64(1) << (seq % 64)
	for {
		o := s.w[i].Load()
		if o&m != 0 {
			s.Dup.Add(1)
			return false
		}
		if s.w[i].CompareAndSwap(o, o|m) {
			s.Uniq.Add(1)
			return true
		}
	}
}

// Proc is one reading of a process.
type Proc struct {
	CPU float64 // user+sys seconds
	RSS int64   // KiB
	HWM int64
	WrB int64 // write_bytes
}

func ReadProc(pid int) (p Proc) {
	if pid <= 0 {
		return
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return
	}
	s := string(b)
	s = s[strings.LastIndexByte(s, ')')+2:]
	f := strings.Fields(s)
	u, _ := strconv.ParseFloat(f[11], 64)
	k, _ := strconv.ParseFloat(f[12], 64)
	p.CPU = (u + k) / 100
	b, _ = os.ReadFile(fmt.Sprintf("/proc/%d/status", pid))
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "VmRSS:") {
			fmt.Sscanf(l[6:], "%d", &p.RSS)
		}
		if strings.HasPrefix(l, "VmHWM:") {
			fmt.Sscanf(l[6:], "%d", &p.HWM)
		}
	}
	b, _ = os.ReadFile(fmt.Sprintf("/proc/%d/io", pid))
	for _, l := range strings.Split(string(b), "\n") {
		if strings.HasPrefix(l, "write_bytes:") {
			fmt.Sscanf(l[12:], "%d", &p.WrB)
		}
	}
	return
}

func SelfCPU() float64 {
	var ru syscall.Rusage
	syscall.Getrusage(syscall.RUSAGE_SELF, &ru)
	return float64(ru.Utime.Sec+ru.Stime.Sec) + float64(ru.Utime.Usec+ru.Stime.Usec)/1e6
}

// Steal and busy jiffies of the whole machine.
func machine() (busy, idle, steal float64) {
	b, _ := os.ReadFile("/proc/stat")
	f := strings.Fields(strings.SplitN(string(b), "\n", 2)[0])
	v := func(i int) float64 { x, _ := strconv.ParseFloat(f[i], 64); return x / 100 }
	return v(1) + v(2) + v(3) + v(6) + v(7), v(4) + v(5), v(8)
}

func Load1() float64 {
	b, _ := os.ReadFile("/proc/loadavg")
	f, _ := strconv.ParseFloat(strings.Fields(string(b))[0], 64)
	return f
}

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

func (r *Run) Start() time.Time { return r.t0 }

// End fills the shared columns. n is the number of records the run moved.
func (r *Run) End(m map[string]any, n int64) {
	el := time.Since(r.t0).Seconds()
	r.EndAt(m, n, el)
}

func (r *Run) EndAt(m map[string]any, n int64, el float64) {
	wall := time.Since(r.t0).Seconds()
	busy, _, st := machine()
	p := ReadProc(r.pid)
	self := SelfCPU() - r.self0
	br := p.CPU - r.p0.CPU
	m["n"] = n
	m["secs"] = round(el)
	m["rate"] = 0.0
	if el > 0 {
		m["rate"] = math.Round(float64(n) / el)
	}
	m["cpu_broker"] = round(br)
	m["cpu_self"] = round(self)
	// what neither the broker nor the driver used: kernel threads + others
	m["cpu_other"] = round(busy - r.busy0 - br - self)
	m["steal"] = round(st - r.st0)
	m["wall"] = round(wall)
	if n > 0 {
		m["cpu_us_rec"] = round(br / float64(n) * 1e6)
		m["self_us_rec"] = round(self / float64(n) * 1e6)
	}
	m["rss_mb"] = p.RSS / 1024
	m["wr_mb"] = (p.WrB - r.p0.WrB) >> 20
	m["load1"] = r.loadBefore
	m["pre_busy_pct"] = math.Round(r.foreignBeforePct)
}

func round(f float64) float64 { return math.Round(f*1000) / 1000 }
func R3(f float64) float64    { return round(f) }

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
