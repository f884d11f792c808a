package client_test

import (
	"context"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// A record comes to a second worker of a process while the first does not know yet that it has
// lost it. The broker takes a record from anybody once it is pending in the transaction, so
// one with both deliveries would commit what is made of the record twice.
func TestTransactionWithARecordOfTwoWorkers(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	s.shareFromEarliest()
	type handled struct {
		r    *client.ShareRecord
		done chan error
	}
	came := make(chan handled)
	handle := func(ctx context.Context, r *client.ShareRecord) error {
		h := handled{r, make(chan error, 1)}
		select {
		case came <- h:
		case <-ctx.Done():
			return ctx.Err()
		}
		select {
		case err := <-h.done:
			return err
		case <-t.Context().Done():
			return context.Cause(t.Context())
		}
	}
	fast := client.RetryBackoff(func(int) time.Duration { return time.Millisecond })
	lines := &wire{s: s}
	silence := make(chan struct{})
	speak := sync.OnceFunc(func() { close(silence) })
	var fetches atomic.Int32            // and acknowledgements, which have a connection of their own
	lines.set(func(key kmsg.Key) fate { // it hears nothing of its records after its first fetch
		if key == kmsg.ShareFetch || key == kmsg.ShareAcknowledge {
			if fetches.Add(1) > 1 {
				<-silence
			}
		}
		return passes
	})
	conns := new(connections)
	s.work(handle, client.KafkaOpts(kgo.SeedBrokers(s.addr()), kgo.Dialer(conns.dialer(lines.dial))), fast)
	t.Cleanup(speak)
	first := <-came
	conns.cut()
	s.work(handle, fast)
	second := <-came
	require.Equal(t, first.r.Offset, second.r.Offset)

	var staged atomic.Int32
	w := &wire{s: s}
	w.set(func(key kmsg.Key) fate {
		if key == kmsg.TxnOffsetCommit {
			staged.Add(1)
		}
		return passes
	})
	tr := s.transact(w.opts())
	err := tr.Do(t.Context(), func(tx *client.Txn) error {
		for _, h := range []handled{second, first} {
			require.NoError(t, tx.Accept(h.r), "it has not heard of its loss")
			require.NoError(t, tx.Produce(out(fmt.Sprint(h.r.Offset))))
		}
		return nil
	})
	require.ErrorIs(t, err, client.ErrConflict)
	require.ErrorIs(t, err, client.ErrAborted)
	require.Zero(t, staged.Load())
	speak()
	first.done <- err
	second.done <- err

	again := <-came
	again.done <- tr.Do(t.Context(), func(tx *client.Txn) error {
		require.NoError(t, tx.Accept(again.r, again.r), "it is one delivery")
		return tx.Produce(out(fmt.Sprint(again.r.Offset)))
	})
	require.Equal(t, []string{"0"}, s.committed(1))
	require.EqualValues(t, 1, s.ledger().Stable)
}

// A Reader's record that comes again while somebody still has it is one record.
func TestTransactionWithARecordThatCameAgain(t *testing.T) {
	s := newServer(t)
	s.produce(2)
	r, tr := s.open(client.Group("g")), s.transact()
	in := pollN(t, r, 2)
	require.NoError(t, r.Redeliver(in[0]))
	again := pollN(t, r, 1)
	err := tr.Do(t.Context(), func(tx *client.Txn) error {
		return firstError(tx.Produce(out("never"), out("never")), tx.Ack(r, in[0]), tx.Ack(r, again...))
	})
	require.ErrorIs(t, err, client.ErrConflict)
	again = pollN(t, r, 1)
	require.NoError(t, tr.Do(t.Context(), func(tx *client.Txn) error {
		return firstError(tx.Produce(out("once")), tx.Ack(r, again...), tx.Ack(r, again[0], in[1]))
	}))
	require.Equal(t, []string{"once"}, s.committed(1))
	require.EqualValues(t, 2, s.ledger().Stable)
}

// connections are those that somebody has made.
type connections struct {
	mu   sync.Mutex
	made []net.Conn
}

type dialer func(ctx context.Context, network, host string) (net.Conn, error)

func (c *connections) dialer(dial dialer) dialer {
	return func(ctx context.Context, network, host string) (net.Conn, error) {
		conn, err := dial(ctx, network, host)
		if err == nil {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.made = append(c.made, conn)
		}
		return conn, err
	}
}

func (c *connections) cut() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, conn := range c.made {
		conn.Close()
	}
}
