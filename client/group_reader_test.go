package client_test

import (
	"context"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Members share one partition while others join, leave and come back. Each record is
// handled once.
func TestGroupReadersShareAPartition(t *testing.T) {
	overBalancers(t, func(t *testing.T, balancer func() kgo.GroupBalancer) {
		s := newServer(t)
		s.produce(600)
		g := newGrouping(t, s, balancer)
		var members []*client.GroupReader
		for _, name := range []string{"a", "b", "c"} {
			members = append(members, g.join(name))
		}
		g.spread(3, 1)
		for _, m := range members {
			require.Len(t, m.Assigned(), 1)
			require.Less(t, m.Assigned()[0].Slots.Hi-m.Assigned()[0].Slots.Lo, uint16(1<<15))
		}
		s.produce(600)
		g.work(600)
		g.join("d")
		g.spread(4, 1)
		s.produce(600)
		g.work(1200)
		require.NoError(t, members[0].Close(t.Context()))
		require.Empty(t, members[0].Assigned())
		g.spread(3, 1)
		s.produce(600)
		g.finish(2400)
		require.Empty(t, g.failures)
	})
}

// A member that dies without leaving has its slots go to the others when its session ends.
// What it had committed by then does not come again.
func TestGroupReaderThatDies(t *testing.T) {
	overBalancers(t, func(t *testing.T, balancer func() kgo.GroupBalancer) {
		s := newServer(t)
		s.produce(1500)
		g := newGrouping(t, s, balancer)
		g.join("a")
		l := &line{s: s}
		g.join("dying", client.KafkaOpts(kgo.Dialer(l.dial)), client.MemberOpts(kgo.SessionTimeout(200*time.Millisecond)))
		g.join("c")
		g.spread(3, 1)
		g.kill("dying", l)
		g.spread(2, 1)
		s.produce(500)
		g.finish(2000)
	})
}

// A broker that crashes and comes back finds its members where they were, and what it has
// answered is committed. Between two generations, as may be when members have only just
// spread out, they lose what they held, as they do at Kafka.
func TestGroupReadersThroughACrash(t *testing.T) {
	for _, name := range []string{"range", "cooperative-sticky"} {
		t.Run("balancer="+name, func(t *testing.T) {
			s := newServer(t)
			s.produce(2000)
			g := newGrouping(t, s, balancers[name])
			for _, name := range []string{"a", "b", "c"} {
				g.join(name)
			}
			g.spread(3, 1)
			g.crash()
			s.start()
			s.produce(500)
			g.finish(2500)
		})
	}
}

// Close ends with its context when the broker is away, and says so.
func TestCloseOfAGroupReaderWithoutABroker(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	g := newGrouping(t, s, kgo.RangeBalancer)
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
	for _, name := range []string{"range", "cooperative-sticky"} {
		t.Run("balancer="+name, func(t *testing.T) { takesTooLong(t, balancers[name]) })
	}
}

func takesTooLong(t *testing.T, balancer func() kgo.GroupBalancer) {
	s := newServer(t)
	s.produce(1)
	var slow, quick client.AssignedSlots
	began, given, done := make(chan struct{}), make(chan client.AssignedSlots, 8), make(chan struct{})
	opts := func(h client.GroupReaderHooks) []client.ReaderOpt {
		return []client.ReaderOpt{client.SeedBrokers(s.addr()), client.Group("g"), client.Topics("t"), client.GroupHooks(h),
			client.MemberOpts(kgo.HeartbeatInterval(20*time.Millisecond), kgo.RebalanceTimeout(500*time.Millisecond))}
	}
	var cause, commitErr error
	a, err := client.OpenGroupReader(t.Context(), balancer(), func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
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
	b, err := client.OpenGroupReader(t.Context(), balancer(), func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
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
	_, err := client.OpenReader(t.Context(), append(good, client.HandleAtMost(5))...)
	require.ErrorContains(t, err, "client.OpenGroupReader")
}
