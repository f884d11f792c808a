package broker

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"go.uber.org/zap"
)

// acceptPause is how long a listener rests after it could not accept.
const acceptPause = 50 * time.Millisecond

// listener accepts connections at one address and owns them.
type listener struct {
	ln net.Listener
	// advertised is the host and port that clients are told to connect to.
	host string
	port int32
}

// listeners are all of them, with the connections that they accepted.
type listeners struct {
	b      *Broker
	all    []*listener
	ctx    context.Context // ends when the broker stops serving
	cancel context.CancelFunc
	wg     sync.WaitGroup
	mu     struct {
		sync.Mutex
		conns map[*conn]struct{}
	}
}

// listen binds every address of the configuration.
func listen(b *Broker) (*listeners, error) {
	ls := &listeners{b: b}
	ls.ctx, ls.cancel = context.WithCancel(context.Background())
	ls.mu.conns = make(map[*conn]struct{})
	for _, addr := range b.cfg.Listen {
		ln, err := net.Listen("tcp", addr)
		if err != nil {
			return nil, errors.Join(ls.close(context.Background()), fmt.Errorf("listen on %s: %w", addr, err))
		}
		l := &listener{ln: ln}
		ls.all = append(ls.all, l)
		if l.host, l.port, err = advertised(b.cfg.Advertise, ln.Addr()); err != nil {
			return nil, errors.Join(ls.close(context.Background()), err)
		}
	}
	return ls, nil
}

// advertised is the address that clients of a listener are told.
func advertised(want string, bound net.Addr) (string, int32, error) {
	if want == "" {
		want = bound.String()
	}
	host, port, err := net.SplitHostPort(want)
	if err != nil {
		return "", 0, fmt.Errorf("advertised address %q: %w", want, err)
	}
	n, err := strconv.ParseUint(port, 10, 16)
	if err != nil {
		return "", 0, fmt.Errorf("advertised address %q: port %q is not a number up to 65535", want, port)
	}
	if n == 0 {
		n = uint64(bound.(*net.TCPAddr).Port)
	}
	return host, int32(n), nil
}

// serve accepts connections until close.
func (ls *listeners) serve() {
	for _, l := range ls.all {
		ls.wg.Go(func() { ls.accept(l) })
	}
}

func (ls *listeners) accept(l *listener) {
	for {
		nc, err := l.ln.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			// A want of file descriptors passes when some client leaves; until then the
			// kernel holds the others back.
			ls.b.log.Error("cannot accept a connection", zap.Stringer("listener", l.ln.Addr()), zap.Error(err))
			select {
			case <-time.After(acceptPause):
				continue
			case <-ls.ctx.Done():
				return
			}
		}
		c := newConn(ls.ctx, ls.b, nc, l)
		if !ls.add(c) {
			ls.b.log.Warn("connection refused: max.connections are open", zap.String("peer", c.peer))
			nc.Close()
			continue
		}
		ls.wg.Go(func() {
			c.serve()
			ls.remove(c)
		})
	}
}

func (ls *listeners) add(c *conn) bool {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	if len(ls.mu.conns) >= ls.b.settings().MaxConnections {
		return false
	}
	ls.mu.conns[c] = struct{}{}
	return true
}

func (ls *listeners) remove(c *conn) {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	delete(ls.mu.conns, c)
}

// count is the number of open connections.
func (ls *listeners) count() int {
	ls.mu.Lock()
	defer ls.mu.Unlock()
	return len(ls.mu.conns)
}

// close refuses new connections, lets those open finish what they began, and waits.
// When ctx ends first they are cut, which is an error.
func (ls *listeners) close(ctx context.Context) error {
	ls.cancel()
	for _, l := range ls.all {
		l.ln.Close()
	}
	var cut error
	done := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		defer close(done)
		ls.mu.Lock()
		defer ls.mu.Unlock()
		if len(ls.mu.conns) > 0 {
			cut = fmt.Errorf("%d connections were cut: %w", len(ls.mu.conns), context.Cause(ctx))
		}
		for c := range ls.mu.conns {
			c.nc.Close()
		}
	})
	ls.wg.Wait()
	if !stop() {
		<-done
	}
	return cut
}
