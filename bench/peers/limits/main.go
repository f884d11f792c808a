// limits measures what the machine itself can do.
package main

import (
	"encoding/binary"
	"flag"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"path/filepath"
	"sort"
	"sync"
	"time"

	"github.com/cespare/xxhash/v2"
	"github.com/cockroachdb/pebble/v2"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/bench/peers/load"
)

var sink uint64

func rep(name, unit string, n int, f func() float64) {
	var v []float64
	for i := 0; i < n; i++ {
		v = append(v, f())
	}
	sort.Float64s(v)
	fmt.Printf("%-46s %12.2f %12.2f %12.2f %s\n", name, v[0], v[len(v)/2], v[len(v)-1], unit)
}

func perOp(n int, f func(n int)) func() float64 {
	return func() float64 {
		t := time.Now()
		f(n)
		return float64(time.Since(t).Nanoseconds()) / float64(n)
	}
}

func murmur2(data []byte) uint32 {
	const m, r = 0x5bd1e995, 24
	h := uint32(0x9747b28c) ^ uint32(len(data))
	for len(data) >= 4 {
		k := binary.LittleEndian.Uint32(data)
		k *= m
		k ^= k >> r
		k *= m
		h *= m
		h ^= k
		data = data[4:]
	}
	switch len(data) {
	case 3:
		h ^= uint32(data[2]) << 16
		fallthrough
	case 2:
		h ^= uint32(data[1]) << 8
		fallthrough
	case 1:
		h ^= uint32(data[0])
		h *= m
	}
	h ^= h >> 13
	h *= m
	h ^= h >> 15
	return h
}

func disk(dir string) {
	p := filepath.Join(dir, "limit.dat")
	buf := make([]byte, 1<<20)
	for i := range buf {
		buf[i] = byte(i * 2654435761 >> 13)
	}
	rep("disk seq write 1 GiB + one fsync", "MB/s", 3, func() float64 {
		f, _ := os.Create(p)
		t := time.Now()
		for i := 0; i < 1024; i++ {
			f.Write(buf)
		}
		f.Sync()
		s := time.Since(t).Seconds()
		f.Close()
		os.Remove(p)
		return 1073.7 / s
	})
	rep("disk seq write 512 MiB, page cache only", "MB/s", 3, func() float64 {
		f, _ := os.Create(p)
		t := time.Now()
		for i := 0; i < 512; i++ {
			f.Write(buf)
		}
		s := time.Since(t).Seconds()
		f.Sync()
		f.Close()
		os.Remove(p)
		return 536.9 / s
	})
	for _, sz := range []int{4 << 10, 64 << 10, 1 << 20} {
		var h load.Hist
		f, _ := os.Create(p)
		t := time.Now()
		c := 0
		for c < 400 && time.Since(t) < 6*time.Second {
			t1 := time.Now()
			f.Write(buf[:sz])
			f.Sync()
			h.Add(time.Since(t1))
			c++
		}
		s := time.Since(t).Seconds()
		f.Close()
		os.Remove(p)
		fmt.Printf("append %4d KiB + fsync: %.0f/s  p50 %.2f ms  p99 %.2f ms  max %.2f ms  (%d ops)\n", sz>>10, float64(c)/s, h.Q(.5), h.Q(.99), h.Max(), c)
	}
}

func loopback() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		panic(err)
	}
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				b := make([]byte, 1<<18)
				var hdr [1]byte
				if _, err := io.ReadFull(c, hdr[:]); err != nil {
					return
				}
				for {
					n, err := c.Read(b)
					if err != nil {
						return
					}
					if hdr[0] == 1 {
						c.Write(b[:n])
					}
				}
			}()
		}
	}()
	rep("loopback TCP one way, 64 KiB writes", "MB/s", 3, func() float64 {
		c, _ := net.Dial("tcp", l.Addr().String())
		defer c.Close()
		c.Write([]byte{0})
		b := make([]byte, 64<<10)
		t := time.Now()
		var n int64
		for time.Since(t) < 2*time.Second {
			k, _ := c.Write(b)
			n += int64(k)
		}
		return float64(n) / 1e6 / time.Since(t).Seconds()
	})
	var h load.Hist
	c, _ := net.Dial("tcp", l.Addr().String())
	c.Write([]byte{1})
	b := make([]byte, 100)
	t := time.Now()
	cpu := load.SelfCPU()
	n := 0
	for time.Since(t) < 3*time.Second {
		t1 := time.Now()
		c.Write(b)
		io.ReadFull(c, b)
		h.Add(time.Since(t1))
		n++
	}
	fmt.Printf("loopback ping-pong 100 B: %.0f/s  p50 %.3f ms  p99 %.3f ms  p99.9 %.3f ms, CPU both sides %.1f us per round trip\n", float64(n)/time.Since(t).Seconds(), h.Q(.5), h.Q(.99), h.Q(.999), (load.SelfCPU()-cpu)/float64(n)*1e6)
	c.Close()
}

