package client_test

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// txnMember is a GroupReader that handles each record in a transaction of its own.
type txnMember struct {
	*client.GroupReader
	mu     sync.Mutex
	done   int
	failed []error
}

func (m *txnMember) committed() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.done
}

// joinInTransactions opens a member whose units call in between, before they acknowledge.
func (s *server) joinInTransactions(name string, between func(*kgo.Record), opts ...kgo.Opt) *txnMember {
	m := &txnMember{}
	tr := s.transact(client.TransactionalID(name))
	handle := func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
		for _, record := range records {
			// A transaction that has begun ends by itself, and not with the range.
			err := tr.Do(context.WithoutCancel(ctx), func(tx *client.Txn) error {
				if err := tx.Produce(out(strconv.FormatInt(record.Offset, 10))); err != nil {
					return err
				}
				between(record)
				return tx.Ack(r, record)
			})
			m.mu.Lock()
			if err != nil {
				m.failed = append(m.failed, err)
			} else {
				m.done++
			}
			m.mu.Unlock()
			if ctx.Err() != nil {
				return
			}
		}
	}
	var err error
	m.GroupReader, err = client.OpenGroupReader(s.tb.Context(), kgo.RangeBalancer(), handle,
		client.SeedBrokers(s.addr()), client.Group("g"), client.Topics("t"),
		client.MemberOpts(append([]kgo.Opt{kgo.HeartbeatInterval(50 * time.Millisecond)}, opts...)...))
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { m.Close(context.Background()) })
	return m
}

// requireOnce holds that each of n inputs has one committed output, and is committed.
func (s *server) requireOnce(n int) {
	s.tb.Helper()
	require.Eventually(s.tb, func() bool { return s.ledger().Stable == int64(n) }, time.Minute, 10*time.Millisecond)
	require.NoError(s.tb, s.transact(client.TransactionalID("last")).Do(s.tb.Context(), func(tx *client.Txn) error {
		return tx.Produce(out("last"))
	}))
	var offsets []int
	for _, value := range s.committed(n + 1) {
		if value == "last" {
			continue
		}
		offset, err := strconv.Atoi(value)
		require.NoError(s.tb, err)
		offsets = append(offsets, offset)
	}
	slices.Sort(offsets)
	for i, offset := range offsets {
		require.Equal(s.tb, i, offset, "an output is missing, or there twice: %v", offsets)
	}
}

// joinAndStopAt joins a member, which is at work on the record of an offset until goOn is
// closed.
func (s *server) joinAndStopAt(offset int64, opts ...kgo.Opt) (m *txnMember, goOn chan struct{}) {
	begun, goOn := make(chan struct{}), make(chan struct{})
	m = s.joinInTransactions("one", func(r *kgo.Record) {
		if r.Offset == offset {
			close(begun)
			<-goOn
		}
	}, opts...)
	<-begun
	return m, goOn
}

// A unit under way when the group rebalances holds the range until it has ended, as a commit
// does; then another member reads on.
func TestGroupReaderInTransactionsRebalances(t *testing.T) {
	const n = 40
	s := newServer(t)
	s.produce(n)
	first, goOn := s.joinAndStopAt(10)
	second := s.joinInTransactions("two", func(*kgo.Record) {})
	adm := kadm.NewClient(s.admin().Kafka())
	require.Eventually(t, func() bool {
		groups, err := adm.DescribeGroups(t.Context(), "g")
		return err == nil && groups["g"].State == "PreparingRebalance"
	}, time.Minute, 5*time.Millisecond)
	require.Zero(t, second.committed(), "the range is not given up")
	close(goOn)
	s.requireOnce(n)
	// The broker knows before the members do.
	require.Eventually(t, func() bool { return first.committed()+second.committed() == n }, time.Minute, time.Millisecond)
	require.Empty(t, first.failed)
	require.Empty(t, second.failed)
}

// A unit that goes on after the group has removed its member is aborted: its record comes
// again at the new holder of the range.
func TestGroupReaderInTransactionsIsRemoved(t *testing.T) {
	const n = 40
	s := newServer(t)
	s.produce(n)
	first, goOn := s.joinAndStopAt(10, kgo.RebalanceTimeout(time.Second))
	before := first.committed()
	second := s.joinInTransactions("two", func(*kgo.Record) {}, kgo.RebalanceTimeout(time.Second))
	require.Eventually(t, func() bool { return second.committed() == n-before }, time.Minute, 5*time.Millisecond)
	close(goOn)
	require.Eventually(t, func() bool {
		first.mu.Lock()
		defer first.mu.Unlock()
		return len(first.failed) > 0
	}, time.Minute, time.Millisecond)
	s.requireOnce(n)
	require.Equal(t, before, first.committed())
	require.Len(t, first.failed, 1)
	require.ErrorIs(t, first.failed[0], client.ErrAborted)
	require.ErrorIs(t, first.failed[0], client.ErrRevoked)
}
