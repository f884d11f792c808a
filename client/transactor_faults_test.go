package client_test

import (
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/kversion"
)

// wire is what lies between a Transactor and the broker: it may lose or hold up requests.
type wire struct {
	s  *server
	mu sync.Mutex
	// onRequest is asked about every request before it is sent.
	onRequest func(key kmsg.Key) fate
}

// fate is what becomes of a request.
type fate int

const (
	passes       fate = iota
	losesRequest      // and its connection
	losesAnswer       // the broker has carried it out
)

// set says what becomes of requests. It is asked by all connections at the same time.
func (w *wire) set(onRequest func(kmsg.Key) fate) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.onRequest = onRequest
}

func (w *wire) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := w.s.dial(ctx, network, host)
	if err != nil {
		return nil, err
	}
	return &wireConn{Conn: conn, w: w}, nil
}

func (w *wire) opts() client.TransactorOpt { return client.KafkaOpts(kgo.Dialer(w.dial)) }

type wireConn struct {
	net.Conn
	w    *wire
	mu   sync.Mutex
	lose bool
}

func (c *wireConn) Write(b []byte) (int, error) {
	c.w.mu.Lock()
	on := c.w.onRequest
	c.w.mu.Unlock()
	if on != nil && len(b) >= 6 {
		switch on(kmsg.Key(binary.BigEndian.Uint16(b[4:]))) {
		case losesRequest:
			c.Close()
			return 0, net.ErrClosed
		case losesAnswer:
			c.mu.Lock()
			c.lose = true
			c.mu.Unlock()
		case passes:
		}
	}
	return c.Conn.Write(b)
}

func (c *wireConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.lose {
		c.Close()
		return 0, io.ErrUnexpectedEOF
	}
	return n, err
}

// holding lets one EndTxn wait: sent is closed when it is about to be sent, and go on lets it.
func (w *wire) holding() (sent <-chan struct{}, goOn func()) {
	came, going := make(chan struct{}), make(chan struct{})
	first := sync.OnceFunc(func() { close(came); <-going })
	w.set(func(key kmsg.Key) fate {
		if key == kmsg.EndTxn {
			first()
		}
		return passes
	})
	return came, sync.OnceFunc(func() { close(going) })
}

// Each request of a transaction, or its answer, is lost three times in a row.
func TestTransactionThatLosesRequests(t *testing.T) {
	for _, key := range []kmsg.Key{kmsg.InitProducerID, kmsg.Produce, kmsg.TxnOffsetCommit, kmsg.EndTxn} {
		for what, lost := range map[string]fate{"request": losesRequest, "answer": losesAnswer} {
			t.Run(fmt.Sprint(key.Name(), " ", what), func(t *testing.T) {
				s := newServer(t)
				s.produce(3)
				left := 3
				w := &wire{s: s}
				w.set(func(k kmsg.Key) fate {
					if k == key && left > 0 {
						left--
						return lost
					}
					return passes
				})
				r, tr := s.open(client.Group("g")), s.transact(w.opts(), client.TransactionsAtATime(1))
				for _, in := range pollN(t, r, 3) {
					require.NoError(t, tr.Do(t.Context(), func(tx *client.Txn) error {
						require.NoError(t, tx.Produce(out(fmt.Sprint(in.Offset))))
						return tx.Ack(r, in)
					}))
				}
				require.Zero(t, left)
				require.Equal(t, []string{"0", "1", "2"}, s.committed(3))
				require.EqualValues(t, 3, s.ledger().Stable)
			})
		}
	}
}

