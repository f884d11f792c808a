package processor_test

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/processor"
)

// asking counts the requests of one kind. It implements [kgo.HookBrokerWrite].
type asking struct {
	key kmsg.Key
	n   atomic.Int32
}

func (a *asking) OnBrokerWrite(_ kgo.BrokerMetadata, key int16, _ int, _, _ time.Duration, _ error) {
	if key == a.key.Int16() {
		a.n.Add(1)
	}
}

// Tasks that open together look for their changelog once.
func TestChangelogIsFoundOnce(t *testing.T) {
	r := newRig(t, 1)
	r.produce(100, 100)
	asked := &asking{key: kmsg.DescribeConfigs}
	c := new(counting)
	a, read := r.restoring(c.topology(), processor.StateDir(t.TempDir()), processor.InitialBuckets(4), processor.KafkaOpts(kgo.WithHooks(asked)))
	r.requireCounts(r.output(100))
	require.Eventually(t, func() bool { told, _ := read.counts(); return told == 4 }, 20*time.Second, time.Millisecond)
	require.Len(t, a.Status(), 4)
	require.Equal(t, int32(1), asked.n.Load())
	c.check(t)
}

// A changelog that is made anew while its group works is another one.
func TestChangelogMadeAnewMeanwhile(t *testing.T) {
	r := newRig(t, 1)
	r.produce(10, 10)
	c := new(counting)
	a, _ := r.restoring(c.topology(), processor.StateDir(t.TempDir()), processor.ExactlyOnce())
	r.output(10)
	deleted, err := kadm.NewClient(r.kafka).DeleteTopics(t.Context(), "job-changelog")
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
	r.makeChangelog(1)
	r.produce(10, 10)
	select {
	case <-a.Failed():
		require.ErrorContains(t, a.Err(), "the changelog job-changelog is empty, and the group has processed records already")
	case <-time.After(20 * time.Second):
		t.Error("it goes on")
	}
}

// The records of a changelog go where they say, and outputs where the application wants them.
func TestChangelogLeavesOutputsToTheirPartitioner(t *testing.T) {
	for name, opts := range guarantees {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 3)
			r.produce(100, 10)
			last := kgo.BasicConsistentPartitioner(func(string) func(*kgo.Record, int) int {
				return func(_ *kgo.Record, n int) int { return n - 1 }
			})
			c := new(counting)
			a, _ := r.restoring(c.topology(), append(opts, processor.StateDir(t.TempDir()), processor.InitialBuckets(2), processor.KafkaOpts(kgo.RecordPartitioner(last)))...)
			out := r.output(100)
			r.requireCounts(out)
			for _, o := range out {
				require.Equal(t, int32(2), o.Partition)
			}
			require.NoError(t, a.Close(t.Context())) // what was put out may come before its change
			logged := make(map[int32]bool)
			for _, change := range r.changes() {
				logged[change.Partition] = true
			}
			require.Len(t, logged, 2)
			c.check(t)
		})
	}
}
