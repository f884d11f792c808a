package client_test

import (
	"context"
	"errors"
	"slices"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

var t0 = client.TopicPartition{Topic: "t"}

func offsets(records []*kgo.Record) (offsets []int64) {
	for _, r := range records {
		offsets = append(offsets, r.Offset)
	}
	return offsets
}

// A caller who makes state of records gets them all from where its state ends, in order,
// and can tell those that are committed. What was aborted is committed too, since nobody is
// to have it, and yet is not delivered.
func TestReaderDeliversWhatIsCommitted(t *testing.T) {
	s := newServer(t)
	s.produce(4)
	s.abort(2)
	s.produce(4)
	open := func(start int64) *client.Reader {
		return s.openOnly(client.Group("g"), client.DeliverCommitted(), client.ReadCommitted(), client.StartAt("t", 0, start))
	}
	_, err := s.admin().Commit(t.Context(), "g", "t", 0, client.Run{Start: 0, End: 2}, client.Run{Start: 3, End: 4})
	require.NoError(t, err)
	r := open(1)
	in := pollN(t, r, 7)
	require.Equal(t, []int64{1, 2, 3, 7, 8, 9, 10}, offsets(in))
	require.Equal(t, []bool{true, false, true, false, false, false, false}, r.Committed(in...))
	require.NoError(t, r.Commit(t.Context(), in[1], in[4]))
	require.Equal(t, []bool{true, true, true, false, true, false, false}, r.Committed(in...))
	require.NoError(t, r.Flush(t.Context()))
	require.True(t, r.IsCommitted(t0, 4), "a record that was aborted")
	require.False(t, r.IsCommitted(client.TopicPartition{Topic: "t", Partition: 7}, 0))
	status := r.Status()[0]
	require.EqualValues(t, 9, status.MaxCommit)
	require.EqualValues(t, 11, status.HighWatermark)
	require.EqualValues(t, 11, status.LastStable)
	require.EqualValues(t, 7, status.Stable, "behind the marker of the transaction")
	records, bytes := r.Received()
	require.EqualValues(t, 7, records)
	require.Greater(t, bytes, int64(400))
	require.NoError(t, r.Redeliver(in...))
	require.Equal(t, []int64{7, 9, 10}, offsets(pollN(t, r, 3)), "once more only what is open")

	require.Equal(t, []int64{0, 1, 2, 3, 7, 8, 9, 10}, offsets(pollN(t, open(0), 8)))
}

func TestReaderOfCommittedRecordsRefuses(t *testing.T) {
	for want, opts := range map[string][]client.ReaderOpt{
		"DeliverCommitted without a group": {client.StartAt("t", 0, 0), client.DeliverCommitted()},
		"not client.Topics":                {client.Group("g"), client.Topics("t"), client.DeliverCommitted()},
		"where t[1] starts":                {client.Group("g"), client.StartAt("t", 0, 0), client.Partitions("t", 1), client.DeliverCommitted()},
		"StableLedger without a group":     {client.Topics("t"), client.StableLedger()},
	} {
		_, err := client.OpenReader(t.Context(), append(opts, client.SeedBrokers("127.0.0.1:1"))...)
		require.ErrorContains(t, err, want)
	}
}

// A Reader with StableLedger waits for the transactions that hold offsets when it opens, and
// for no others, of which there may always be some.
func TestReaderWaitsForTransactionsThatArePending(t *testing.T) {
	s := newServer(t)
	s.produce(6)
	in := pollN(t, s.open(client.Group("g")), 6)
	before := s.pend("one", in[0], in[2])
	asking := newValve(kmsg.OffsetFetch)
	opened := make(chan *client.Reader)
	go func() {
		opened <- s.openOnly(client.Group("g"), client.StableLedger(), client.DeliverCommitted(), client.StartAt("t", 0, 0), asking.opt())
	}()
	awaitAsked := func(by <-chan *client.Reader) {
		t.Helper()
		asking.awaitSent(3)
		select {
		case <-by:
			t.Fatal("it did not wait")
		default:
		}
	}
	awaitAsked(opened)
	after := s.pend("two", in[3])
	before.end()
	r := <-opened
	require.Equal(t, []bool{true, false, true, false, false, false}, r.Committed(in...), "the second transaction is not waited for")

	refreshed := make(chan *client.Reader)
	go func() {
		require.NoError(t, r.Refresh(context.Background()))
		refreshed <- r
	}()
	awaitAsked(refreshed)
	last := s.pend("three", in[5])
	after.end()
	<-refreshed
	require.Equal(t, []bool{true, false, true, true, false, false}, r.Committed(in...))

	ctx, cancel := context.WithCancelCause(t.Context())
	why := errors.New("enough")
	go func() {
		asking.awaitSent(2)
		cancel(why)
	}()
	require.ErrorIs(t, r.RedeliverOpen(ctx), why)
	last.end()
}

// A stock client that asks for stable offsets is told, once and at once, that a transaction
// may change them, also when it has acknowledged single records only.
func TestStableOffsetsWhileRecordsArePending(t *testing.T) {
	s := newServer(t)
	s.produce(3)
	r := s.open(client.Group("g"))
	in := pollN(t, r, 3)
	ask := kmsg.NewPtrOffsetFetchRequest()
	group := kmsg.NewOffsetFetchRequestGroup()
	topic := kmsg.NewOffsetFetchRequestGroupTopic()
	topic.Topic, topic.Partitions = "t", []int32{0}
	group.Group, group.Topics = "g", append(group.Topics, topic)
	ask.RequireStable, ask.Groups = true, append(ask.Groups, group)
	asking := newValve(kmsg.OffsetFetch)
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr()), kgo.Dialer(asking.dial))
	require.NoError(t, err)
	defer cl.Close()
	stable := func() (offset int64, err error) {
		t.Helper()
		infos, err := kadm.NewClient(cl).ListTopics(t.Context(), "t")
		require.NoError(t, err)
		ask.Groups[0].Topics[0].TopicID = infos["t"].ID
		resp, err := ask.RequestWith(t.Context(), cl)
		require.NoError(t, err)
		p := &resp.Groups[0].Topics[0].Partitions[0]
		return p.Offset, kerr.ErrorForCode(p.ErrorCode)
	}
	transaction := s.pend("one", in[0])
	_, err = stable()
	require.ErrorIs(t, err, kerr.UnstableOffsetCommit)
	require.Equal(t, 1, asking.count())
	transaction.end()
	offset, err := stable()
	require.NoError(t, err)
	require.EqualValues(t, 1, offset)
}