// The broker crashes when the end of a transaction is on its way to it, or on its way back.
func TestTransactionThroughACrash(t *testing.T) {
	for what, lost := range map[string]fate{"before the end": losesRequest, "after the end": losesAnswer} {
		t.Run(what, func(t *testing.T) {
			s := newServer(t)
			s.produce(2)
			crash := make(chan struct{})
			first := sync.OnceFunc(func() { close(crash) })
			armed := true
			w := &wire{s: s}
			w.set(func(key kmsg.Key) fate {
				if key != kmsg.EndTxn || !armed {
					return passes
				}
				armed = false
				first()
				return lost
			})
			r, tr := s.open(client.Group("g")), s.transact(w.opts(), client.TransactionsAtATime(1))
			in := pollN(t, r, 2)
			done := make(chan error, 1)
			go func() {
				done <- tr.Do(t.Context(), func(tx *client.Txn) error {
					return firstError(tx.Produce(out("0")), tx.Ack(r, in[0]))
				})
			}()
			<-crash
			s.crash()
			s.start()
			require.NoError(t, <-done)
			require.NoError(t, tr.Do(t.Context(), func(tx *client.Txn) error {
				return firstError(tx.Produce(out("1")), tx.Ack(r, in[1]))
			}))
			require.Equal(t, []string{"0", "1"}, s.committed(2))
			require.EqualValues(t, 2, s.ledger().Stable)
		})
	}
}

