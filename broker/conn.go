package broker

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/zap"
)

// conn is one client's connection. Its reader decodes requests and begins them in the
// order they came; its writer waits for what they wait for and sends the answers in
// that order. Each is one goroutine, and serve ends when both have.
//
// A request of two stages (Produce) may begin while an earlier one waits. One of a
// single stage runs when all before it have been answered, so that a client sees its
// own requests take effect in order.
type conn struct {
	b  *Broker
	nc net.Conn
	// listener is the one that the client came to.
	listener *listener
	in       *bufio.Reader
	log      *zap.Logger
	peer     string

	ctx    context.Context // ends with the connection
	cancel context.CancelCauseFunc

	tasks chan *task // begun and not yet answered; its capacity bounds them
	// outstanding counts the tasks handed to the writer and not yet answered. Only at
	// zero may the reader write to the connection itself.
	outstanding atomic.Int32
	// singles counts those of them that run in the writer.
	singles  atomic.Int32
	progress chan struct{} // signalled when singles falls to zero

	out    []byte      // the writer's buffer, or the reader's when nothing is outstanding
	chunks net.Buffers // the parts of one answer that are sent without a copy
}

// task is one request on its way to its answer.
type task struct {
	call *call
	api  *api
	req  kmsg.Request
	// wait gives the answer of a request that has begun; nil when it runs in the writer.
	wait func(ctx context.Context) kmsg.Response
	// frame goes back to the pool once the request has been carried out; nil when the
	// request may keep parts of it.
	frame *[]byte
	room  room // given back with the answer
}

const (
	connReadBuffer = 8 << 10
	// freeRequestBytes is what a connection's request may take without room in the memory
	// for requests, so that small ones never wait for others.
	freeRequestBytes = 64 << 10
	// outFlushBytes is when the writer sends what it gathered although more is ready.
	outFlushBytes = 64 << 10
	// writeTimeout is how long a client may leave an answer unread before it is taken for
	// gone, lastWriteTimeout the same when the broker or the connection is ending.
	writeTimeout     = time.Minute
	lastWriteTimeout = time.Second
)

func newConn(ctx context.Context, b *Broker, nc net.Conn, l *listener) *conn {
	c := &conn{
		b: b, nc: nc, listener: l, in: bufio.NewReaderSize(nc, connReadBuffer),
		peer:     nc.RemoteAddr().String(),
		tasks:    make(chan *task, b.limits.maxInFlight),
		progress: make(chan struct{}, 1),
	}
	c.log = b.log.With(zap.String("peer", c.peer))
	c.ctx, c.cancel = context.WithCancelCause(ctx)
	return c
}

var errConnClosed = errors.New("connection closed")

// serve reads until the client or the broker ends the connection, and returns when
// nothing of it runs any more.
func (c *conn) serve() {
	var writer sync.WaitGroup
	writer.Go(c.write)
	// A stop of the broker ends the reading, not the answers under way.
	stop := context.AfterFunc(c.ctx, func() { _ = c.nc.SetReadDeadline(time.Unix(1, 0)) })
	err := c.read()
	if err != nil && !errors.Is(err, io.EOF) && !errors.Is(err, net.ErrClosed) {
		c.log.Debug("connection ends", zap.Error(err))
	}
	c.cancel(errConnClosed)
	close(c.tasks)
	writer.Wait()
	stop()
	c.b.disconnected(c)
	c.nc.Close()
}

func (c *conn) read() error {
	for {
		t, err := c.next()
		if err != nil {
			return err
		}
		if t == nil { // answered in place
			continue
		}
		c.outstanding.Add(1)
		if t.wait == nil {
			c.singles.Add(1)
		}
		select {
		case c.tasks <- t:
		case <-c.ctx.Done():
			t.done()
			return context.Cause(c.ctx)
		}
	}
}

// next reads one request and begins it. It returns nil when the answer has been sent
// already, or when there is none.
func (c *conn) next() (*task, error) {
	t, err := c.receive()
	if err != nil {
		return nil, err
	}
	if t.api.begin != nil {
		if err := c.awaitSingles(); err != nil {
			t.done()
			return nil, err
		}
		t.wait = t.api.begin(c.b, t.call, t.req)
		t.carriedOut()
		ready := t.wait == nil
		if ready && t.call.answer == nil {
			t.done()
			return nil, nil
		}
		if !ready || c.outstanding.Load() > 0 {
			if ready {
				answer := t.call.answer
				t.wait = func(context.Context) kmsg.Response { return answer }
			}
			return t, nil
		}
		return nil, c.answerInPlace(t, t.call.answer)
	}
	if t.api.quick && c.outstanding.Load() == 0 {
		resp := t.api.run(c.b, t.call, t.req)
		return nil, c.answerInPlace(t, resp)
	}
	return t, nil
}

