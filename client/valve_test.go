package client_test

import (
	"context"
	"encoding/binary"
	"net"
	"sync"

	"github.com/lacunamq/lacuna/client"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// valve holds back the requests of one kind that a client sends, while it is shut.
type valve struct {
	key kmsg.Key

	mu   sync.Mutex
	shut bool
	sent int // requests of that kind that came to the valve
	held int // of them, those that wait at the moment
	turn *sync.Cond
}

func newValve(key kmsg.Key) *valve {
	v := &valve{key: key}
	v.turn = sync.NewCond(&v.mu)
	return v
}

// opt puts the valve into a client.
func (v *valve) opt() client.Opt { return client.KafkaOpts(kgo.Dialer(v.dial)) }

func (v *valve) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, host)
	return valveConn{conn, v}, err
}

type valveConn struct {
	net.Conn
	v *valve
}

func (c valveConn) Write(request []byte) (int, error) {
	if len(request) >= 6 && binary.BigEndian.Uint16(request[4:]) == uint16(c.v.key) {
		c.v.pass()
	}
	return c.Conn.Write(request)
}

func (v *valve) pass() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.sent++
	v.held++
	v.turn.Broadcast()
	for v.shut {
		v.turn.Wait()
	}
	v.held--
}

func (v *valve) set(shut bool) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.shut = shut
	v.turn.Broadcast()
}

// count is how many requests have come to the valve.
func (v *valve) count() int {
	v.mu.Lock()
	defer v.mu.Unlock()
	return v.sent
}

// awaitHeld returns when a request waits at the valve, which must be shut.
func (v *valve) awaitHeld() {
	v.mu.Lock()
	defer v.mu.Unlock()
	for v.held == 0 {
		v.turn.Wait()
	}
}

// awaitSent returns when n more requests have come to the valve.
func (v *valve) awaitSent(n int) {
	v.mu.Lock()
	defer v.mu.Unlock()
	for n += v.sent; v.sent < n; {
		v.turn.Wait()
	}
}
