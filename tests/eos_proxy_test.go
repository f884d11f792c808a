package tests

import (
	"context"
	"io"
	"net"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
)

// eosProxy stands between clients and a broker that is killed and comes back elsewhere, so
// that it has one address in all of its lives. It can cut all connections: what was asked
// arrives, and its answer does not.
type eosProxy struct {
	l       net.Listener
	serving sync.WaitGroup

	mu struct {
		sync.Mutex
		broker string // address
		conns  map[net.Conn]struct{}
		closed bool
	}
}

func startEOSProxy(t *testing.T) *eosProxy {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	p := &eosProxy{l: l}
	p.mu.conns = make(map[net.Conn]struct{})
	p.serving.Go(func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			p.serving.Go(func() { p.serve(c) })
		}
	})
	t.Cleanup(func() {
		l.Close()
		p.mu.Lock()
		p.mu.closed = true
		p.mu.Unlock()
		p.cut()
		p.serving.Wait()
	})
	return p
}

func (p *eosProxy) addr() string { return p.l.Addr().String() }

// lead has connections go to a broker from now on.
func (p *eosProxy) lead(broker string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.mu.broker = broker
}

// cut cuts all connections.
func (p *eosProxy) cut() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for c := range p.mu.conns {
		c.Close()
	}
}

// keep counts a connection among those that are cut.
func (p *eosProxy) keep(c net.Conn) (broker string, ok bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.closed {
		return "", false
	}
	p.mu.conns[c] = struct{}{}
	return p.mu.broker, true
}

func (p *eosProxy) serve(c net.Conn) {
	defer c.Close()
	broker, ok := p.keep(c)
	if !ok {
		return
	}
	defer func() {
		p.mu.Lock()
		defer p.mu.Unlock()
		delete(p.mu.conns, c)
	}()
	var d net.Dialer
	b, err := d.DialContext(context.Background(), "tcp", broker)
	if err != nil {
		return
	}
	defer b.Close()
	var asking sync.WaitGroup
	asking.Go(func() {
		io.Copy(b, c)
		b.(*net.TCPConn).CloseWrite() // the broker takes in what it was asked before
	})
	io.Copy(c, b)
	c.Close()
	asking.Wait()
}