// A Reader that narrows down to a part of its slots delivers nothing else from then on,
// whatever was fetched before or is on its way, and misses nothing.
func TestReaderNarrows(t *testing.T) {
	s := newServer(t)
	for range 10 { // batches, of which a fetch brings a few
		s.produce(30)
	}
	half, quarter := client.SlotRange{Lo: 0, Hi: 32767}, client.SlotRange{Lo: 16384, Hi: 32767}
	in := func(slots client.SlotRange) (want []int64) {
		for _, r := range pollN(t, s.open(), 300) {
			if slot := keyfilter.Slot(r.Key, r.Offset); slots.Lo <= slot && slot <= slots.Hi {
				want = append(want, r.Offset)
			}
		}
		return want
	}
	t.Run("before the answer", func(t *testing.T) {
		fetches := newValve(kmsg.Fetch)
		fetches.set(true)
		r := s.open(fetches.opt())
		fetches.awaitHeld()
		require.NoError(t, r.Narrow(half))
		fetches.set(false)
		want := in(half)
		require.Equal(t, want, offsets(pollN(t, r, len(want))))
		require.True(t, r.Status()[0].Past(300))
	})
	t.Run("before it is polled", func(t *testing.T) {
		r := s.open(client.Slots(half))
		require.Eventually(t, func() bool { return r.Status()[0].HighWatermark == 300 }, time.Minute, time.Millisecond)
		require.NoError(t, r.Narrow(quarter))
		want := in(quarter)
		require.Equal(t, want, offsets(pollN(t, r, len(want))))
	})
	t.Run("while it is polled", func(t *testing.T) {
		r := s.open(client.Group("g"), client.FetchMaxPartitionBytes(1500))
		var got []int64
		slots := client.SlotRange{Lo: 0, Hi: 65535}
		for !r.Status()[0].Past(300) {
			ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond) // nothing may be left
			records, err := r.Poll(ctx)
			cancel()
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			for _, record := range records {
				slot := keyfilter.Slot(record.Key, record.Offset)
				require.True(t, slots.Lo <= slot && slot <= slots.Hi)
			}
			got = append(got, offsets(records)...)
			slots.Hi = max(slots.Hi-2000, 30_000)
			require.NoError(t, r.Narrow(slots))
		}
		require.IsIncreasing(t, got)
		require.Subset(t, got, in(slots))
	})
	t.Run("redelivered", func(t *testing.T) {
		r := s.open(client.Group("g"))
		all := pollN(t, r, 300)
		require.NoError(t, r.Narrow(quarter))
		require.NoError(t, r.Redeliver(all...))
		want := in(quarter)
		require.Equal(t, want, offsets(pollN(t, r, len(want))))
	})
}

