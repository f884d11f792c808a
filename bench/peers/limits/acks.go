package main

import (
	"fmt"
	"time"
)

const (
	ackRecords = 2_000_000
	ackOpen    = 100_000 // late records that are open at a time
)

// acks measures what it costs to remember individually settled offsets, a tenth of them
// late.
func acks() {
	words := 0
	report("ack set as bitset + floor, 10% late", "ns/ack", 5, func() float64 {
		var s bitAcks
		d := settleSomeLate(s.set, func(int) {})
		if s.floor != ackRecords {
			panic(fmt.Sprintf("the floor is %d", s.floor))
		}
		words = max(words, s.most)
		return d
	})
	fmt.Printf("  peak %d KiB of words while %d gaps were open\n", words*8>>10, ackOpen)
	report("ack set as map[int64]state + floor, 10% late", "ns/ack", 3, func() float64 {
		s := mapAcks{states: map[int64]ackState{}}
		return settleSomeLate(s.set, s.acquire)
	})
}

// settleSomeLate settles all offsets, some of them late, and returns ns for each.
func settleSomeLate(set, acquire func(offset int)) float64 {
	start := time.Now()
	var late []int
	for i := range ackRecords {
		acquire(i)
		if (i*2654435761)>>7%10 == 0 {
			late = append(late, i)
		} else {
			set(i)
		}
		if len(late) > ackOpen {
			set(late[0])
			late = late[1:]
		}
	}
	for _, i := range late {
		set(i)
	}
	return float64(time.Since(start).Nanoseconds()) / ackRecords
}

// bitAcks is a bit for each offset from base on; below floor all are set.
type bitAcks struct {
	words       []uint64
	base, floor int
	most        int // words at once
}

func (s *bitAcks) has(i int) bool {
	w := (i - s.base) / 64
	return w < len(s.words) && s.words[w]&(1<<(i%64)) != 0
}

func (s *bitAcks) set(i int) {
	for (i-s.base)/64 >= len(s.words) {
		s.words = append(s.words, 0)
	}
	s.most = max(s.most, len(s.words))
	s.words[(i-s.base)/64] |= 1 << (i % 64)
	if i != s.floor {
		return
	}
	for s.has(s.floor) {
		s.floor++
	}
	if full := (s.floor - s.base) / 64; full > 4096 {
		s.words = append(s.words[:0], s.words[full:]...)
		s.base += full * 64
	}
}

// mapAcks is an entry for each offset from floor on.
type mapAcks struct {
	states map[int64]ackState
	floor  int64
}

// ackState is what a broker would keep of an acquired record.
type ackState struct {
	settled    bool
	member     string
	deliveries int32
	deadline   time.Time
}

func (s *mapAcks) acquire(i int) { s.states[int64(i)] = ackState{member: "m"} }

func (s *mapAcks) set(i int) {
	s.states[int64(i)] = ackState{settled: true}
	for s.states[s.floor].settled {
		delete(s.states, s.floor)
		s.floor++
	}
}
