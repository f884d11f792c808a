package compat

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

const groupPartitions = 4

// TestGroupsRebalance lets a second member join a group and leave it again while records
// arrive: both share the partitions while both are there, the first has all of them
// before and after, and each record is read once, since members commit before they give
// a partition up.
func TestGroupsRebalance(t *testing.T) {
	requireTool(t, python())
	b := sharedBroker(t)
	for _, kind := range memberKinds {
		for _, assignor := range []string{"range", "cooperative-sticky"} {
			t.Run("client="+kind.name+"/assignor="+assignor, func(t *testing.T) {
				t.Parallel() // members wait for heartbeats most of the time
				g := newGroupRun(t, b, kind, assignor, "rebalance")
				first := g.join("first")
				g.awaitAssigned(map[string]int{"first": groupPartitions})
				g.produceAndAwait(1000)

				second := g.join("second")
				g.awaitAssigned(map[string]int{"first": groupPartitions / 2, "second": groupPartitions / 2})
				g.produceAndAwait(1000)

				second.leave()
				g.awaitAssigned(map[string]int{"first": groupPartitions})
				g.produceAndAwait(1000)
				first.leave()
				g.requireCommitted()
			})
		}
	}
}

// TestGroupsOutliveADeadMember kills one of two members: the other has all partitions when
// the session of the dead one is over, and goes on where it had committed.
func TestGroupsOutliveADeadMember(t *testing.T) {
	requireTool(t, python())
	b := sharedBroker(t)
	for _, kind := range memberKinds {
		if kind.name == "kgo" {
			continue // it lives in this process
		}
		t.Run("client="+kind.name, func(t *testing.T) {
			t.Parallel()
			g := newGroupRun(t, b, kind, "range", "dead-member")
			first := g.join("first")
			g.awaitAssigned(map[string]int{"first": groupPartitions})
			second := g.join("second")
			g.awaitAssigned(map[string]int{"first": groupPartitions / 2, "second": groupPartitions / 2})
			g.produceAndAwait(1000)
			require.Eventually(t, func() bool { return g.checkCommitted() == nil }, 20*time.Second, 50*time.Millisecond)

			second.kill()
			g.awaitAssigned(map[string]int{"first": groupPartitions})
			g.produceAndAwait(1000)
			first.leave()
			g.requireCommitted()
		})
	}
}

// A groupRun is a group of one client, what it reads, and what its members told.
type groupRun struct {
	t           *testing.T
	b           broker
	kind        memberKind
	assignor    string
	topic, name string
	producer    *kgo.Client
	changed     chan struct{} // of capacity 1: something was told

	mu struct {
		sync.Mutex
		assigned map[string]map[int32]bool // by member
		next     [groupPartitions]int64    // the offset after the last one read
		read     int
		wrong    []string // what must not happen, in words
	}
	produced int
}