func TestNarrowRefuses(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	r := s.open(client.Slots(client.SlotRange{Lo: 30, Hi: 49}, client.SlotRange{Lo: 20, Hi: 29}))
	require.NoError(t, r.Narrow(client.SlotRange{Lo: 20, Hi: 24}, client.SlotRange{Lo: 26, Hi: 40}))
	for _, slots := range [][]client.SlotRange{nil, {{Lo: 24, Hi: 26}}, {{Lo: 25, Hi: 25}}, {{Lo: 28, Hi: 27}}, {{Lo: 30, Hi: 31}, {Lo: 40, Hi: 41}}} {
		require.ErrorContains(t, r.Narrow(slots...), "narrow a reader", "%v", slots)
	}
	require.NoError(t, r.Narrow(client.SlotRange{Lo: 26, Hi: 26}))
	require.NoError(t, r.Close(t.Context()))
	require.ErrorIs(t, r.Narrow(client.SlotRange{Lo: 26, Hi: 26}), client.ErrClosed)
	require.ErrorContains(t, s.open(client.Keys([]byte("k"))).Narrow(client.SlotRange{}), "client.Keys")
}

// Runs are acknowledged in a transaction as records are.
func TestTransactionOfRuns(t *testing.T) {
	s := newServer(t)
	s.produce(10)
	r, tr := s.open(client.Group("g")), s.transact()
	in := pollN(t, r, 10)
	require.NoError(t, tr.Do(t.Context(), func(tx *client.Txn) error {
		require.NoError(t, tx.AckRuns(r, "t", 0, client.Run{Start: 3, End: 5}))
		require.NoError(t, tx.Ack(r, in[1], in[4]))
		return tx.AckRuns(r, "t", 0, client.Run{Start: 0, End: 1}, client.Run{Start: 4, End: 6})
	}))
	require.True(t, slices.Equal([]bool{true, true, false, true, true, true, false, false, false, false}, r.Committed(in...)))
	ledger := s.ledger()
	require.EqualValues(t, 2, ledger.Stable)
	require.EqualValues(t, 6, ledger.MaxCommit)
	require.EqualValues(t, 1, ledger.Gaps)

	failure := errors.New("no")
	require.Equal(t, failure, tr.Do(t.Context(), func(tx *client.Txn) error {
		require.NoError(t, tx.AckRuns(r, "t", 0, client.Run{Start: 2, End: 7}))
		return failure
	}))
	require.Equal(t, []int64{2, 6}, offsets(pollN(t, r, 2)), "of the runs what is open")
	err := tr.Do(t.Context(), func(tx *client.Txn) error {
		return tx.AckRuns(r, "t", 0, client.Run{Start: 8, End: 9}, client.Run{Start: 5, End: 5})
	})
	require.ErrorIs(t, err, client.ErrBadRuns)
	require.ErrorIs(t, err, client.ErrAborted)
	require.Equal(t, []int64{8}, offsets(pollN(t, r, 1)))
	ungrouped := s.open()
	require.ErrorIs(t, tr.Do(t.Context(), func(tx *client.Txn) error {
		return tx.AckRuns(ungrouped, "t", 0, client.Run{Start: 8, End: 9})
	}), client.ErrNoGroup)
}

// openOnly opens a Reader of what the options name, and nothing else.
func (s *server) openOnly(opts ...client.ReaderOpt) *client.Reader {
	s.tb.Helper()
	kafka := client.KafkaOpts(kgo.SeedBrokers(s.addr()))
	r, err := client.OpenReader(s.tb.Context(), append([]client.ReaderOpt{kafka}, opts...)...)
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { r.Close(context.Background()) })
	return r
}

// abort writes n records to topic t in a transaction that is aborted.
func (s *server) abort(n int) {
	s.tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr()), kgo.TransactionalID("aborted"), kgo.DefaultProduceTopic("t"))
	require.NoError(s.tb, err)
	defer cl.Close()
	require.NoError(s.tb, cl.BeginTransaction())
	for range n {
		require.NoError(s.tb, cl.ProduceSync(s.tb.Context(), &kgo.Record{Value: []byte("never")}).FirstErr())
	}
	require.NoError(s.tb, cl.EndTransaction(s.tb.Context(), kgo.TryAbort))
}

// pending is a transaction that has acknowledged all it will, and not ended.
type pending struct {
	ends *valve
	done chan error
	s    *server
}

// pend acknowledges records of topic t for group g in a transaction.
func (s *server) pend(name string, records ...*kgo.Record) *pending {
	s.tb.Helper()
	p := &pending{ends: newValve(kmsg.EndTxn), done: make(chan error, 1), s: s}
	r := s.open(client.Group("g"))
	tr := s.transact(client.TransactionalID(name), p.ends.opt())
	s.tb.Cleanup(func() { p.ends.set(false) }) // or the Transactor does not close
	p.ends.set(true)
	go func() {
		p.done <- tr.Do(context.Background(), func(tx *client.Txn) error { return tx.Ack(r, records...) })
	}()
	p.ends.awaitHeld()
	return p
}

// end commits the transaction.
func (p *pending) end() {
	p.s.tb.Helper()
	p.ends.set(false)
	require.NoError(p.s.tb, <-p.done)
}
