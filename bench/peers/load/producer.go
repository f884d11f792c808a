package load

import (
	"flag"
	"time"
)

// ProduceFlags are the flags of a produce run.
type ProduceFlags struct {
	Rate     float64 // records a second; 0: as fast as possible
	Hot      string
	HotEvery int
	From     uint64
	Warm     int64
}

// Register adds the flags to fs.
func (p *ProduceFlags) Register(fs *flag.FlagSet) {
	fs.Float64Var(&p.Rate, "rate", 0, "records/s, 0 = as fast as possible")
	fs.StringVar(&p.Hot, "hot", "", "hot key")
	fs.IntVar(&p.HotEvery, "hotevery", 100, "every so many records carries the hot key")
	fs.Uint64Var(&p.From, "from", 0, "first sequence number")
	fs.Int64Var(&p.Warm, "warm", 0, "warm-up records first (sequence numbers above the measured ones)")
}

// WarmUp is what is produced before a measured run.
func (p *ProduceFlags) WarmUp() ProduceFlags { return ProduceFlags{From: 1 << 40} }

// A Source makes the records of a produce run, at the run's pace.
type Source struct {
	p     ProduceFlags
	keys  *Picker
	vals  *Values
	start time.Time
}

// NewSource starts the clock of a run; a seed always makes the same records.
func NewSource(s *Settings, p ProduceFlags, seed int64) *Source {
	return &Source{
		p: p, keys: NewKeys(s.Keys, s.Zipf).Picker(seed), vals: NewValues(s.Size, seed), start: time.Now(),
	}
}

// Next makes record i, when it is due. It returns the time from which latency counts:
// the scheduled one, so that a server that stalls is not spared.
func (s *Source) Next(i int64) (key, value []byte, due time.Time) {
	due = time.Now()
	if s.p.Rate > 0 {
		due = s.start.Add(time.Duration(float64(i) / s.p.Rate * 1e9))
		if d := time.Until(due); d > 500*time.Microsecond {
			time.Sleep(d)
		}
	}
	key = s.keys.Next()
	if s.p.Hot != "" && i%int64(s.p.HotEvery) == 0 {
		key = []byte(s.p.Hot)
	}
	return key, s.vals.Make(s.p.From+uint64(i), due.UnixNano()), due
}