func mem() {
	for _, sz := range []int{64 << 10, 1 << 20, 256 << 20} {
		a, b := make([]byte, sz), make([]byte, sz)
		for i := range a {
			a[i] = byte(i)
		}
		copy(b, a)
		rep(fmt.Sprintf("memcpy %d KiB", sz>>10), "GB/s", 5, func() float64 {
			t := time.Now()
			n := 0
			for time.Since(t) < 200*time.Millisecond {
				copy(b, a)
				n++
			}
			return float64(n) * float64(sz) / 1e9 / time.Since(t).Seconds()
		})
	}
	tab := crc32.MakeTable(crc32.Castagnoli)
	b := make([]byte, 16<<10)
	rep("CRC-32C of 16 KiB", "GB/s", 5, func() float64 {
		t := time.Now()
		n := 0
		for time.Since(t) < 200*time.Millisecond {
			sink += uint64(crc32.Checksum(b, tab))
			n++
		}
		return float64(n) * 16384 / 1e9 / time.Since(t).Seconds()
	})
}

func hashes() {
	keys := load.NewKeys(4096, false)
	rep("xxhash64 of a 12-byte key", "ns/key", 5, perOp(5e6, func(n int) {
		for i := 0; i < n; i++ {
			sink += xxhash.Sum64(keys.Key(i & 4095))
		}
	}))
	rep("murmur2 of a 12-byte key", "ns/key", 5, perOp(5e6, func(n int) {
		for i := 0; i < n; i++ {
			sink += uint64(murmur2(keys.Key(i & 4095)))
		}
	}))
}

// makeBatch builds an uncompressed v2 batch.
func makeBatch(n, size int) []byte {
	var recs []byte
	keys := load.NewKeys(4096, false)
	vals := load.NewValues(size, 1)
	for i := 0; i < n; i++ {
		k, v := keys.Key(i&4095), vals.Make(uint64(i), 0)
		var r []byte
		r = append(r, 0)
		r = binary.AppendVarint(r, 0)
		r = binary.AppendVarint(r, int64(i))
		r = binary.AppendVarint(r, int64(len(k)))
		r = append(r, k...)
		r = binary.AppendVarint(r, int64(len(v)))
		r = append(r, v...)
		r = append(r, 0)
		recs = binary.AppendVarint(recs, int64(len(r)))
		recs = append(recs, r...)
	}
	b := make([]byte, 61)
	binary.BigEndian.PutUint32(b[8:], uint32(49+len(recs)))
	b[16] = 2
	binary.BigEndian.PutUint32(b[23:], uint32(n-1))
	binary.BigEndian.PutUint32(b[57:], uint32(n))
	b = append(b, recs...)
	binary.BigEndian.PutUint32(b[17:], crc32.Checksum(b[21:], crc32.MakeTable(crc32.Castagnoli)))
	return b
}

