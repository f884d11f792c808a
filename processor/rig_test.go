package processor_test

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/processor"
	"github.com/lacunamq/lacuna/processor/processortest"
)

// rig is a broker with an input topic and an output topic.
type rig struct {
	t      *testing.T
	b      *broker.Broker
	kafka  *kgo.Client
	values map[string]int // the last one produced of each key
}

func newRig(t *testing.T, partitions int32) *rig {
	b, err := broker.Start(t.Context(), broker.Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: vfs.NewMem(),
		Settings: map[string]string{"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100",
			"transaction.state.log.num.partitions": "2", "log.cleaner.backoff.ms": "20", "log.cleaner.min.cleanable.ratio": "0"},
	})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
	r := &rig{t: t, b: b, values: make(map[string]int)}
	r.kafka, err = kgo.NewClient(kgo.SeedBrokers(b.Addr()))
	require.NoError(t, err)
	t.Cleanup(func() { r.kafka.Close() })
	made, err := kadm.NewClient(r.kafka).CreateTopics(t.Context(), partitions, 1, nil, "in", "out", "dead")
	require.NoError(t, err)
	require.NoError(t, made.Error())
	return r
}

// produce writes n records to the input, of so many keys in turn. The values of a key count
// from 1.
func (r *rig) produce(n, keys int) {
	for i := range n {
		key := fmt.Sprintf("key-%d", i%keys)
		r.values[key]++
		r.kafka.Produce(r.t.Context(), &kgo.Record{Topic: "in", Key: []byte(key), Value: []byte(strconv.Itoa(r.values[key]))}, func(_ *kgo.Record, err error) {
			if err != nil {
				r.t.Error(err)
			}
		})
	}
	require.NoError(r.t, r.kafka.Flush(r.t.Context()))
}

// grow gives the input so many partitions, of which producers know from now on.
func (r *rig) grow(partitions int) {
	r.t.Helper()
	grown, err := kadm.NewClient(r.kafka).UpdatePartitions(r.t.Context(), partitions, "in")
	require.NoError(r.t, err)
	require.NoError(r.t, grown.Error())
	r.kafka.Close()
	r.kafka, err = kgo.NewClient(kgo.SeedBrokers(r.b.Addr()))
	require.NoError(r.t, err)
}

// open opens an App, which the end of the test closes.
func (r *rig) open(topology processor.Topology, opts ...processor.Option) *processor.App {
	r.t.Helper()
	a, err := processor.Open(r.t.Context(), "job", topology, append([]processor.Option{processor.SeedBrokers(r.b.Addr()),
		processor.OnEvents(processor.Hooks{
			Failed:    func(err error) { r.t.Log("failed:", err) },
			Restarted: func(bucket int32, err error) { r.t.Log("restarted:", bucket, err) },
			Assigned:  func(tasks []processor.TaskStatus) { r.t.Log("assigned:", tasks) },
		})}, opts...)...)
	require.NoError(r.t, err)
	r.t.Cleanup(func() { require.NoError(r.t, a.Close(context.Background())) })
	return a
}

// active waits until an App processes something.
func (r *rig) active(a *processor.App) {
	r.t.Helper()
	require.Eventually(r.t, func() bool { return processes(a) }, 20*time.Second, 10*time.Millisecond)
}

func processes(a *processor.App) bool {
	return slices.ContainsFunc(a.Status(), func(s processor.TaskStatus) bool { return len(s.Active) > 0 })
}

// output reads n records of the output topic, those of aborted transactions left out.
func (r *rig) output(n int) (all []*kgo.Record) {
	r.t.Helper()
	r.outputUntil(func(o *kgo.Record) bool {
		all = append(all, o)
		return len(all) >= n
	})
	return all
}

// outputUntil reads the output topic until one of its records is the last that is wanted.
func (r *rig) outputUntil(last func(o *kgo.Record) bool) (n int) {
	r.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.b.Addr()), kgo.ConsumeTopics("out"), kgo.FetchIsolationLevel(kgo.ReadCommitted()),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(r.t, err)
	defer cl.Close()
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for done := false; !done; {
		fetches := cl.PollFetches(ctx)
		require.NoError(r.t, ctx.Err(), "%d outputs", n)
		fetches.EachRecord(func(o *kgo.Record) {
			n++
			done = done || last(o)
		})
	}
	return n
}

// counting is a processor that counts the records of each key in a store, and fails when one
// comes that is not the next of its key.
type counting struct {
	mu       sync.Mutex
	broken   []string // what was out of order
	silently int
	gate     chan struct{} // nothing is processed before it is closed; nil: it is open
}

func (c *counting) topology() processor.Topology {
	return processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"}, Processors: []processor.Node{{
		Name: "count", Stores: []string{"counts"}, New: processor.ProcessFunc(c.process)}}}
}

func (c *counting) process(ctx *processor.Context, r *kgo.Record) error {
	if c.gate != nil {
		<-c.gate
	}
	n, err := processortest.Count(ctx, "counts", r.Key)
	if err != nil {
		return err
	}
	if got := string(r.Value); got != strconv.Itoa(n+1) {
		c.note(fmt.Sprintf("%s: %s after %d", r.Key, got, n))
	}
	if ctx.Replaying() {
		c.mu.Lock()
		c.silently++
		c.mu.Unlock()
	}
	return ctx.Forward(&kgo.Record{Key: r.Key, Value: []byte(strconv.Itoa(n + 1))})
}

func (c *counting) note(what string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.broken = append(c.broken, what)
}

// check fails the test if a record was out of order.
func (c *counting) check(t *testing.T) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	require.Empty(t, c.broken[:min(len(c.broken), 10)])
}

// requireCounts checks that the output has each count of each key once, in order.
func (r *rig) requireCounts(out []*kgo.Record) {
	r.t.Helper()
	last := make(map[string]int)
	for _, o := range out {
		n, err := strconv.Atoi(string(o.Value))
		require.NoError(r.t, err)
		require.Equal(r.t, last[string(o.Key)]+1, n, "key %s", o.Key)
		last[string(o.Key)] = n
	}
	require.Equal(r.t, r.values, last)
}
