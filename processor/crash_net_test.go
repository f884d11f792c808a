package processor_test

import (
	"context"
	"encoding/binary"
	"maps"
	"net"
	"os"
	"slices"
	"sync"
	"sync/atomic"
	"syscall"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// crashPoint is a step of a process at which it can be killed: before it changes its disk,
// before it sends a request, before it hears the answer of one.
type crashPoint string

// crashNet leads clients to the broker of the time, wherever it listens.
type crashNet struct {
	mu sync.Mutex
	// addr of the broker, empty while there is none.
	addr  string
	links map[*crashLink]struct{}
}

// lead has what is dialed from now on go to the broker at addr.
func (n *crashNet) lead(addr string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.addr = addr
}

// down cuts all from the broker, until it is led to one again.
func (n *crashNet) down() {
	n.mu.Lock()
	n.addr = ""
	links := slices.Collect(maps.Keys(n.links))
	n.mu.Unlock()
	for _, l := range links {
		l.reset()
	}
}

func (n *crashNet) broker() string {
	n.mu.Lock()
	defer n.mu.Unlock()
	return n.addr
}

// link makes the way of one process to the broker. Its requests pass by, which may be nil,
// before they are sent and before their answers are heard.
func (n *crashNet) link(pass func(crashPoint)) *crashLink {
	l := &crashLink{net: n, pass: pass, conns: make(map[*crashConn]struct{})}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.links[l] = struct{}{}
	return l
}

// crashLink is the connections of one process.
type crashLink struct {
	net  *crashNet
	pass func(crashPoint)

	mu    sync.Mutex
	gone  bool
	conns map[*crashConn]struct{}
}

// What the operating system says of a connection that is cut, and of one that nobody takes. In
// any other form kgo would take the first for no fault of the network, and give up records that
// wait to be produced.
var (
	errCut     = &net.OpError{Op: "read", Net: "tcp", Err: os.NewSyscallError("read", syscall.ECONNRESET)}
	errRefused = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
)

// dial is for kgo.Dialer.
func (l *crashLink) dial(ctx context.Context, network, _ string) (net.Conn, error) {
	addr := l.net.broker()
	if addr == "" {
		return nil, errRefused
	}
	var d net.Dialer
	inner, err := d.DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	c := &crashConn{Conn: inner, link: l}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.gone || l.net.broker() != addr {
		inner.Close()
		return nil, errRefused
	}
	l.conns[c] = struct{}{}
	return c, nil
}

// reset closes the connections that there are.
func (l *crashLink) reset() {
	l.mu.Lock()
	defer l.mu.Unlock()
	for c := range l.conns {
		c.cut.Store(true)
		c.Conn.Close()
	}
	clear(l.conns)
}

// cut is the end of the link: nothing goes through it any more.
func (l *crashLink) cut() {
	l.mu.Lock()
	l.gone = true
	l.mu.Unlock()
	l.reset()
	l.net.mu.Lock()
	defer l.net.mu.Unlock()
	delete(l.net.links, l)
}

// crashConn tells of the requests that go through a connection. kgo writes each with one call.
type crashConn struct {
	net.Conn
	link *crashLink
	cut  atomic.Bool
	last atomic.Int32 // the key of the last request that was not heard of, plus one
}

func (c *crashConn) Write(b []byte) (int, error) {
	if len(b) >= 6 {
		key := int16(binary.BigEndian.Uint16(b[4:]))
		c.passed("ask " + kmsg.NameForKey(key))
		c.last.Store(int32(key) + 1)
	}
	if c.cut.Load() {
		return 0, errCut
	}
	return c.Conn.Write(b)
}

func (c *crashConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	if key := c.last.Swap(0); key > 0 && n > 0 {
		c.passed("hear " + kmsg.NameForKey(int16(key-1)))
	} else if n == 0 {
		c.last.CompareAndSwap(0, key)
	}
	if c.cut.Load() {
		return 0, errCut
	}
	return n, err
}

func (c *crashConn) passed(what string) {
	if c.link.pass != nil {
		c.link.pass(crashPoint(what))
	}
}

func (c *crashConn) Close() error {
	c.link.mu.Lock()
	delete(c.link.conns, c)
	c.link.mu.Unlock()
	return c.Conn.Close()
}
