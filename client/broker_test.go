package client_test

import (
	"context"
	"fmt"
	"net"
	"os"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/client"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// server is a broker that can be stopped, or lose its power, and start again over the same
// data at the same address.
type server struct {
	tb     testing.TB
	config broker.Config
	broker *broker.Broker
	disk   *vfs.MemFS

	mu    sync.Mutex
	cut   bool // no connection comes about
	conns []net.Conn
}

func newServer(tb testing.TB) *server {
	tb.Helper()
	s := &server{tb: tb, disk: vfs.NewCrashableMem(), config: broker.Config{
		Listen: []string{"127.0.0.1:0"}, DataDir: "data",
		Settings: map[string]string{"offsets.topic.num.partitions": "2", "group.initial.rebalance.delay.ms": "0", "group.min.session.timeout.ms": "100"},
	}}
	s.start()
	s.config.Listen = []string{s.broker.Addr()}
	tb.Cleanup(s.stop)
	return s
}

func (s *server) start() {
	s.tb.Helper()
	s.config.FS = s.disk
	b, err := broker.Start(context.Background(), s.config)
	require.NoError(s.tb, err)
	s.broker = b
	s.mu.Lock()
	defer s.mu.Unlock()
	s.cut = false
}

func (s *server) stop() {
	s.tb.Helper()
	require.NoError(s.tb, s.broker.Stop(context.Background()))
}

// crash cuts every connection that dial made, so that no answer arrives any more, and then
// keeps of the disk only what was synced.
func (s *server) crash() {
	s.tb.Helper()
	s.mu.Lock()
	s.cut = true
	for _, conn := range s.conns {
		conn.Close()
	}
	s.conns = nil
	s.mu.Unlock()
	after := s.disk.CrashClone(vfs.CrashCloneCfg{})
	s.stop()
	s.disk = after
}

func (s *server) dial(ctx context.Context, network, host string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, network, host)
	if err != nil {
		return nil, err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.cut {
		conn.Close()
		return nil, &net.OpError{Op: "dial", Net: network, Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}
	}
	s.conns = append(s.conns, conn)
	return conn, nil
}

func (s *server) addr() string { return s.config.Listen[0] }

// produce writes n records of 100 bytes with keys key-0 to key-9999 to partition 0 of topic t.
func (s *server) produce(n int) {
	s.tb.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr()), kgo.AllowAutoTopicCreation(), kgo.DefaultProduceTopic("t"))
	require.NoError(s.tb, err)
	defer cl.Close()
	value := make([]byte, 90)
	for i := range n {
		cl.Produce(s.tb.Context(), &kgo.Record{Key: fmt.Appendf(nil, "key-%d", i%10_000), Value: value}, func(_ *kgo.Record, err error) {
			require.NoError(s.tb, err)
		})
	}
	require.NoError(s.tb, cl.Flush(s.tb.Context()))
}

func (s *server) open(opts ...client.ReaderOpt) *client.Reader {
	s.tb.Helper()
	kafka := client.KafkaOpts(kgo.SeedBrokers(s.addr()), kgo.Dialer(s.dial))
	r, err := client.OpenReader(s.tb.Context(), append([]client.ReaderOpt{kafka, client.Topics("t")}, opts...)...)
	require.NoError(s.tb, err)
	s.tb.Cleanup(func() { r.Close(context.Background()) })
	return r
}

func (s *server) admin() *client.Admin {
	s.tb.Helper()
	a, err := client.NewAdmin(client.SeedBrokers(s.addr()))
	require.NoError(s.tb, err)
	s.tb.Cleanup(a.Close)
	return a
}

// tally counts deliveries by offset.
type tally struct {
	mu     sync.Mutex
	counts map[int64]int
}

func (c *tally) add(records []*kgo.Record) (total int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.counts == nil {
		c.counts = make(map[int64]int)
	}
	for _, r := range records {
		c.counts[r.Offset]++
	}
	return len(c.counts)
}

