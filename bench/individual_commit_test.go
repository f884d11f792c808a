package bench

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/lacunamq/lacuna/tests/wire"
)

// commitWindow is how many records the benchmarks of commits commit one by one, in an
// order that has most of them open at some time. It is a power of two.
const commitWindow = 1 << 22

// scattered is the offset to commit as the n-th, each of the window once.
func scattered(n int64) int64 { return n * 7919 % commitWindow }

var groups atomic.Int64

// newGroup is a name that no group has had.
func newGroup() string { return fmt.Sprintf("group-%d", groups.Add(1)) }

// offsetsAtATime is how many records a batch of offsets has.
const offsetsAtATime = 1 << 14

// offsets makes a topic that has n records, a multiple of offsetsAtATime.
func offsets(tb testing.TB, t *target, n int) (topic string) {
	return fill(tb, t, slices.Repeat([][]byte{tiny(tb, offsetsAtATime)}, n/offsetsAtATime))
}

// BenchmarkIndividualCommit commits single offsets out of order; its unit is an offset
// whose commit was answered, so durable with fsync=on. Over the wire every commit is a
// request, and a client waits for its answer before the next. A Reader lets those of its
// callers travel together.
func BenchmarkIndividualCommit(b *testing.B) {
	for _, fsync := range []string{"on", "off"} {
		b.Run("fsync="+fsync, func(b *testing.B) {
			t := embedded(b, func(c *broker.Config) { c.NoFsync = fsync == "off" })
			topic := offsets(b, t, commitWindow)
			for _, clients := range []int{1, 64} {
				b.Run(fmt.Sprintf("via=wire/clients=%d", clients), func(b *testing.B) { commitByWire(b, t, topic, clients) })
			}
			for _, callers := range []int{1, 256} {
				b.Run(fmt.Sprintf("via=reader/callers=%d", callers), func(b *testing.B) { commitByReader(b, t, topic, callers) })
			}
			b.Run("via=reader/callers=nobody-waits", func(b *testing.B) { enqueueByReader(b, t, topic) })
		})
	}
}

// eachOffset calls commit for every offset of b.N, from n goroutines, with a group that
// has not committed it.
func eachOffset(b *testing.B, n int, commit func(caller int, group string, run protocol.Run) error) {
	groups := make([]string, b.N/commitWindow+1)
	for i := range groups {
		groups[i] = newGroup()
	}
	b.ReportAllocs()
	b.ResetTimer()
	start := cpu(b)
	var next atomic.Int64
	var wg sync.WaitGroup
	for caller := range n {
		wg.Go(func() {
			for i := next.Add(1) - 1; i < int64(b.N); i = next.Add(1) - 1 {
				at := scattered(i)
				if err := commit(caller, groups[i/commitWindow], protocol.Run{Start: at, End: at + 1}); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	wg.Wait()
	reportCommits(b, start)
}

func reportCommits(b *testing.B, start time.Duration) {
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "commits/s")
	b.ReportMetric(float64(cpu(b)-start)/float64(b.N), "cpu-ns/commit")
}

func commitByWire(b *testing.B, t *target, topic string, clients int) {
	conns := make([]*wire.Conn, clients)
	for i := range conns {
		conns[i] = t.dial(b)
	}
	eachOffset(b, clients, func(caller int, group string, run protocol.Run) error {
		_, err := conns[caller].CommitIndividually(group, topic, 0, protocol.IndividualOffsets{
			Commit: []protocol.Run{run}, Origin: protocol.NoOrigin,
		})
		return err
	})
}

// openReader opens a Reader of a new group that commits and has nothing to read: it stands
// at the end.
func openReader(b *testing.B, t *target, topic string) *client.Reader {
	group := newGroup()
	_, err := t.dial(b).CommitIndividually(group, topic, 0, protocol.IndividualOffsets{Origin: 0})
	require.NoError(b, err)
	r, err := client.OpenReader(b.Context(), client.SeedBrokers(t.addr), client.StartAt(topic, 0, commitWindow), client.Group(group))
	require.NoError(b, err)
	b.Cleanup(func() { require.NoError(b, r.Close(context.Background())) })
	return r
}

func commitByReader(b *testing.B, t *target, topic string, callers int) {
	r := openReader(b, t, topic)
	eachOffset(b, callers, func(_ int, _ string, run protocol.Run) error {
		return r.CommitRuns(b.Context(), topic, 0, client.Run(run))
	})
}

func enqueueByReader(b *testing.B, t *target, topic string) {
	r := openReader(b, t, topic)
	b.ReportAllocs()
	b.ResetTimer()
	start := cpu(b)
	for i := range int64(b.N) {
		at := scattered(i)
		require.NoError(b, r.EnqueueRuns(b.Context(), topic, 0, client.Run{Start: at, End: at + 1}))
	}
	require.NoError(b, r.Flush(b.Context()))
	reportCommits(b, start)
}
