package client_test

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
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

// balancers are all of kgo's, which must all be able to split.
var balancers = map[string]func() kgo.GroupBalancer{
	"range": kgo.RangeBalancer, "roundrobin": kgo.RoundRobinBalancer,
	"sticky": kgo.StickyBalancer, "cooperative-sticky": kgo.CooperativeStickyBalancer,
}

func overBalancers(t *testing.T, test func(t *testing.T, balancer func() kgo.GroupBalancer)) {
	for name, balancer := range balancers {
		t.Run("balancer="+name, func(t *testing.T) { test(t, balancer) })
	}
}

var allSlots = client.SlotRange{Lo: 0, Hi: 65535}

// at is a record's place in topic t.
type at struct {
	partition int32
	offset    int64
}

// grouping is a group of consumers, and what is true of all of them together: a range
// is held by one member at a time, a record is handled by the holder of its range and by
// nobody else meanwhile, and never after its commit was answered.
type grouping struct {
	t        *testing.T
	s        *server
	balancer func() kgo.GroupBalancer

	mu        sync.Mutex
	held      map[string][]client.AssignedSlots
	inHand    map[at]string
	committed map[at]bool
	// unsure are those whose commit may have happened although no answer came.
	unsure   map[at]bool
	taken    map[string]int // how often a member had something taken from it
	begun    map[string]int32
	dead     map[string]bool
	crashed  bool // the broker has, so members may have lost what they held
	failures []error
	moved    *sync.Cond // something of the above has changed
}

func newGrouping(t *testing.T, s *server, balancer func() kgo.GroupBalancer) *grouping {
	g := &grouping{t: t, s: s, balancer: balancer, held: map[string][]client.AssignedSlots{}, inHand: map[at]string{},
		committed: map[at]bool{}, unsure: map[at]bool{}, taken: map[string]int{}, begun: map[string]int32{}, dead: map[string]bool{}}
	g.moved = sync.NewCond(&g.mu)
	return g
}

// join opens a member. It handles few records at a time, so that there is always work left
// when the group rebalances.
func (g *grouping) join(name string, opts ...client.ReaderOpt) *client.GroupReader {
	g.t.Helper()
	return g.joinWith(name, nil, opts...)
}

// joinWith calls before, if it is not nil, before a member commits what it has handled.
func (g *grouping) joinWith(name string, before func(context.Context), opts ...client.ReaderOpt) *client.GroupReader {
	g.t.Helper()
	r, err := g.open(name, func(ctx context.Context, r *client.Reader, records []*kgo.Record) {
		if g.begin(name, records) {
			if before != nil {
				before(ctx)
			}
			g.end(name, records, r.Commit(ctx, records...))
		}
	}, opts...)
	require.NoError(g.t, err)
	g.t.Cleanup(func() {
		ctx, cancel := context.WithCancel(context.Background())
		defer cancel()
		if g.isDead(name) {
			cancel()
		}
		if err := r.Close(ctx); ctx.Err() == nil {
			assert.NoError(g.t, err)
		}
	})
	return r
}

func (g *grouping) open(name string, handler client.RangeHandler, opts ...client.ReaderOpt) (*client.GroupReader, error) {
	hooks := client.GroupReaderHooks{
		Assigned: func(generation int32, ranges []client.AssignedSlots) { g.assigned(name, generation, ranges) },
		Revoked:  func(ranges []client.AssignedSlots) { g.revoked(name, ranges) },
		Failed:   g.failed,
	}
	opts = append([]client.ReaderOpt{client.KafkaOpts(kgo.SeedBrokers(g.s.addr()), kgo.Dialer(g.s.dial)), client.Group("g"), client.Topics("t"),
		client.GroupHooks(hooks), client.HandleAtMost(7), client.FetchMaxPartitionBytes(4096), client.FetchMaxWait(50 * time.Millisecond),
		client.RetryBackoff(func(int) time.Duration { return 5 * time.Millisecond }),
		client.MemberOpts(kgo.HeartbeatInterval(20 * time.Millisecond))}, opts...)
	return client.OpenGroupReader(g.t.Context(), g.balancer(), handler, opts...)
}

// line is a network that can be cut.
type line struct {
	s     *server
	mu    sync.Mutex
	cut   bool
	conns []net.Conn
}

func (l *line) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := l.s.dial(ctx, network, host)
	l.mu.Lock()
	defer l.mu.Unlock()
	if err == nil && l.cut {
		conn.Close()
		err = errors.New("the line is cut")
	}
	if err != nil {
		return nil, err
	}
	l.conns = append(l.conns, conn)
	return conn, nil
}

// kill lets a member die without a word: from one moment on it handles nothing, and nothing
// it says arrives.
func (g *grouping) kill(name string, l *line) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.dead[name] = true
	delete(g.held, name)
	for what, who := range g.inHand {
		if who == name {
			delete(g.inHand, what)
			g.unsure[what] = true
		}
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.cut = true
	for _, conn := range l.conns {
		conn.Close()
	}
	g.moved.Broadcast()
}

// crash lets the broker die.
func (g *grouping) crash() {
	g.mu.Lock()
	g.crashed = true
	g.mu.Unlock()
	g.s.crash()
}