// Three readers share a partition by slots and commit nine records of ten, while the
// broker is stopped, or crashes, and starts again. Every record is delivered once. Readers
// that come later get what was left open, and nothing else.
func TestReadersShareAPartition(t *testing.T) {
	t.Run("through a restart", func(t *testing.T) { shareAPartition(t, (*server).stop) })
	t.Run("through a crash", func(t *testing.T) { shareAPartition(t, (*server).crash) })
}

func shareAPartition(t *testing.T, end func(*server)) {
	const records = 3000
	s := newServer(t)
	s.produce(records)
	var seen tally
	share := func() (finish func()) {
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		var wg sync.WaitGroup
		for _, slots := range []client.SlotRange{{Lo: 0, Hi: 21845}, {Lo: 21846, Hi: 43690}, {Lo: 43691, Hi: 65535}} {
			r := s.open(client.Group("g"), client.Slots(slots), client.FetchMaxPartitionBytes(4096))
			wg.Go(func() {
				for !r.Status()[0].Past(records) {
					polling, stop := context.WithTimeout(ctx, 100*time.Millisecond)
					got, err := r.Poll(polling)
					stop()
					if err != nil {
						require.ErrorIs(t, err, context.DeadlineExceeded)
					}
					for _, record := range got {
						if record.Offset%10 != 7 {
							require.NoError(t, r.Enqueue(ctx, record))
						}
					}
					seen.add(got)
				}
				require.NoError(t, r.Close(ctx))
			})
		}
		return func() {
			defer cancel()
			wg.Wait()
		}
	}
	finish := share()
	require.Eventually(t, func() bool { return seen.add(nil) > records/4 }, time.Minute, time.Millisecond)
	end(s)
	s.start()
	finish()
	require.Len(t, seen.counts, records)
	for offset, count := range seen.counts {
		require.Equal(t, 1, count, "offset %d", offset)
	}
	ledgers, err := s.admin().Describe(t.Context(), "g")
	require.NoError(t, err)
	require.EqualValues(t, 7, ledgers[0].Stable)
	require.EqualValues(t, records/10, ledgers[0].Gaps)

	seen = tally{}
	r := s.open(client.Group("g"))
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	for n := 0; n < records/10; {
		got, err := r.Poll(ctx)
		require.NoError(t, err)
		n = seen.add(got)
		require.NoError(t, r.Commit(ctx, got...))
	}
	for offset, count := range seen.counts {
		require.EqualValues(t, 7, offset%10)
		require.Equal(t, 1, count)
	}
	ledgers, err = s.admin().Describe(t.Context(), "g")
	require.NoError(t, err)
	require.EqualValues(t, records, ledgers[0].Stable)
}

// A reader that opens when others are at the end, its own slots untouched, is not past them.
func TestReaderThatOpensLast(t *testing.T) {
	const records = 500
	s := newServer(t)
	s.produce(records)
	lower := s.open(client.Group("g"), client.Slots(client.SlotRange{Lo: 0, Hi: 32767}))
	var seen tally
	deliver := func(r *client.Reader) {
		for !r.Status()[0].Past(records) {
			polling, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
			got, err := r.Poll(polling)
			stop()
			if err != nil {
				require.ErrorIs(t, err, context.DeadlineExceeded)
			}
			seen.add(got)
			require.NoError(t, r.Commit(t.Context(), got...))
		}
	}
	deliver(lower)
	_, err := s.admin().Commit(t.Context(), "g", "t", 0, client.Run{Start: records - 1, End: records})
	require.NoError(t, err)
	seen.add([]*kgo.Record{{Offset: records - 1}})
	deliver(s.open(client.Group("g"), client.Slots(client.SlotRange{Lo: 32768, Hi: 65535})))
	require.Len(t, seen.counts, records)
}

