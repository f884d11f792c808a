package bench

import (
	"context"
	"slices"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/processor"
	"github.com/lacunamq/lacuna/processor/processortest"
)

// BenchmarkHandOver has a second member join a group of one while records come in, 100,000
// being there already; its unit is a hand-over. pause-ms is the median from the last record
// that the first member processed of the keys that move to the first one that the second
// did; rebuild-ratio is how many bytes the second read to build up its state, to those that
// its keys have in the log.
func BenchmarkHandOver(b *testing.B) {
	t := embedded(b, func(*broker.Config) {})
	var pauses, ratios []float64
	for b.Loop() {
		pause, ratio := handOver(b, t)
		pauses, ratios = append(pauses, pause.Seconds()*1000), append(ratios, ratio)
	}
	slices.Sort(pauses)
	slices.Sort(ratios)
	b.ReportMetric(pauses[len(pauses)/2], "pause-ms")
	b.ReportMetric(pauses[len(pauses)-1], "longest-ms")
	b.ReportMetric(ratios[len(ratios)/2], "rebuild-ratio")
}

const (
	handOverRecords = 100_000
	handOverKeys    = 1000
)

// counted notes when which keys were processed by a member.
type counted struct {
	mu          sync.Mutex
	first, last map[string]time.Time
	left        int           // until enough is closed
	enough      chan struct{} // closed after so many records
}

func newCounted(enough int) *counted {
	return &counted{first: make(map[string]time.Time), last: make(map[string]time.Time), left: enough, enough: make(chan struct{})}
}

func (c *counted) process(ctx *processor.Context, r *kgo.Record) error {
	if _, err := processortest.Count(ctx, "counts", r.Key); err != nil || ctx.Replaying() {
		return err
	}
	now := time.Now()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.first[string(r.Key)].IsZero() {
		c.first[string(r.Key)] = now
	}
	c.last[string(r.Key)] = now
	if c.left--; c.left == 0 {
		close(c.enough)
	}
	return nil
}

func (c *counted) open(b *testing.B, t *target, topic, group string) *processor.App {
	a, err := processor.Open(context.Background(), group, processor.Topology{Inputs: []string{topic}, Processors: []processor.Node{{
		Name: "count", Stores: []string{"counts"}, New: processor.ProcessFunc(c.process)}}},
		processor.SeedBrokers(t.addr), processor.StateDir(b.TempDir()), processor.ExactlyOnce())
	require.NoError(b, err)
	return a
}

func handOver(b *testing.B, t *target) (pause time.Duration, ratio float64) {
	topic, group := t.topic(b, 1), newGroup()
	cl, err := kgo.NewClient(kgo.SeedBrokers(t.addr), kgo.DefaultProduceTopic(topic), kgo.ProducerBatchCompression(kgo.NoCompression()))
	require.NoError(b, err)
	defer cl.Close()
	moved := make(map[string]bool)
	var bytes int64
	produce := func(from, to int) {
		for i := from; i < to; i++ {
			key := "key-" + strconv.Itoa(i%handOverKeys)
			r := &kgo.Record{Key: []byte(key), Value: make([]byte, 100)}
			if keyfilter.Slot(r.Key, 0) >= keyfilter.Slots/2 {
				moved[key] = true
				bytes += int64(len(key) + len(r.Value))
			}
			cl.Produce(context.Background(), r, func(_ *kgo.Record, err error) {
				if err != nil {
					b.Error(err)
				}
			})
		}
		require.NoError(b, cl.Flush(context.Background()))
	}
	produce(0, handOverRecords)
	old, fresh := newCounted(handOverRecords), newCounted(20)
	first := old.open(b, t, topic, group)
	defer func() { require.NoError(b, first.Close(context.Background())) }()
	<-old.enough
	second := fresh.open(b, t, topic, group)
	defer func() { require.NoError(b, second.Close(context.Background())) }()
	var read int64
	for n := handOverRecords; !closed(fresh.enough); n += 20 {
		produce(n, n+20)
		for _, s := range second.Status() {
			if len(s.Rebuild) > 0 {
				read = s.ReadBytes
			}
		}
	}
	return old.until(fresh, moved), float64(read) / float64(bytes)
}

func closed(ch <-chan struct{}) bool {
	select {
	case <-ch:
		return true
	default:
		return false
	}
}

// until is from the last record of some keys here to the first of them there.
func (c *counted) until(other *counted, keys map[string]bool) time.Duration {
	c.mu.Lock()
	defer c.mu.Unlock()
	other.mu.Lock()
	defer other.mu.Unlock()
	var last, first time.Time
	for key := range keys {
		if at := c.last[key]; at.After(last) {
			last = at
		}
		if at := other.first[key]; !at.IsZero() && (first.IsZero() || at.Before(first)) {
			first = at
		}
	}
	return first.Sub(last)
}
