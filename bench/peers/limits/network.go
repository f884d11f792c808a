package main

import (
	"fmt"
	"io"
	"net"
	"time"

	"github.com/lacunamq/lacuna/bench/peers/load"
)

// The first byte of a connection says what the other side does with the rest.
const (
	discard = 0
	echo    = 1
)

// loopback measures a TCP connection to this machine.
func loopback() {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	load.Check(err)
	defer l.Close()
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			go answer(c)
		}
	}()
	report("loopback TCP one way, 64 KiB writes", "MB/s", 3, func() float64 { return oneWay(l.Addr()) })
	pingPong(l.Addr())
}

// answer is the other side; it ends with its connection.
func answer(c net.Conn) {
	defer c.Close()
	var mode [1]byte
	if _, err := io.ReadFull(c, mode[:]); err != nil {
		return
	}
	buf := make([]byte, 1<<18)
	for {
		n, err := c.Read(buf)
		if err != nil {
			return
		}
		if mode[0] == echo {
			if _, err := c.Write(buf[:n]); err != nil {
				return
			}
		}
	}
}

func dial(addr net.Addr, mode byte) net.Conn {
	c, err := net.Dial("tcp", addr.String())
	load.Check(err)
	_, err = c.Write([]byte{mode})
	load.Check(err)
	return c
}

func oneWay(addr net.Addr) float64 {
	c := dial(addr, discard)
	defer c.Close()
	buf := make([]byte, 64<<10)
	sent, start := 0, time.Now()
	for time.Since(start) < 2*time.Second {
		n, err := c.Write(buf)
		load.Check(err)
		sent += n
	}
	return float64(sent) / 1e6 / time.Since(start).Seconds()
}

func pingPong(addr net.Addr) {
	c := dial(addr, echo)
	defer c.Close()
	buf := make([]byte, 100)
	var h load.Histogram
	start, cpu := time.Now(), load.SelfCPU()
	for time.Since(start) < 3*time.Second {
		one := time.Now()
		_, err := c.Write(buf)
		load.Check(err)
		_, err = io.ReadFull(c, buf)
		load.Check(err)
		h.Add(time.Since(one))
	}
	n := float64(h.N())
	fmt.Printf("loopback ping-pong 100 B: %.0f/s  p50 %.3f ms  p99 %.3f ms  p99.9 %.3f ms, CPU both sides %.1f us per round trip\n",
		n/time.Since(start).Seconds(), h.Q(.5), h.Q(.99), h.Q(.999), (load.SelfCPU()-cpu)/n*1e6)
}
