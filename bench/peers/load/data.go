package load

import (
	"encoding/binary"
	"fmt"
	"math/rand"
	"sync/atomic"
)

// valueHeader is what Values writes at the start of each value.
const valueHeader = 16

// Keys is a table of made keys, "key-00000000" and on.
type Keys struct {
	tab  [][]byte
	zipf bool
	n    int
}

// NewKeys makes n keys, to be picked uniformly or by Zipf's law.
func NewKeys(n int, zipf bool) *Keys {
	k := &Keys{n: n, zipf: zipf}
	for i := 0; i < n; i++ {
		k.tab = append(k.tab, []byte(fmt.Sprintf("key-%08d", i)))
	}
	return k
}

// A Picker draws keys at random. It is for one goroutine.
type Picker struct {
	k *Keys
	r *rand.Rand
	z *rand.Zipf
}

// Picker returns one that always draws the same keys for a seed.
func (k *Keys) Picker(seed int64) *Picker {
	r := rand.New(rand.NewSource(seed))
	p := &Picker{k: k, r: r}
	if k.zipf {
		p.z = rand.NewZipf(r, 1.07, 1, uint64(k.n-1))
	}
	return p
}

// Index draws the number of a key.
func (p *Picker) Index() int {
	if p.z != nil {
		return int(p.z.Uint64())
	}
	return p.r.Intn(p.k.n)
}

// Next draws a key.
func (p *Picker) Next() []byte { return p.k.tab[p.Index()] }

// Key is the key with that number.
func (k *Keys) Key(i int) []byte { return k.tab[i] }

// Values hands out values: 8 bytes seq, 8 bytes unix-nanos, then random bytes.
type Values struct {
	size int
	rnd  []byte
	r    *rand.Rand
}

// NewValues makes values of size bytes, at least 16.
func NewValues(size int, seed int64) *Values {
	v := &Values{size: size, r: rand.New(rand.NewSource(seed))}
	v.rnd = make([]byte, 1<<20)
	v.r.Read(v.rnd)
	return v
}

// Make returns a new value with a sequence number and a time in unix nanoseconds.
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

// Seq is the sequence number of a value.
func Seq(b []byte) uint64 { return binary.BigEndian.Uint64(b) }

// Stamp is the time of a value in unix nanoseconds.
func Stamp(b []byte) int64 { return int64(binary.BigEndian.Uint64(b[8:])) }

// Seen counts unique sequence numbers and duplicates.
type Seen struct {
	w    []atomic.Uint64
	Uniq atomic.Int64
	Dup  atomic.Int64
}

// NewSeen counts sequence numbers below n.
func NewSeen(n int) *Seen { return &Seen{w: make([]atomic.Uint64, n/64+1)} }

// Add counts a number, and says whether it is new.
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

// KeyNumber is the number of a key of Keys. What is no digit does not count.
func KeyNumber(key []byte) int {
	n := 0
	for _, c := range key[min(4, len(key)):] {
		if c >= '0' && c <= '9' {
			n = n*10 + int(c-'0')
		}
	}
	return n
}
