package client_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"
	"time"

	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// setGroupConfig sets a config of a group.
func setGroupConfig(ctx context.Context, addr, group, name, value string) error {
	cl, err := kgo.NewClient(kgo.SeedBrokers(addr))
	if err != nil {
		return err
	}
	defer cl.Close()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kmsg.ConfigResourceTypeGroupConfig, group
	c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
	c.Name, c.Value = name, &value
	r.Configs = append(r.Configs, c)
	req.Resources = append(req.Resources, r)
	resp, err := req.RequestWith(ctx, cl)
	if err != nil {
		return err
	}
	return kerr.ErrorForCode(resp.Resources[0].ErrorCode)
}

// configure sets a config of group g.
func (s *server) configure(name, value string) {
	s.tb.Helper()
	require.NoError(s.tb, setGroupConfig(s.tb.Context(), s.addr(), "g", name, value))
}

// shareFromEarliest lets group g begin at the log start.
func (s *server) shareFromEarliest() { s.configure("share.auto.offset.reset", "earliest") }

func (s *server) work(handler client.Handler, opts ...client.WorkerOpt) *client.Worker {
	s.tb.Helper()
	kafka := client.KafkaOpts(kgo.SeedBrokers(s.addr()), kgo.Dialer(s.dial))
	w, err := client.OpenWorker(s.tb.Context(), handler, append([]client.WorkerOpt{kafka, client.Topics("t"), client.Group("g")}, opts...)...)
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { w.Close(context.Background()) })
	return w
}

// shareLedger checks what workers did: in the ordered modes the records of a key are
// handled to an end in offset order.
type shareLedger struct {
	mu       sync.Mutex
	ordered  bool
	recorded map[int64]client.Outcome // by offset: the last one, as the broker confirmed it
	highest  map[string]int64         // offset handled to an end, of each key
	bad      []string
	changed  chan struct{}
}

func newShareLedger(ordered bool) *shareLedger {
	return &shareLedger{ordered: ordered, recorded: make(map[int64]client.Outcome), highest: make(map[string]int64), changed: make(chan struct{}, 1)}
}

func (l *shareLedger) hooks() client.WorkerOpt {
	return client.Hooks(client.WorkerHooks{Acknowledged: func(r *client.ShareRecord, o client.Outcome) {
		l.mu.Lock()
		defer l.mu.Unlock()
		if o == client.Released {
			return // whoever has it next may have told us first
		}
		if before := l.recorded[r.Offset]; before != client.Unfinished {
			l.bad = append(l.bad, fmt.Sprintf("offset %d was %v and then %v", r.Offset, before, o))
		}
		l.recorded[r.Offset] = o
		select {
		case l.changed <- struct{}{}:
		default:
		}
	}})
}

// begin notes that a handler begins with a record: those of its key before it must be done.
func (l *shareLedger) begin(r *client.ShareRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if o := l.recorded[r.Offset]; o != client.Unfinished {
		l.bad = append(l.bad, fmt.Sprintf("offset %d is %v and comes again", r.Offset, o))
	}
	if highest, ok := l.highest[string(r.Key)]; l.ordered && ok && r.Offset > highest+distinctKeys {
		l.bad = append(l.bad, fmt.Sprintf("offset %d of %s comes after %d", r.Offset, r.Key, highest))
	}
}

func (l *shareLedger) end(r *client.ShareRecord) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.highest[string(r.Key)] = max(l.highest[string(r.Key)], r.Offset)
}

// done counts the records with a final outcome.
func (l *shareLedger) done() int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return len(l.recorded)
}

const distinctKeys = 20

// produceKeyed writes n records with keys in turn.
func (s *server) produceKeyed(n int) {
	s.tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("t"))
	require.NoError(s.tb, err)
	defer cl.Close()
	for i := range n {
		cl.Produce(s.tb.Context(), kgo.KeyStringRecord(fmt.Sprint("key-", i%distinctKeys), "value"), nil)
	}
	require.NoError(s.tb, cl.Flush(s.tb.Context()))
}

// Workers come and go and fail now and then. Every record is done once, and in the ordered
// modes the records of a key are handled in order.
func TestWorkersShareAPartition(t *testing.T) {
	for _, mode := range []string{"round-robin", "key-ordered", "key-range"} {
		t.Run("mode="+mode, func(t *testing.T) {
			const records = 2000
			s := newServer(t)
			s.configure("share.delivery.mode", mode)
			s.configure("share.delivery.count.limit", "10")
			s.shareFromEarliest()
			s.produceKeyed(records)
			l := newShareLedger(mode != "round-robin")
			handler := func(_ context.Context, r *client.ShareRecord) error {
				l.begin(r)
				switch luck := rand.N(100); {
				case luck < 3 && r.DeliveryCount < 8:
					return errors.New("now and then")
				case luck < 5:
					l.end(r)
					return client.Reject(nil)
				}
				l.end(r)
				return nil
			}
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			var workers []*client.Worker
			for len(workers) < 4 {
				workers = append(workers, s.work(handler, client.Concurrency(4), l.hooks()))
			}
			for next := records / 8; next < records; next += records / 8 { // one leaves, another joins
				for l.done() < next {
					select {
					case <-l.changed:
					case <-ctx.Done():
						t.Fatalf("%d of %d records are done; %v; %+v", l.done(), records, l.bad, workers[0].Status())
					}
				}
				require.NoError(t, workers[0].Close(ctx))
				workers = append(workers[1:], s.work(handler, client.Concurrency(4), l.hooks()))
			}
			requireShareEnd(t, s, records)
			for _, w := range workers {
				require.NoError(t, w.Close(ctx))
			}
			require.Empty(t, l.bad)
			require.GreaterOrEqual(t, l.done(), records*9/10, "outcomes that were told")
		})
	}
}