func firstError(errs ...error) error {
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// Two transactions want the same record: the second is refused, and does not get it again
// once the first has committed.
func TestTransactionsThatWantTheSameRecord(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	w := &wire{s: s}
	sent, goOn := w.holding()
	defer goOn()
	fast := client.RetryBackoff(func(int) time.Duration { return time.Millisecond })
	a, b := s.open(client.Group("g"), fast), s.open(client.Group("g"), fast)
	ta, tb := s.transact(w.opts()), s.transact(client.TransactionalID("other"))
	ina, inb := pollN(t, a, 1), pollN(t, b, 1)
	done := make(chan error, 1)
	go func() {
		done <- ta.Do(t.Context(), func(tx *client.Txn) error { return firstError(tx.Produce(out("a")), tx.Ack(a, ina...)) })
	}()
	<-sent
	steal := func(in []*kgo.Record) error {
		return tb.Do(t.Context(), func(tx *client.Txn) error { return firstError(tx.Produce(out("b")), tx.Ack(b, in...)) })
	}
	require.ErrorIs(t, steal(inb), client.ErrConflict)
	require.ErrorIs(t, steal(pollN(t, b, 1)), client.ErrConflict, "it is still open, as far as anybody knows")
	goOn()
	require.NoError(t, <-done)
	require.Equal(t, []string{"a"}, s.committed(1))
	require.Eventually(t, func() bool {
		require.NoError(t, b.Refresh(t.Context()))
		return b.Status()[0].Stable == 1
	}, time.Minute, time.Millisecond)
}

// Another Transactor takes the name over while a transaction is about to be committed.
func TestTransactionThatIsFenced(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	w := &wire{s: s}
	sent, goOn := w.holding()
	defer goOn()
	r, tr := s.open(client.Group("g")), s.transact(w.opts(), client.TransactionsAtATime(1))
	in := pollN(t, r, 1)
	work := func(value string) error {
		return tr.Do(t.Context(), func(tx *client.Txn) error { return firstError(tx.Produce(out(value)), tx.Ack(r, in...)) })
	}
	done := make(chan error, 1)
	go func() { done <- work("never") }()
	<-sent
	other := s.transact(client.TransactionsAtATime(1))
	goOn()
	err := <-done
	require.ErrorIs(t, err, client.ErrAborted)
	require.ErrorContains(t, err, "commit in transaction of txn-0")
	require.Equal(t, in[0].Offset, pollN(t, r, 1)[0].Offset)
	require.NoError(t, work("yes"), "a new epoch begins")
	produce := func(tx *client.Txn) error { return tx.Produce(out("as well")) }
	require.ErrorIs(t, other.Do(t.Context(), produce), kerr.InvalidProducerEpoch, "the name was taken back")
	require.NoError(t, other.Do(t.Context(), produce))
	require.Equal(t, []string{"yes", "as well"}, s.committed(2))
}

// The caller does not wait for the outcome. Until it is known the record is in nobody's hands.
func TestTransactionThatNobodyWaitsFor(t *testing.T) {
	s := newServer(t)
	s.produce(2)
	w := &wire{s: s}
	sent, goOn := w.holding()
	defer goOn()
	r, tr := s.open(client.Group("g")), s.transact(w.opts(), client.TransactionsAtATime(1))
	in := pollN(t, r, 2)
	ctx, cancel := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() {
		done <- tr.Do(ctx, func(tx *client.Txn) error { return firstError(tx.Produce(out("0")), tx.Ack(r, in[0])) })
	}()
	<-sent
	cancel()
	err := <-done
	require.ErrorIs(t, err, client.ErrOutcomeUnknown)
	require.ErrorIs(t, err, context.Canceled)
	require.EqualValues(t, 1, r.Status()[0].Unanswered)
	require.NoError(t, r.RedeliverOpen(t.Context()))
	require.Equal(t, in[1].Offset, pollN(t, r, 1)[0].Offset, "only what is in no transaction comes again")
	impatient, stop := context.WithCancel(t.Context())
	stop()
	require.ErrorIs(t, r.Close(impatient), context.Canceled)
	goOn()
	require.NoError(t, tr.Close(t.Context()))
	require.EqualValues(t, 1, s.ledger().Stable)
	require.Equal(t, []string{"0"}, s.committed(1))
	require.ErrorIs(t, tr.Do(t.Context(), func(*client.Txn) error { return nil }), client.ErrTransactorClosed)
}

// The broker aborts a transaction that runs into its time-out before its commit arrives.
func TestTransactionThatTakesTooLong(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	w := &wire{s: s}
	sent, goOn := w.holding()
	defer goOn()
	r := s.open(client.Group("g"))
	tr := s.transact(w.opts(), client.TransactionTimeout(200*time.Millisecond), client.TransactionsAtATime(1))
	in := pollN(t, r, 1)
	work := func(value string) error {
		return tr.Do(t.Context(), func(tx *client.Txn) error { return firstError(tx.Produce(out(value)), tx.Ack(r, in...)) })
	}
	done := make(chan error, 1)
	go func() { done <- work("never") }()
	<-sent
	require.Eventually(t, func() bool { return !s.ongoing("txn-0") }, time.Minute, time.Millisecond)
	goOn()
	require.ErrorIs(t, <-done, client.ErrAborted)
	require.EqualValues(t, 0, s.ledgerStable())
	require.Eventually(t, func() bool { return work("in time") == nil }, time.Minute, time.Millisecond)
	require.Equal(t, []string{"in time"}, s.committed(1))
}

// ongoing tells whether the broker has a transaction of a transactional id.
func (s *server) ongoing(id string) bool {
	s.tb.Helper()
	req := kmsg.NewPtrDescribeTransactionsRequest()
	req.TransactionalIDs = []string{id}
	resp, err := req.RequestWith(s.tb.Context(), s.admin().Kafka())
	require.NoError(s.tb, err)
	state := resp.TransactionStates[0].State
	return state == "Ongoing" || state == "PrepareAbort"
}

// ledgerStable is the stable offset of the ledger of group g, if it has one.
func (s *server) ledgerStable() int64 { return max(s.ledger().Stable, 0) }

// An old line of transactions would lose what makes it safe.
func TestTransactorOfAnOldLine(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	r, tr := s.open(client.Group("g")), s.transact(client.KafkaOpts(kgo.MaxVersions(oldTransactions())))
	in := pollN(t, r, 1)
	err := tr.Do(t.Context(), func(tx *client.Txn) error { return tx.Ack(r, in...) })
	require.ErrorIs(t, err, client.ErrAborted)
	require.ErrorContains(t, err, "KIP-890")
}

func oldTransactions() *kversion.Versions {
	v := kversion.Stable()
	v.SetMaxKeyVersion(int16(kmsg.TxnOffsetCommit), 4)
	return v
}