func newGroupRun(t *testing.T, b broker, kind memberKind, assignor, purpose string) *groupRun {
	g := &groupRun{t: t, b: b, kind: kind, assignor: assignor, changed: make(chan struct{}, 1)}
	g.topic = fmt.Sprintf("group-%s-%s-%s", purpose, kind.name, assignor)
	g.name = g.topic + "-members"
	g.mu.assigned = map[string]map[int32]bool{}
	b.createTopic(t, g.topic, groupPartitions)
	var err error
	g.producer, err = kgo.NewClient(kgo.SeedBrokers(b.addr), kgo.DefaultProduceTopic(g.topic),
		kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	t.Cleanup(g.producer.Close)
	return g
}

// A runningMember is one that has joined.
type runningMember struct {
	g      *groupRun
	name   string
	cancel context.CancelCauseFunc
	done   chan error
}

// errKilled is why the context of a member that dies without a word ends.
var errKilled = errors.New("killed")

func (g *groupRun) join(name string) runningMember {
	ctx, cancel := context.WithCancelCause(context.Background())
	m := runningMember{g: g, name: name, cancel: cancel, done: make(chan error, 1)}
	go func() {
		m.done <- g.kind.run(ctx, g.b.addr, g.topic, g.name, g.assignor, func(e event) { g.tell(name, e) })
	}()
	g.t.Cleanup(func() { cancel(nil) })
	return m
}

// leave tells the member to go, and waits until it is gone.
func (m runningMember) leave() {
	m.g.t.Helper()
	m.end(nil)
}

// kill ends the member without a word, and forgets what it told.
func (m runningMember) kill() {
	m.g.t.Helper()
	m.end(errKilled)
	m.g.mu.Lock()
	defer m.g.mu.Unlock()
	delete(m.g.mu.assigned, m.name)
}

func (m runningMember) end(cause error) {
	m.g.t.Helper()
	m.cancel(cause)
	select {
	case err := <-m.done:
		require.NoError(m.g.t, err)
	case <-time.After(time.Minute):
		require.Fail(m.g.t, "the member did not leave")
	}
}

// tell takes in an event of a member.
func (g *groupRun) tell(member string, e event) {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.mu.assigned[member] == nil {
		g.mu.assigned[member] = map[int32]bool{}
	}
	mine := g.mu.assigned[member]
	for _, p := range e.Partitions {
		switch e.Name {
		case "partitions_assigned":
			mine[p.Partition] = true
		case "partitions_revoked", "partitions_lost":
			delete(mine, p.Partition)
		case "records_consumed":
			if p.MinOffset != g.mu.next[p.Partition] {
				g.mu.wrong = append(g.mu.wrong, fmt.Sprintf("%s read offset %d of partition %d, the next was %d",
					member, p.MinOffset, p.Partition, g.mu.next[p.Partition]))
			}
			g.mu.next[p.Partition] = p.MaxOffset + 1
			g.mu.read += int(p.MaxOffset - p.MinOffset + 1)
		}
	}
	select {
	case g.changed <- struct{}{}:
	default:
	}
}

// await waits until the members have told what makes ok true.
func (g *groupRun) await(what string, ok func() bool) {
	g.t.Helper()
	deadline := time.After(2 * time.Minute)
	for {
		g.mu.Lock()
		reached, wrong := ok(), slices.Clone(g.mu.wrong)
		state := fmt.Sprintf("assigned %v, read %d of %d", g.mu.assigned, g.mu.read, g.produced)
		g.mu.Unlock()
		require.Empty(g.t, wrong, "while waiting for %s", what)
		if reached {
			return
		}
		select {
		case <-g.changed:
		case <-deadline:
			require.Fail(g.t, "waited too long for "+what, state)
		}
	}
}

// awaitAssigned waits until each member holds so many partitions, and no two the same.
func (g *groupRun) awaitAssigned(want map[string]int) {
	g.t.Helper()
	g.await(fmt.Sprintf("partitions to be assigned as %v", want), func() bool {
		var held []int32
		for member, partitions := range g.mu.assigned {
			if len(partitions) != want[member] {
				return false
			}
			for p := range partitions {
				held = append(held, p)
			}
		}
		slices.Sort(held)
		return len(held) == groupPartitions && len(slices.Compact(held)) == groupPartitions
	})
}

// produceAndAwait writes records to all partitions and waits until the group has read
// them.
func (g *groupRun) produceAndAwait(records int) {
	g.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	var batch []*kgo.Record
	for i := range records {
		batch = append(batch, &kgo.Record{Partition: int32(i % groupPartitions), Value: []byte(strings.Repeat("x", i%100))})
	}
	require.NoError(g.t, g.producer.ProduceSync(ctx, batch...).FirstErr())
	g.produced += records
	g.await("the records to be read", func() bool { return g.mu.read >= g.produced })
}

// requireCommitted checks that each record was read once, and that the group's committed
// offsets say so.
func (g *groupRun) requireCommitted() {
	g.t.Helper()
	require.Equal(g.t, g.produced, g.mu.read)
	require.NoError(g.t, g.checkCommitted())
}

// checkCommitted says whether the group has committed all that was produced.
func (g *groupRun) checkCommitted() error {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	offsets, err := g.b.admin(g.t).FetchOffsets(ctx, g.name)
	if err != nil {
		return err
	}
	for p := range int32(groupPartitions) {
		committed, _ := offsets.Lookup(g.topic, p)
		if want := int64(g.produced / groupPartitions); committed.At != want {
			return fmt.Errorf("the committed offset of partition %d is %d, %d records were produced", p, committed.At, want)
		}
	}
	return nil
}
