package client_test

import (
	"context"
	"errors"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func instance(id string) client.ReaderOpt { return client.MemberOpts(kgo.InstanceID(id)) }

// A static member that closes keeps its place. The process that comes after it in time gets
// the same slots, and nobody else notices; whether it leads the group or not.
func TestStaticMemberRestarts(t *testing.T) {
	overBalancers(t, func(t *testing.T, balancer func() kgo.GroupBalancer) {
		s := newServer(t)
		s.produce(300)
		g := newGrouping(t, s, balancer)
		members := map[string]*client.GroupReader{}
		for _, name := range []string{"a", "b", "c"} {
			members[name] = g.join(name, instance(name))
			g.wait(name, func() bool { return len(g.begun) == len(members) })
		}
		g.spread(3, 1)
		g.wait("all to know of the generation", func() bool { return g.begun["a"] == g.begun["b"] && g.begun["b"] == g.begun["c"] })
		g.work(300)
		for i, name := range []string{"b", "a", "c"} { // a leads
			before := members[name].Assigned()
			g.mu.Lock()
			taken, generation := g.taken["a"]+g.taken["b"]+g.taken["c"], g.begun[name]
			delete(g.begun, name)
			g.mu.Unlock()
			require.NoError(t, members[name].Close(t.Context()))
			members[name] = g.join(name, instance(name))
			g.wait(name+" again", func() bool { return g.begun[name] > 0 })
			require.Equal(t, before, members[name].Assigned())
			s.produce(100)
			g.work(400 + 100*i)
			g.mu.Lock()
			took, begun := g.taken["a"]+g.taken["b"]+g.taken["c"], g.begun[name]
			g.mu.Unlock()
			require.Equal(t, generation, begun, "the group did not rebalance when %s restarted", name)
			require.Equal(t, taken+1, took, "only %s lost anything", name)
		}
		g.finish(600)
		require.Empty(t, g.failures)
	})
}

// A second process with the same instance id takes the place of the first, whose commits
// are refused from then on.
func TestDuplicateOfAStaticMember(t *testing.T) {
	for _, name := range []string{"range", "cooperative-sticky"} {
		t.Run("balancer="+name, func(t *testing.T) {
			s := newServer(t)
			s.produce(1)
			g := newGrouping(t, s, balancers[name])
			began, second := make(chan struct{}), make(chan struct{})
			refused := make(chan error, 1)
			first, err := g.open("a", func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
				close(began)
				<-second
				refused <- r.Commit(context.Background(), records...)
			}, instance("i"))
			require.NoError(t, err)
			<-began
			got := make(chan []*kgo.Record, 1)
			other := newGrouping(t, s, balancers[name])
			heir, err := other.open("b", func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
				close(second)
				got <- records
				<-ctx.Done() // or the commit of the other would change nothing, and so succeed
			}, instance("i"))
			require.NoError(t, err)
			require.Len(t, <-got, 1, "what the first did not commit")
			err = <-refused
			require.ErrorIs(t, err, client.ErrRevoked)
			require.ErrorIs(t, err, kerr.FencedInstanceID)
			g.wait("the first to hear of it", func() bool {
				heard := slices.ContainsFunc(g.failures, func(err error) bool { return errors.Is(err, kerr.FencedInstanceID) })
				return heard && len(g.held) == 0
			})
			require.Empty(t, first.Assigned())
			require.Equal(t, allSlots, heir.Assigned()[0].Slots)
			require.NoError(t, first.Close(t.Context()))
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			_ = heir.Close(ctx) // its handler waits for that
		})
	}
}

// askedContext tells when somebody waits for its end.
type askedContext struct {
	context.Context
	once  sync.Once
	asked chan struct{}
}

func (c *askedContext) Done() <-chan struct{} {
	c.once.Do(func() { close(c.asked) })
	return c.Context.Done()
}

// A static member that closes after it gave slots up, and before it could say so, leaves the
// group for good: its heir would not say it, and whoever is to get them would wait.
func TestStaticMemberThatOwesAJoin(t *testing.T) {
	s := newServer(t)
	s.produce(200)
	g := newGrouping(t, s, kgo.CooperativeStickyBalancer)
	began, closing := make(chan context.Context, 1), make(chan struct{})
	a, err := g.open("a", func(ctx context.Context, _ *client.Reader, _ []*kgo.Record) {
		began <- ctx
		<-closing
	}, instance("a"), client.MemberOpts(kgo.RebalanceTimeout(200*time.Millisecond), kgo.SessionTimeout(5*time.Minute)))
	require.NoError(t, err)
	taking := <-began
	g.join("b", instance("b"))
	<-taking.Done() // the generation has begun in which it loses a half
	ctx := &askedContext{Context: t.Context(), asked: make(chan struct{})}
	closed := make(chan error)
	go func() { closed <- a.Close(ctx) }()
	<-ctx.asked
	close(closing)
	require.NoError(t, <-closed)
	g.spread(1, 1)
	g.finish(200)
}