func wire() {
	b := makeBatch(130, 100)
	fmt.Printf("a batch of 130 x 100-byte values is %d bytes\n", len(b))
	tab := crc32.MakeTable(crc32.Castagnoli)
	rep("walk records of a batch + hash keys", "ns/record", 5, perOp(20000*130, func(n int) {
		for j := 0; j < n/130; j++ {
			body := b[61:]
			for i := 0; i < 130; i++ {
				ln, k := binary.Varint(body)
				rec := body[k : k+int(ln)]
				body = body[k+int(ln):]
				rec = rec[1:]
				_, k = binary.Varint(rec)
				rec = rec[k:]
				_, k = binary.Varint(rec)
				rec = rec[k:]
				kl, k := binary.Varint(rec)
				sink += uint64(murmur2(rec[k : k+int(kl)]))
			}
		}
	}))
	rep("CRC check of that batch", "ns/record", 5, perOp(20000*130, func(n int) {
		for j := 0; j < n/130; j++ {
			sink += uint64(crc32.Checksum(b[21:], tab))
		}
	}))
	f := kmsg.NewRequestFormatter(kmsg.FormatterClientID("x"))
	pr := kmsg.NewPtrProduceRequest()
	pr.Version = 9
	t := kmsg.NewProduceRequestTopic()
	t.Topic = "bench"
	p := kmsg.NewProduceRequestTopicPartition()
	p.Records = b
	t.Partitions = append(t.Partitions, p)
	pr.Topics = append(pr.Topics, t)
	var out []byte
	rep("kmsg encode Produce v9 (1 batch, 15 KiB)", "ns/request", 5, perOp(200000, func(n int) {
		for i := 0; i < n; i++ {
			out = f.AppendRequest(out[:0], pr, 1)
		}
	}))
	body := pr.AppendTo(nil)
	rep("kmsg decode Produce v9", "ns/request", 5, perOp(200000, func(n int) {
		for i := 0; i < n; i++ {
			var q kmsg.ProduceRequest
			q.Version = 9
			if err := q.ReadFrom(body); err != nil {
				panic(err)
			}
		}
	}))
	fr := kmsg.NewPtrFetchRequest()
	fr.Version = 16
	ft := kmsg.NewFetchRequestTopic()
	fp := kmsg.NewFetchRequestTopicPartition()
	ft.Partitions = append(ft.Partitions, fp)
	fr.Topics = append(fr.Topics, ft)
	fb := fr.AppendTo(nil)
	rep("kmsg encode Fetch v16 (1 partition)", "ns/request", 5, perOp(500000, func(n int) {
		for i := 0; i < n; i++ {
			out = f.AppendRequest(out[:0], fr, 1)
		}
	}))
	rep("kmsg decode Fetch v16", "ns/request", 5, perOp(500000, func(n int) {
		for i := 0; i < n; i++ {
			var q kmsg.FetchRequest
			q.Version = 16
			if err := q.ReadFrom(fb); err != nil {
				panic(err)
			}
		}
	}))
	fres := fr.ResponseKind().(*kmsg.FetchResponse)
	rt := kmsg.NewFetchResponseTopic()
	rp := kmsg.NewFetchResponseTopicPartition()
	rp.RecordBatches = b
	rt.Partitions = append(rt.Partitions, rp)
	fres.Topics = append(fres.Topics, rt)
	rep("kmsg encode Fetch response (15 KiB)", "ns/response", 5, perOp(200000, func(n int) {
		for i := 0; i < n; i++ {
			out = fres.AppendTo(out[:0])
		}
	}))
	sf := kmsg.NewPtrShareFetchRequest()
	sf.Version = 2
	g := "g"
	sf.GroupID, sf.MemberID = &g, &g
	st := kmsg.NewShareFetchRequestTopic()
	sp := kmsg.NewShareFetchRequestTopicPartition()
	for i := int64(0); i < 50; i++ {
		a := kmsg.NewShareFetchRequestTopicPartitionAcknowledgementBatch()
		a.FirstOffset, a.LastOffset, a.AcknowledgeTypes = i*10, i*10+8, []int8{1}
		sp.AcknowledgementBatches = append(sp.AcknowledgementBatches, a)
	}
	st.Partitions = append(st.Partitions, sp)
	sf.Topics = append(sf.Topics, st)
	sb := sf.AppendTo(nil)
	rep("kmsg decode ShareFetch with 50 ack ranges", "ns/request", 5, perOp(100000, func(n int) {
		for i := 0; i < n; i++ {
			var q kmsg.ShareFetchRequest
			q.Version = 2
			if err := q.ReadFrom(sb); err != nil {
				panic(err)
			}
		}
	}))
}

