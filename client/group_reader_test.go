package client_test

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

// grouping is a group of GroupReaders, and what is true of all of them together: a range
// is held by one member at a time, a record is handled by the holder of its range and by
// nobody else meanwhile, and never after its commit was answered.
type grouping struct {
	t *testing.T
	s *server

	mu        sync.Mutex
	held      map[string][]client.AssignedSlots
	inHand    map[int64]string
	committed map[int64]bool
	failures  []error
	moved     *sync.Cond // something of the above has changed
}

func newGrouping(t *testing.T, s *server) *grouping {
	g := &grouping{t: t, s: s, held: map[string][]client.AssignedSlots{}, inHand: map[int64]string{}, committed: map[int64]bool{}}
	g.moved = sync.NewCond(&g.mu)
	return g
}

// join opens a member. It handles few records at a time, so that there is always work left
// when the group rebalances.
func (g *grouping) join(name string, opts ...client.ReaderOpt) *client.GroupReader {
	g.t.Helper()
	hooks := client.GroupReaderHooks{
		Assigned: func(_ int32, ranges []client.AssignedSlots) { g.assigned(name, ranges) },
		Revoked:  func(ranges []client.AssignedSlots) { g.revoked(name, ranges) },
		Failed:   g.failed,
	}
	handler := func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
		if g.begin(name, records) {
			g.end(records, r.Commit(ctx, records...))
		}
	}
	opts = append([]client.ReaderOpt{client.KafkaOpts(kgo.SeedBrokers(g.s.addr()), kgo.Dialer(g.s.dial)), client.Group("g"), client.Topics("t"),
		client.GroupHooks(hooks), client.HandleAtMost(7), client.FetchMaxPartitionBytes(4096), client.FetchMaxWait(50 * time.Millisecond),
		client.RetryBackoff(func(int) time.Duration { return 5 * time.Millisecond }),
		client.MemberOpts(kgo.HeartbeatInterval(20 * time.Millisecond))}, opts...)
	r, err := client.OpenGroupReader(g.t.Context(), kgo.RangeBalancer(), handler, opts...)
	require.NoError(g.t, err)
	g.t.Cleanup(func() { assert.NoError(g.t, r.Close(context.Background())) })
	return r
}

func (g *grouping) assigned(name string, ranges []client.AssignedSlots) {
	g.mu.Lock()
	defer g.mu.Unlock()
	for other, held := range g.held {
		for _, theirs := range held {
			for _, ours := range ranges {
				assert.False(g.t, theirs.TopicPartition == ours.TopicPartition && theirs.Slots.Lo <= ours.Slots.Hi && ours.Slots.Lo <= theirs.Slots.Hi,
					"%s is given %v while %s holds %v", name, ours, other, theirs)
			}
		}
	}
	g.held[name] = ranges
	g.moved.Broadcast()
}

func (g *grouping) revoked(name string, ranges []client.AssignedSlots) {
	g.mu.Lock()
	defer g.mu.Unlock()
	assert.Equal(g.t, g.held[name], ranges)
	delete(g.held, name)
	g.moved.Broadcast()
}

func (g *grouping) failed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failures = append(g.failures, err)
}

// begin notes that a member begins with records; false means that they are not its to handle.
func (g *grouping) begin(name string, records []*kgo.Record) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	good := true
	for _, r := range records {
		slot := keyfilter.Slot(r.Key, r.Offset)
		within := false
		for _, h := range g.held[name] {
			within = within || h.Partition == r.Partition && h.Slots.Lo <= slot && slot <= h.Slots.Hi
		}
		good = assert.True(g.t, within, "%s got offset %d in slot %d, and holds %v", name, r.Offset, slot, g.held[name]) && good
		good = assert.False(g.t, g.committed[r.Offset], "%s got offset %d after it was committed", name, r.Offset) && good
		good = assert.Empty(g.t, g.inHand[r.Offset], "%s got offset %d while another is at it", name, r.Offset) && good
		g.inHand[r.Offset] = name
	}
	return good
}

func (g *grouping) end(records []*kgo.Record, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	assert.NoError(g.t, err)
	for _, r := range records {
		delete(g.inHand, r.Offset)
		g.committed[r.Offset] = g.committed[r.Offset] || err == nil
	}
	g.moved.Broadcast()
}