// A stock consumer that joins after the readers starts at the stable offset.
func TestStockConsumerStartsAtTheStableOffset(t *testing.T) {
	s := newServer(t)
	s.produce(20)
	r := s.open(client.Group("g"))
	var all []*kgo.Record
	for len(all) < 20 {
		got, err := r.Poll(t.Context())
		require.NoError(t, err)
		all = append(all, got...)
	}
	require.NoError(t, r.Commit(t.Context(), append(all[:5:5], all[9:]...)...))
	require.NoError(t, r.Close(t.Context()))
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr()), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"))
	require.NoError(t, err)
	defer cl.Close()
	fetches := cl.PollFetches(t.Context())
	require.NoError(t, fetches.Err())
	require.EqualValues(t, 5, fetches.Records()[0].Offset)
}

// While a group has members, an operator's commit would cross theirs.
func TestReaderOfAGroupWithMembers(t *testing.T) {
	s := newServer(t)
	s.produce(3)
	r := s.open(client.Group("g"))
	got, err := r.Poll(t.Context())
	require.NoError(t, err)
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.addr()), kgo.ConsumerGroup("g"), kgo.ConsumeTopics("t"))
	require.NoError(t, err)
	defer cl.Close()
	require.NoError(t, cl.PollFetches(t.Context()).Err())
	err = r.Commit(t.Context(), got...)
	require.ErrorContains(t, err, "the group has members")
	require.ErrorContains(t, err, "t[0] of group g")
}

// Every second record is the worst case for a ledger and for what goes over the wire.
func TestReaderCommitsEverySecondOfManyRecords(t *testing.T) {
	records := int64(50_000)
	if os.Getenv("LACUNA_LONG") != "" {
		records = 2_000_000
	}
	s := newServer(t)
	s.produce(int(records))
	r := s.open(client.Group("g"))
	for !r.Status()[0].Past(records) {
		got, err := r.Poll(t.Context())
		require.NoError(t, err)
		kept := got[:0]
		for _, record := range got {
			if record.Offset%2 == 1 {
				kept = append(kept, record)
			}
		}
		require.NoError(t, r.Enqueue(t.Context(), kept...))
	}
	require.NoError(t, r.Flush(t.Context()))
	ledgers, err := s.admin().Describe(t.Context(), "g")
	require.NoError(t, err)
	require.EqualValues(t, records/2, ledgers[0].Gaps)
	require.EqualValues(t, records/2, ledgers[0].Lag())
	require.NoError(t, r.RedeliverOpen(t.Context()))
	for n := int64(0); n < records/2; {
		got, err := r.Poll(t.Context())
		require.NoError(t, err)
		for _, record := range got {
			require.Equal(t, 2*n, record.Offset)
			n++
		}
	}
}

func TestAdminAgainstABroker(t *testing.T) {
	s := newServer(t)
	s.produce(100)
	a := s.admin()
	state, err := a.Commit(t.Context(), "g", "t", 0, client.Run{Start: 10, End: 20}, client.Run{Start: 50, End: 51})
	require.NoError(t, err)
	require.Equal(t, client.State{Stable: 0, MaxCommit: 51}, state)
	var gaps []client.Run
	for gap, err := range a.Gaps(t.Context(), "g", "t", 0, 0) {
		require.NoError(t, err)
		gaps = append(gaps, gap)
	}
	require.Equal(t, []client.Run{{Start: 0, End: 10}, {Start: 20, End: 50}}, gaps)
	state, err = a.Reopen(t.Context(), "g", "t", 0, client.Run{Start: 12, End: 14})
	require.NoError(t, err)
	require.Equal(t, client.State{Stable: 0, MaxCommit: 51}, state)
	for to, want := range map[client.Position]int64{client.At(30): 30, client.Latest(): 100, client.Earliest(): 0, client.At(5): 5} {
		_, err = a.Commit(t.Context(), "g", "t", 0, client.Run{Start: 40, End: 45})
		require.NoError(t, err)
		done, err := a.Reset(t.Context(), "g", to, client.TopicPartition{Topic: "t", Partition: 0})
		require.NoError(t, err)
		require.NoError(t, done[0].Err)
		ledgers, err := a.Describe(t.Context(), "g", "t")
		require.NoError(t, err)
		require.Equal(t, want, ledgers[0].Stable, "%v", to)
		require.Equal(t, want, ledgers[0].MaxCommit, "%v", to)
	}
}