func peb(dir string) {
	for _, sync_ := range []bool{true, false} {
		for _, per := range []int{1, 100, 1000} {
			for _, par := range []int{1, 16} {
				d := filepath.Join(dir, "pebble")
				os.RemoveAll(d)
				db, err := pebble.Open(d, &pebble.Options{Logger: quiet{}})
				if err != nil {
					panic(err)
				}
				wo := pebble.NoSync
				if sync_ {
					wo = pebble.Sync
				}
				var wg sync.WaitGroup
				counts := make([]int, par)
				c0 := load.SelfCPU()
				t := time.Now()
				for w := 0; w < par; w++ {
					wg.Add(1)
					go func() {
						defer wg.Done()
						k := make([]byte, 16)
						v := make([]byte, 8)
						binary.BigEndian.PutUint64(k, uint64(w))
						for i := 0; time.Since(t) < 2*time.Second; i++ {
							b := db.NewBatch()
							for j := 0; j < per; j++ {
								binary.BigEndian.PutUint64(k[8:], uint64(i*per+j))
								b.Set(k, v, nil)
							}
							if err := b.Commit(wo); err != nil {
								panic(err)
							}
							counts[w]++
						}
					}()
				}
				wg.Wait()
				s := time.Since(t).Seconds()
				cpu := load.SelfCPU() - c0
				n := 0
				for _, c := range counts {
					n += c
				}
				fmt.Printf("pebble sync=%-5v batch=%-4d writers=%-2d: %8.0f commits/s  %10.0f keys/s  %.2f us CPU/key\n", sync_, per, par, float64(n)/s, float64(n*per)/s, cpu/float64(n*per)*1e6)
				db.Close()
				os.RemoveAll(d)
			}
		}
	}
}

// acks: cost of remembering individually settled offsets, 10% of them late.
func acks() {
	const n = 2_000_000
	late := func(i int) bool { return (i*2654435761)>>7%10 == 0 }
	var words, lateN int
	rep("ack set as bitset + floor, 10% late", "ns/ack", 5, func() float64 {
		t := time.Now()
		var w []uint64
		base, floor := 0, 0
		var q []int
		set := func(i int) {
			for (i-base)/64 >= len(w) {
				w = append(w, 0)
			}
			w[(i-base)/64] |= 1 << (i % 64)
			if i == floor {
				for (floor-base)/64 < len(w) && w[(floor-base)/64]&(1<<(floor%64)) != 0 {
					floor++
				}
				if k := (floor - base) / 64; k > 4096 {
					w = append(w[:0], w[k:]...)
					base += k * 64
				}
			}
		}
		for i := 0; i < n; i++ {
			if late(i) {
				q = append(q, i)
				lateN++
			} else {
				set(i)
			}
			if len(q) > 100000 {
				set(q[0])
				q = q[1:]
			}
			if len(w) > words {
				words = len(w)
			}
		}
		for _, i := range q {
			set(i)
		}
		if floor != n {
			panic(floor)
		}
		return float64(time.Since(t).Nanoseconds()) / n
	})
	fmt.Printf("  peak %d KiB of words while 100000 gaps were open\n", words*8>>10)
	rep("ack set as map[int64]state + floor, 10% late", "ns/ack", 3, func() float64 {
		type st struct {
			s  int8
			by string
			n  int32
			t  time.Time
		}
		t := time.Now()
		m := map[int64]st{}
		floor := int64(0)
		var q []int64
		set := func(i int64) {
			m[i] = st{s: 2}
			for {
				x, ok := m[floor]
				if !ok || x.s != 2 {
					break
				}
				delete(m, floor)
				floor++
			}
		}
		for i := int64(0); i < n; i++ {
			m[i] = st{s: 1, by: "m"}
			if late(int(i)) {
				q = append(q, i)
			} else {
				set(i)
			}
			if len(q) > 100000 {
				set(q[0])
				q = q[1:]
			}
		}
		for _, i := range q {
			set(i)
		}
		return float64(time.Since(t).Nanoseconds()) / n
	})
}

type quiet struct{}

func (quiet) Infof(string, ...any)  {}
func (quiet) Errorf(string, ...any) {}
func (quiet) Fatalf(f string, a ...any) {
	panic(fmt.Sprintf(f, a...))
}

func main() {
	dir := flag.String("dir", os.TempDir(), "where to write")
	only := flag.String("only", "", "disk|net|mem|hash|wire|pebble")
	flag.Parse()
	fmt.Printf("%-46s %12s %12s %12s\n", "", "min", "median", "max")
	do := func(n string, f func()) {
		if *only == "" || *only == n {
			fmt.Printf("-- %s, load1 %.2f\n", n, load.Load1())
			f()
		}
	}
	do("mem", mem)
	do("hash", hashes)
	do("wire", wire)
	do("acks", acks)
	do("net", loopback)
	do("disk", func() { disk(*dir) })
	do("pebble", func() { peb(*dir) })
}