// wait waits until something is true, which is looked at whenever something has changed.
func (g *grouping) wait(what string, ok func() bool) {
	g.t.Helper()
	late := time.AfterFunc(time.Minute, func() {
		g.mu.Lock()
		defer g.mu.Unlock()
		g.t.Errorf("waited too long for %s; held: %v, %d committed, failures: %v", what, g.held, len(g.committed), g.failures)
		ok = func() bool { return true }
		g.moved.Broadcast()
	})
	defer late.Stop()
	g.mu.Lock()
	defer g.mu.Unlock()
	for !ok() {
		g.moved.Wait()
	}
}

// spread waits until so many members hold a range each.
func (g *grouping) spread(members int) {
	g.t.Helper()
	g.wait(fmt.Sprint(members, " members at work"), func() bool {
		ranges := 0
		for _, held := range g.held {
			ranges += len(held)
		}
		return len(g.held) == members && ranges == members
	})
}

func (g *grouping) work(until int) {
	g.t.Helper()
	g.wait(fmt.Sprint(until, " commits"), func() bool { return len(g.committed) >= until })
}

// finish checks that everything is committed, and that nobody complained.
func (g *grouping) finish(records int) {
	g.t.Helper()
	g.work(records)
	ledgers, err := g.s.admin().Describe(g.t.Context(), "g")
	require.NoError(g.t, err)
	require.EqualValues(g.t, records, ledgers[0].Stable)
	require.Zero(g.t, ledgers[0].Gaps)
}

// Members share one partition while others join, leave and come back. Each record is
// handled once.
func TestGroupReadersShareAPartition(t *testing.T) {
	s := newServer(t)
	s.produce(1000)
	g := newGrouping(t, s)
	var members []*client.GroupReader
	for _, name := range []string{"a", "b", "c"} {
		members = append(members, g.join(name))
	}
	g.spread(3)
	for _, m := range members {
		require.Len(t, m.Assigned(), 1)
		require.Less(t, m.Assigned()[0].Slots.Hi-m.Assigned()[0].Slots.Lo, uint16(1<<15))
	}
	s.produce(1000)
	g.work(1000)
	g.join("d")
	g.spread(4)
	s.produce(1000)
	g.work(2000)
	require.NoError(t, members[0].Close(t.Context()))
	require.Empty(t, members[0].Assigned())
	g.spread(3)
	s.produce(1000)
	g.finish(4000)
	require.Empty(t, g.failures)
}

// A broker that crashes and comes back finds its members where they were, and what it has
// answered is committed.
func TestGroupReadersThroughACrash(t *testing.T) {
	s := newServer(t)
	s.produce(3000)
	g := newGrouping(t, s)
	for _, name := range []string{"a", "b", "c"} {
		g.join(name)
	}
	g.spread(3)
	s.crash()
	s.start()
	s.produce(1000)
	g.finish(4000)
}

// Close ends with its context when the broker is away, and says so.
func TestCloseOfAGroupReaderWithoutABroker(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	g := newGrouping(t, s)
	member := g.join("a")
	g.work(1)
	s.crash()
	defer s.start()
	// It has ended already: of one that ends later, kgo may give up before.
	ctx, cancel := context.WithTimeout(t.Context(), 0)
	defer cancel()
	require.ErrorIs(t, member.Close(ctx), context.DeadlineExceeded)
	require.Empty(t, member.Assigned())
}

// A member whose handler does not return in time loses its range: its context ends, then it
// is removed from the group, the record goes to another member, and its commit is refused.
func TestGroupReaderThatTakesTooLong(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	var slow, quick client.AssignedSlots
	began, given, done := make(chan struct{}), make(chan client.AssignedSlots, 8), make(chan struct{})
	opts := func(h client.GroupReaderHooks) []client.ReaderOpt {
		return []client.ReaderOpt{client.SeedBrokers(s.addr()), client.Group("g"), client.Topics("t"), client.GroupHooks(h),
			client.MemberOpts(kgo.HeartbeatInterval(20*time.Millisecond), kgo.RebalanceTimeout(500*time.Millisecond))}
	}
	var cause, commitErr error
	a, err := client.OpenGroupReader(t.Context(), kgo.RangeBalancer(), func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
		select {
		case <-began:
			return // it has come back, and may get the record again
		default:
		}
		close(began)
		<-ctx.Done()
		cause = context.Cause(ctx)
		slow = <-given
		commitErr = r.Commit(context.Background(), records...)
		close(done)
	}, opts(client.GroupReaderHooks{})...)
	require.NoError(t, err)
	<-began
	handled := make(chan struct{}, 8)
	b, err := client.OpenGroupReader(t.Context(), kgo.RangeBalancer(), func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
		handled <- struct{}{}
		<-done // or the commit of the other would change nothing, and so succeed
		if err := r.Commit(ctx, records...); err != nil {
			assert.ErrorIs(t, err, client.ErrRevoked)
		}
	}, opts(client.GroupReaderHooks{Assigned: func(_ int32, ranges []client.AssignedSlots) {
		for _, r := range ranges {
			given <- r
		}
	}})...)
	require.NoError(t, err)
	<-done
	<-handled
	require.ErrorIs(t, cause, client.ErrRevoked)
	require.ErrorIs(t, commitErr, client.ErrRevoked)
	require.NotContains(t, commitErr.Error(), "stop its consumers")
	quick = client.AssignedSlots{TopicPartition: client.TopicPartition{Topic: "t"}, Slots: client.SlotRange{Lo: 0, Hi: 65535}}
	require.Equal(t, quick, slow, "alone it holds the whole partition")
	require.NoError(t, b.Close(t.Context()))
	require.NoError(t, a.Close(t.Context()))
}

