package client_test

import (
	"context"
	"errors"
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// failing are units of work that fail after they have acknowledged something: before and
// after anything of them was sent.
var failing = map[string][]byte{"nothing is sent": []byte("never"), "some is sent": make([]byte, 2<<20)}

// What a unit has acknowledged that fails comes again from its Reader, which can be closed.
func TestFailingUnitOfAReader(t *testing.T) {
	for name, value := range failing {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.produce(3)
			r, tr := s.open(client.Group("g")), s.transact()
			in := pollN(t, r, 3)
			failure := errors.New("no")
			err := tr.Do(t.Context(), func(tx *client.Txn) error {
				require.NoError(t, tx.Ack(r, in[1]))
				require.NoError(t, tx.Produce(&kgo.Record{Topic: "out", Value: value}))
				return failure
			})
			require.Equal(t, failure, err)
			again := pollN(t, r, 1)
			require.EqualValues(t, 1, again[0].Offset)
			require.NoError(t, tr.Do(t.Context(), func(tx *client.Txn) error { return tx.Ack(r, in[0], again[0], in[2]) }))
			require.EqualValues(t, 3, s.ledger().Stable)
			closePatiently(t, r.Close)
		})
	}
}

// What a handler has accepted that fails is delivered again, and the Worker can be closed.
func TestFailingUnitOfAWorker(t *testing.T) {
	for name, value := range failing {
		t.Run(name, func(t *testing.T) {
			s := newServer(t)
			s.produce(3)
			s.shareFromEarliest()
			tr := s.transact()
			done := newShareLedger(false)
			var failed atomic.Int64
			w := s.work(func(ctx context.Context, r *client.ShareRecord) error {
				return tr.Do(ctx, func(tx *client.Txn) error {
					if err := tx.Accept(r); err != nil {
						return err
					}
					if r.DeliveryCount > 1 {
						return tx.Produce(out(fmt.Sprint(r.Offset)))
					}
					failed.Add(1)
					return errors.Join(errors.New("no"), tx.Produce(&kgo.Record{Topic: "out", Value: value}))
				})
			}, done.hooks())
			require.Eventually(t, func() bool { return done.done() == 3 }, time.Minute, time.Millisecond)
			require.EqualValues(t, 3, failed.Load())
			require.ElementsMatch(t, []string{"0", "1", "2"}, s.committed(3))
			closePatiently(t, w.Close)
			require.Empty(t, done.bad)
		})
	}
}

func closePatiently(t *testing.T, shut func(context.Context) error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	require.NoError(t, shut(ctx))
}