// requireShareEnd waits until the group has nothing open below an offset.
func requireShareEnd(t *testing.T, s *server, end int64) {
	t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr()))
	require.NoError(t, err)
	defer cl.Close()
	require.Eventually(t, func() bool {
		groups, err := kadm.NewClient(cl).DescribeShareGroupOffsets(t.Context(), "g")
		require.NoError(t, err)
		return groups["g"].Offsets["t"][0].StartOffset == end
	}, time.Minute, 10*time.Millisecond)
}

// The broker stops or crashes and comes back, while workers are at work: what was recorded
// stays so, all the rest is delivered again.
func TestWorkersThroughARestart(t *testing.T) {
	for name, end := range map[string]func(*server){"stop": (*server).stop, "crash": (*server).crash} {
		t.Run(name, func(t *testing.T) {
			const records = 3000
			s := newServer(t)
			s.shareFromEarliest()
			s.produceKeyed(records)
			l := newShareLedger(false)
			handler := func(_ context.Context, r *client.ShareRecord) error { l.begin(r); return nil }
			var workers []*client.Worker
			for range 3 {
				workers = append(workers, s.work(handler, l.hooks(), client.MaxRecords(50), client.FetchMaxWait(100*time.Millisecond)))
			}
			require.Eventually(t, func() bool { return l.done() > records/4 }, time.Minute, time.Millisecond)
			end(s)
			s.start()
			requireShareEnd(t, s, records)
			for _, w := range workers {
				require.NoError(t, w.Close(t.Context()))
			}
			require.Empty(t, l.bad)
		})
	}
}

// A handler outlives its lock many times, and nobody else gets its record.
func TestWorkerWithASlowHandler(t *testing.T) {
	s := newServer(t)
	s.config.Settings["group.share.min.record.lock.duration.ms"] = "1000"
	s.stop()
	s.start()
	s.configure("share.record.lock.duration.ms", "1000")
	s.shareFromEarliest()
	s.produceKeyed(3)
	l := newShareLedger(false)
	var mu sync.Mutex
	count := 0
	handler := func(ctx context.Context, r *client.ShareRecord) error {
		mu.Lock()
		count++
		mu.Unlock()
		select {
		case <-time.After(2500 * time.Millisecond):
			return nil
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	workers := []*client.Worker{s.work(handler, l.hooks()), s.work(handler, l.hooks())}
	requireShareEnd(t, s, 3)
	for _, w := range workers {
		require.NoError(t, w.Close(t.Context()))
	}
	require.Equal(t, 3, count)
}

func TestAWorkerNeedsAShareGroup(t *testing.T) {
	s := newServer(t)
	s.produce(1)
	_, err := s.admin().Commit(t.Context(), "plain", "t", 0, client.Run{Start: 0, End: 1})
	require.NoError(t, err)
	_, err = client.OpenWorker(t.Context(), nil, client.SeedBrokers(s.addr()), client.Topics("t"), client.Group("plain"))
	require.ErrorIs(t, err, client.ErrNotShareGroup)
}

// TestAWorkerSaysWhyItGetsNothing: the code alone would not tell what to do about it.
func TestAWorkerSaysWhyItGetsNothing(t *testing.T) {
	s := newServer(t)
	s.stop()
	s.config.Settings["individual.commit.max.memory.bytes"] = "1048576"
	s.start()
	s.shareFromEarliest()
	s.produceKeyed(1)
	told := make(chan error, 1)
	hooks := client.Hooks(client.WorkerHooks{Failed: func(err error) {
		select {
		case told <- err:
		default:
		}
	}})
	w := s.work(func(context.Context, *client.ShareRecord) error { return nil }, hooks,
		client.Concurrency(1<<16), client.MaxRecords(1<<16), client.FetchMaxBytes(1<<30), client.FetchMaxWait(time.Millisecond))
	ctx, stop := context.WithCancel(t.Context())
	done := make(chan error, 1)
	go func() { done <- w.Run(ctx) }()
	require.ErrorContains(t, <-told, "individual.commit.max.memory.bytes")
	stop()
	<-done
}