// A stock consumer in the group gets a whole partition, and the others share the rest.
func TestGroupReadersWithAStockConsumer(t *testing.T) {
	s := newServer(t)
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr()))
	require.NoError(t, err)
	created, err := kadm.NewClient(cl).CreateTopic(t.Context(), 2, 1, nil, "t")
	require.NoError(t, err)
	require.NoError(t, created.Err)
	cl.Close()
	g := newGrouping(t, s)
	stock, err := kgo.NewClient(kgo.SeedBrokers(s.addr()), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"), kgo.HeartbeatInterval(20*time.Millisecond),
		kgo.Balancers(client.SplitBalancer(kgo.RangeBalancer())), kgo.OnPartitionsAssigned(func(_ context.Context, _ *kgo.Client, ps map[string][]int32) {
			var ranges []client.AssignedSlots
			for _, p := range ps["t"] {
				ranges = append(ranges, client.AssignedSlots{TopicPartition: client.TopicPartition{Topic: "t", Partition: p}, Slots: client.SlotRange{Lo: 0, Hi: 65535}})
			}
			g.assigned("stock", ranges)
		}), kgo.OnPartitionsRevoked(func(context.Context, *kgo.Client, map[string][]int32) {
			g.mu.Lock()
			defer g.mu.Unlock()
			delete(g.held, "stock")
		}))
	require.NoError(t, err)
	defer stock.Close()
	g.join("a")
	g.join("b")
	g.spread(3)
	g.wait("the stock consumer's partition", func() bool { return g.held["stock"][0].Partition == 1 })
	produceTo(t, s, 0, 300)
	g.finish(300)
}

func TestGroupReaderRefuses(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	handler := func(context.Context, *client.Reader, []*kgo.Record) {}
	for want, opts := range map[string][]client.ReaderOpt{
		"no group":                {client.Topics("t")},
		"the group assigns":       {client.Group("g"), client.Partitions("t", 0)},
		"without members":         {client.Group("g"), client.Topics("t"), client.Keys([]byte("k"))},
		"not positive":            {client.Group("g"), client.Topics("t"), client.HandleAtMost(0)},
		"UNKNOWN_TOPIC_OR_PARTIT": {client.Group("g"), client.Topics("none")},
	} {
		_, err := client.OpenGroupReader(t.Context(), kgo.RangeBalancer(), handler, append(opts, client.SeedBrokers(s.addr()))...)
		require.ErrorContains(t, err, want)
	}
	good := []client.ReaderOpt{client.SeedBrokers(s.addr()), client.Group("g"), client.Topics("t")}
	_, err := client.OpenGroupReader(t.Context(), kgo.CooperativeStickyBalancer(), handler, good...)
	require.ErrorIs(t, err, client.ErrCooperativeBalancer)
	_, err = client.OpenReader(t.Context(), append(good, client.HandleAtMost(5))...)
	require.ErrorContains(t, err, "client.OpenGroupReader")
}

// produceTo writes n records to one partition of topic t.
func produceTo(t *testing.T, s *server, partition int32, n int) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer cl.Close()
	for i := range n {
		cl.Produce(t.Context(), &kgo.Record{Topic: "t", Partition: partition, Key: fmt.Append(nil, "key-", i)}, func(_ *kgo.Record, err error) {
			assert.NoError(t, err)
		})
	}
	require.NoError(t, cl.Flush(t.Context()))
}
