package client_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// transact opens a Transactor called txn, without long pauses.
func (s *server) transact(opts ...client.TransactorOpt) *client.Transactor {
	s.tb.Helper()
	tr, err := client.OpenTransactor(s.tb.Context(), append([]client.TransactorOpt{
		client.KafkaOpts(kgo.SeedBrokers(s.addr()), kgo.Dialer(s.dial), kgo.AllowAutoTopicCreation()),
		client.TransactionalID("txn"),
		client.TransactorRetryBackoff(func(int) time.Duration { return 5 * time.Millisecond }),
	}, opts...)...)
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { tr.Close(context.Background()) })
	return tr
}

// pollN polls a Reader for n records.
func pollN(tb testing.TB, r *client.Reader, n int) (records []*kgo.Record) {
	tb.Helper()
	ctx, cancel := context.WithTimeout(tb.Context(), time.Minute)
	defer cancel()
	for len(records) < n {
		got, err := r.Poll(ctx)
		require.NoError(tb, err)
		records = append(records, got...)
	}
	require.Len(tb, records, n)
	return records
}

// committed reads n records of topic out as one that reads committed ones does.
func (s *server) committed(n int) (values []string) {
	s.tb.Helper()
	reader, err := client.OpenReader(s.tb.Context(), client.SeedBrokers(s.addr()), client.Topics("out"), client.ReadCommitted())
	require.NoError(s.tb, err)
	defer reader.Close(context.Background())
	for _, r := range pollN(s.tb, reader, n) {
		values = append(values, string(r.Value))
	}
	return values
}

// ledger is the ledger of group g of partition 0 of topic t.
func (s *server) ledger() client.Ledger {
	s.tb.Helper()
	ledgers, err := s.admin().Describe(s.tb.Context(), "g", "t")
	require.NoError(s.tb, err)
	return ledgers[0]
}

func out(value string) *kgo.Record { return &kgo.Record{Topic: "out", Value: []byte(value)} }

func TestTransactionOfAReader(t *testing.T) {
	s := newServer(t)
	s.produce(10)
	r, tr := s.open(client.Group("g")), s.transact()
	in := pollN(t, r, 10)

	t.Run("acks only", func(t *testing.T) {
		require.NoError(t, tr.Do(t.Context(), func(tx *client.Txn) error { return tx.Ack(r, in[0], in[4]) }))
		require.EqualValues(t, 1, s.ledger().Stable)
		require.EqualValues(t, 5, s.ledger().MaxCommit)
	})
	t.Run("acks and records", func(t *testing.T) {
		o := out("1")
		require.NoError(t, tr.Do(t.Context(), func(tx *client.Txn) error {
			require.NoError(t, tx.Produce(o, out("2")))
			return tx.Ack(r, in[1])
		}))
		require.EqualValues(t, 2, s.ledger().Stable)
		require.EqualValues(t, 0, o.Offset)
		require.Equal(t, []string{"1", "2"}, s.committed(2))
	})
	t.Run("nothing", func(t *testing.T) {
		require.NoError(t, tr.Do(t.Context(), func(*client.Txn) error { return nil }))
	})
	t.Run("the unit fails", func(t *testing.T) {
		failure := errors.New("no")
		err := tr.Do(t.Context(), func(tx *client.Txn) error {
			require.NoError(t, tx.Produce(out("never")))
			require.NoError(t, tx.Ack(r, in[2]))
			return failure
		})
		require.Equal(t, failure, err)
		require.EqualValues(t, 2, s.ledger().Stable)
	})
	t.Run("it is aborted after all was sent", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		err := tr.Do(ctx, func(tx *client.Txn) error {
			require.NoError(t, tx.Produce(&kgo.Record{Topic: "out", Value: make([]byte, 2<<20)}))
			cancel()
			return tx.Ack(r, in[3])
		})
		require.ErrorIs(t, err, client.ErrAborted)
	})
	t.Run("a record that is done", func(t *testing.T) {
		err := tr.Do(t.Context(), func(tx *client.Txn) error {
			require.NoError(t, tx.Produce(out("never")))
			return tx.Ack(r, in[4], in[5])
		})
		require.ErrorIs(t, err, client.ErrConflict)
		require.ErrorIs(t, err, client.ErrAborted)
		again := pollN(t, r, 3)
		require.ElementsMatch(t, []int64{2, 3, 5}, []int64{again[0].Offset, again[1].Offset, again[2].Offset}, "what is open comes again")
	})
}

func TestTransactionOfAWorker(t *testing.T) {
	s := newServer(t)
	s.produce(20)
	s.shareFromEarliest()
	tr := s.transact()
	done := newShareLedger(false)
	s.work(tr.Handler(func(_ context.Context, tx *client.Txn, r *client.ShareRecord) error {
		if r.Offset%3 == 0 && r.DeliveryCount == 1 {
			return errors.New("not now")
		}
		return tx.Produce(out(fmt.Sprint(r.Offset)))
	}), done.hooks(), client.RetryBackoff(func(int) time.Duration { return time.Millisecond }))
	require.Eventually(t, func() bool { return done.done() == 20 }, time.Minute, time.Millisecond)
	require.Len(t, s.committed(20), 20)
	require.EqualValues(t, 20, s.ledger().Stable)
	require.Empty(t, done.bad)
}

// Records of workers that fence each other's transactions, in every mode, are done once, and
// their outputs are there once and in order per key.
func TestWorkersInTransactions(t *testing.T) {
	for _, mode := range []string{"round-robin", "key-ordered", "key-range"} {
		t.Run(mode, func(t *testing.T) {
			const records = 200
			s := newServer(t)
			s.produceKeyed(records)
			s.shareFromEarliest()
			s.configure("share.delivery.mode", mode)
			s.configure("share.delivery.count.limit", "10")
			done := newShareLedger(mode != "round-robin")
			var tries atomic.Int64
			handle := func(_ context.Context, tx *client.Txn, r *client.ShareRecord) error {
				if err := tx.Produce(&kgo.Record{Topic: "out", Key: r.Key, Value: fmt.Append(nil, r.Offset)}); err != nil {
					return err
				}
				switch tries.Add(1) % 10 {
				case 3:
					return errors.New("not now")
				case 7: // another one of the name aborts what is on its way
					tr, err := client.OpenTransactor(t.Context(), client.SeedBrokers(s.addr()), client.TransactionalID("txn"), client.TransactionsAtATime(2))
					require.NoError(t, err)
					require.NoError(t, tr.Close(t.Context()))
				}
				return nil
			}
			tr := s.transact(client.TransactionsAtATime(2))
			for range 2 {
				s.work(tr.Handler(handle), done.hooks(), client.Concurrency(4), client.RetryBackoff(func(int) time.Duration { return time.Millisecond }))
			}
			require.Eventually(t, func() bool { return done.done() == records }, time.Minute, time.Millisecond)
			require.Empty(t, done.bad)
			require.EqualValues(t, records, s.ledger().Stable)
			seen := make(map[string]bool)
			last := make(map[int]int)
			for _, value := range s.committed(records) {
				require.False(t, seen[value], "offset %s came out twice", value)
				seen[value] = true
				offset, err := strconv.Atoi(value)
				require.NoError(t, err)
				key := offset % distinctKeys
				if before, ok := last[key]; ok && mode != "round-robin" {
					require.Less(t, before, offset, "outputs of a key are out of order")
				}
				last[key] = offset
			}
		})
	}
}
