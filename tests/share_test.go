package tests

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"github.com/lacunamq/lacuna/broker"
)

// shareBroker is a broker in this process with a topic of keyed records.
type shareBroker struct {
	t    *testing.T
	b    *broker.Broker
	disk *vfs.MemFS
}

func startShareBroker(t *testing.T, settings map[string]string) *shareBroker {
	s := &shareBroker{t: t, disk: vfs.NewCrashableMem()}
	all := map[string]string{"offsets.topic.num.partitions": "2", "group.share.heartbeat.interval.ms": "1000", "group.share.min.heartbeat.interval.ms": "500"}
	for k, v := range settings {
		all[k] = v
	}
	b, err := broker.Start(t.Context(), broker.Config{Listen: []string{"127.0.0.1:0"}, DataDir: "data", FS: s.disk, Settings: all})
	require.NoError(t, err)
	s.b = b
	t.Cleanup(func() { require.NoError(t, b.Stop(context.Background())) })
	return s
}

func (s *shareBroker) client(opts ...kgo.Opt) *kgo.Client {
	cl, err := kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(s.b.Addr())}, opts...)...)
	require.NoError(s.t, err)
	return cl
}

func (s *shareBroker) fill(topic string, partitions int32, n, keys int) {
	cl := s.client()
	defer cl.Close()
	_, err := kadm.NewClient(cl).CreateTopic(s.t.Context(), partitions, 1, nil, topic)
	require.NoError(s.t, err)
	for i := range n {
		cl.Produce(s.t.Context(), &kgo.Record{Topic: topic, Key: fmt.Appendf(nil, "key-%d", i%keys), Value: []byte(strconv.Itoa(i))}, func(_ *kgo.Record, err error) {
			require.NoError(s.t, err)
		})
	}
	require.NoError(s.t, cl.Flush(s.t.Context()))
}

// configure sets group configs.
func (s *shareBroker) configure(group string, settings map[string]string) {
	configureGroup(s.t, s.b.Addr(), group, settings)
}

// configureGroup sets group configs of the broker at addr.
func configureGroup(t *testing.T, addr, group string, settings map[string]string) {
	require.NoError(t, dial(t, addr).Configure(kmsg.ConfigResourceTypeGroupConfig, group, settings))
}

// Stock share consumers take a topic between them, each record once, in every mode.
func TestStockShareConsumers(t *testing.T) {
	for _, mode := range []string{"round-robin", "key-ordered", "key-range"} {
		t.Run(mode, func(t *testing.T) {
			const records = 3000
			s := startShareBroker(t, nil)
			s.fill("t", 2, records, 100)
			s.configure("g", map[string]string{"share.auto.offset.reset": "earliest", "share.delivery.mode": mode})
			var mu sync.Mutex
			seen := make(map[string]int)
			by := make(map[int]int)
			ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
			defer cancel()
			var wg sync.WaitGroup
			for worker := range 4 {
				cl := s.client(kgo.ShareGroup("g"), kgo.ConsumeTopics("t"), kgo.ShareMaxRecords(50))
				wg.Go(func() {
					defer cl.Close()
					for ctx.Err() == nil {
						fetches := cl.PollFetches(ctx)
						if ctx.Err() != nil {
							return
						}
						assert.NoError(t, fetches.Err())
						mu.Lock()
						fetches.EachRecord(func(r *kgo.Record) {
							seen[string(r.Value)]++
							by[worker]++
						})
						done := len(seen) == records
						mu.Unlock()
						assert.NoError(t, cl.FlushAcks(t.Context())) // also when another has seen the last record
						if done {
							cancel()
						}
					}
				})
			}
			wg.Wait()
			require.Len(t, seen, records)
			for v, n := range seen {
				require.Equal(t, 1, n, "record %s", v)
			}
			t.Log(by)
		})
	}
}