// awaitSingles waits until no request that was sent before runs in the writer.
func (c *conn) awaitSingles() error {
	for c.singles.Load() > 0 {
		select {
		case <-c.progress:
		case <-c.ctx.Done():
			return context.Cause(c.ctx)
		}
	}
	return nil
}

func (c *conn) answerInPlace(t *task, resp kmsg.Response) error {
	defer t.done()
	if resp == nil {
		return nil
	}
	c.gather(t.call, resp)
	return c.flush()
}

// write sends the answers, in order, until the reader ends.
func (c *conn) write() {
	failed := false
	for t := range c.tasks {
		single := t.wait == nil
		if !failed {
			if failed = c.carryOut(t) != nil; failed && t.call.unsent != nil {
				t.call.unsent()
			}
		}
		t.done()
		c.outstanding.Add(-1)
		if single && c.singles.Add(-1) == 0 {
			select {
			case c.progress <- struct{}{}:
			default:
			}
		}
	}
}

// carryOut finishes one task and sends its answer, unless another answer is as good as
// ready: then they travel together.
func (c *conn) carryOut(t *task) error {
	var resp kmsg.Response
	if t.wait != nil {
		resp = t.wait(c.ctx)
	} else {
		resp = t.api.run(c.b, t.call, t.req)
	}
	if resp != nil {
		c.gather(t.call, resp)
	}
	if len(c.tasks) > 0 && len(c.chunks) == 0 && len(c.out) < outFlushBytes && c.nextIsReady() {
		return nil
	}
	if err := c.flush(); err != nil {
		c.cancel(fmt.Errorf("send to %s: %w", c.peer, err))
		return err
	}
	return nil
}

// nextIsReady is a guess: with two-stage requests in the queue, the one behind is mostly
// part of the same group commit.
func (c *conn) nextIsReady() bool { return c.singles.Load() == 0 }

// segmented is an answer that is sent in parts, of which some are not copied.
type segmented interface {
	// appendSegments appends the body to out, and the parts that are sent from where they
	// are.
	appendSegments(out []byte) (body []byte, parts []protocol.Part)
}

// gather appends the frame of resp to what flush will send.
func (c *conn) gather(call *call, resp kmsg.Response) {
	start := len(c.out)
	c.out = protocol.BeginResponse(c.out, resp.Key(), resp.IsFlexible(), call.correlationID)
	s, ok := resp.(segmented)
	if !ok {
		c.out = resp.AppendTo(c.out)
		protocol.EndFrame(c.out[start:], 0)
		return
	}
	var parts []protocol.Part
	c.out, parts = s.appendSegments(c.out)
	elsewhere, from := 0, 0
	for _, p := range parts {
		c.chunks = append(c.chunks, c.out[from:p.At], p.Bytes)
		from, elsewhere = p.At, elsewhere+len(p.Bytes)
	}
	c.chunks = append(c.chunks, c.out[from:])
	protocol.EndFrame(c.out[start:], elsewhere)
}

// flush sends what was gathered.
func (c *conn) flush() error {
	defer func() {
		c.out = c.out[:0]
		if cap(c.out) > 1<<20 {
			c.out = nil
		}
	}()
	if len(c.out) == 0 {
		return nil
	}
	patience := writeTimeout
	if c.ctx.Err() != nil {
		patience = lastWriteTimeout
	}
	if err := c.nc.SetWriteDeadline(time.Now().Add(patience)); err != nil {
		return err
	}
	if len(c.chunks) > 0 {
		chunks := c.chunks
		c.chunks = nil
		_, err := chunks.WriteTo(c.nc)
		return err
	}
	_, err := c.nc.Write(c.out)
	return err
}

// carriedOut gives the frame back, since nothing refers to it any more.
func (t *task) carriedOut() {
	t.req = nil
	if t.frame != nil {
		putFrame(t.frame)
		t.frame = nil
	}
}

// done gives back what the task holds.
func (t *task) done() {
	t.carriedOut()
	t.room.release()
	if t.call != nil && t.call.release != nil {
		t.call.release()
		t.call.release = nil
	}
}