func (g *grouping) isDead(name string) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.dead[name]
}

func (g *grouping) assigned(name string, generation int32, ranges []client.AssignedSlots) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead[name] {
		return
	}
	for other, held := range g.held {
		for _, theirs := range held {
			for _, ours := range ranges {
				assert.False(g.t, other != name && theirs.TopicPartition == ours.TopicPartition && theirs.Slots.Lo <= ours.Slots.Hi && ours.Slots.Lo <= theirs.Slots.Hi,
					"%s is given %v while %s holds %v", name, ours, other, theirs)
			}
		}
	}
	for _, before := range g.held[name] {
		assert.Contains(g.t, ranges, before, "%s was not told that it holds this no more", name)
	}
	g.held[name], g.begun[name] = slices.Clone(ranges), generation
	if len(ranges) == 0 {
		delete(g.held, name)
	}
	g.moved.Broadcast()
}

func (g *grouping) revoked(name string, ranges []client.AssignedSlots) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead[name] {
		return
	}
	assert.Subset(g.t, g.held[name], ranges)
	g.held[name] = slices.DeleteFunc(g.held[name], func(r client.AssignedSlots) bool { return slices.Contains(ranges, r) })
	if len(g.held[name]) == 0 {
		delete(g.held, name)
	}
	g.taken[name]++
	g.moved.Broadcast()
}

func (g *grouping) failed(err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.failures = append(g.failures, err)
	g.moved.Broadcast()
}

// begin notes that a member begins with records; false means that they are not its to handle.
func (g *grouping) begin(name string, records []*kgo.Record) bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead[name] {
		return false
	}
	good := true
	for _, r := range records {
		slot := keyfilter.Slot(r.Key, r.Offset)
		within := false
		for _, h := range g.held[name] {
			within = within || h.Partition == r.Partition && h.Slots.Lo <= slot && slot <= h.Slots.Hi
		}
		what := at{r.Partition, r.Offset}
		good = assert.True(g.t, within, "%s got %v in slot %d, and holds %v", name, what, slot, g.held[name]) && good
		good = assert.False(g.t, g.committed[what], "%s got %v after it was committed", name, what) && good
		good = assert.Empty(g.t, g.inHand[what], "%s got %v while another is at it", name, what) && good
		g.inHand[what] = name
	}
	return good
}

func (g *grouping) end(name string, records []*kgo.Record, err error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.dead[name] {
		return
	}
	lost := g.crashed && errors.Is(err, client.ErrRevoked)
	if !lost {
		assert.NoError(g.t, err, "a commit of %s", name)
	}
	for _, r := range records {
		what := at{r.Partition, r.Offset}
		delete(g.inHand, what)
		g.committed[what] = g.committed[what] || err == nil
		if lost && !g.committed[what] {
			g.unsure[what] = true
		}
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

// spread waits until so many members hold everything, one range each, or several if there
// are more partitions than members.
func (g *grouping) spread(members, partitions int) {
	g.t.Helper()
	g.wait(fmt.Sprint(members, " members at work"), func() bool {
		ranges, slots := 0, 0
		for _, held := range g.held {
			ranges += len(held)
			for _, r := range held {
				slots += int(r.Slots.Hi) - int(r.Slots.Lo) + 1
			}
		}
		return len(g.held) == members && ranges == max(members, partitions) && slots == partitions*(1<<16)
	})
}

func (g *grouping) work(until int) {
	g.t.Helper()
	g.wait(fmt.Sprint(until, " commits"), func() bool { return len(g.committed) >= until })
}

// finish checks that everything is committed, and that nothing else is.
func (g *grouping) finish(records int) {
	g.t.Helper()
	g.wait(fmt.Sprint(records, " records"), func() bool {
		done := len(g.committed)
		for what := range g.unsure {
			if !g.committed[what] {
				done++
			}
		}
		return done >= records
	})
	admin := g.s.admin()
	require.EventuallyWithT(g.t, func(t *assert.CollectT) { // what was unsure may come again
		ledgers, err := admin.Describe(g.t.Context(), "g")
		require.NoError(t, err)
		stable := int64(0)
		for _, l := range ledgers {
			stable += l.Stable
			require.Zero(t, l.Gaps)
		}
		require.EqualValues(t, records, stable)
	}, time.Minute, 5*time.Millisecond)
}

// create makes topic t.
func (g *grouping) create(partitions int32) {
	g.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(g.s.addr()))
	require.NoError(g.t, err)
	defer cl.Close()
	created, err := kadm.NewClient(cl).CreateTopic(g.t.Context(), partitions, 1, nil, "t")
	require.NoError(g.t, err)
	require.NoError(g.t, created.Err)
}

// produce writes n records to each of some partitions of topic t.
func (g *grouping) produce(n int, partitions ...int32) {
	g.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(g.s.addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(g.t, err)
	defer cl.Close()
	for i := range n {
		for _, p := range partitions {
			cl.Produce(g.t.Context(), &kgo.Record{Topic: "t", Partition: p, Key: fmt.Append(nil, "key-", i)}, func(_ *kgo.Record, err error) {
				assert.NoError(g.t, err)
			})
		}
	}
	require.NoError(g.t, cl.Flush(g.t.Context()))
}
