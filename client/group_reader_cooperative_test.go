package client_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// In a cooperative group a member goes on with what it keeps while others join and leave:
// nothing is taken from it, and a handler that is at work all the while can commit after it.
func TestKeptSlotsAreReadThroughRebalances(t *testing.T) {
	s := newServer(t)
	g := newGrouping(t, s, kgo.CooperativeStickyBalancer)
	g.create(1)
	g.join("a")
	g.full(1, "a") // so it has the first half, which is the next to be split
	busy, goOn := make(chan struct{}), make(chan struct{})
	release := sync.OnceFunc(func() { close(goOn) })
	defer release()
	var first sync.Once
	g.joinWith("b", func(context.Context) {
		first.Do(func() {
			close(busy)
			<-goOn
		})
	})
	g.spread(2, 1)
	s.produce(300)
	<-busy
	g.mu.Lock()
	keeps, before, taken := g.held["b"], g.begun["b"], g.taken["a"]
	g.mu.Unlock()
	c := g.join("c")
	g.spread(3, 1)
	require.NoError(t, c.Close(t.Context()))
	g.spread(2, 1)
	g.mu.Lock()
	kept, after, taking, takingB := g.held["b"], g.begun["b"], g.taken["a"], g.taken["b"]
	g.mu.Unlock()
	require.Equal(t, keeps, kept)
	require.Zero(t, takingB)
	require.Equal(t, taken+2, taking, "a shared its half with c, and got it back: its bounds changed twice")
	require.Greater(t, after, before)
	release()
	g.finish(300)
	require.Empty(t, g.failures)
}

// A cooperative member that does not give its slots up in time leaves the group, and takes
// nothing with it: what it kept ends as well.
func TestCooperativeMemberThatGivesNothingUp(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	g := newGrouping(t, s, kgo.CooperativeStickyBalancer)
	began, goOn, returned := make(chan context.Context, 1), make(chan struct{}), make(chan error, 1)
	stuck, err := g.open("stuck", func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
		select {
		case began <- ctx:
		default:
			return // it has come back
		}
		<-goOn // whatever ctx says
		returned <- r.Commit(context.Background(), records...)
	}, client.MemberOpts(kgo.RebalanceTimeout(200*time.Millisecond)))
	require.NoError(t, err)
	ctx := <-began
	b, err := g.open("b", func(context.Context, *client.Reader, []*kgo.Record) {})
	require.NoError(t, err)
	<-ctx.Done()
	require.ErrorIs(t, context.Cause(ctx), client.ErrRevoked)
	g.mu.Lock()
	g.dead["stuck"] = true // it says that it gave its slots up only when its handler has returned
	delete(g.held, "stuck")
	g.mu.Unlock()
	g.wait("b to have everything", func() bool { return len(g.held["b"]) == 1 && g.held["b"][0].Slots == allSlots })
	close(goOn)
	require.ErrorIs(t, <-returned, client.ErrRevoked)
	require.NoError(t, b.Close(t.Context()))
	require.NoError(t, stuck.Close(t.Context()))
}
