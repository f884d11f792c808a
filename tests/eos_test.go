package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/tests/wire"
)

const (
	eosOutPartitions = 4
	eosLock          = time.Second
	eosSession       = 2500 * time.Millisecond
)

// TestExactlyOnceOutOfOrder has sixteen workers in four processes take the records of one
// partition, each in any order, and produce an output for each in the transaction that
// acknowledges it. Workers and the broker are killed, stopped for longer than their locks
// last, and cut off; transactions are aborted on purpose, and others want the same records.
// Who reads committed records sees the output of each input once, and where the order of
// keys is kept, the outputs of each key are in the order of its inputs.
//
// It takes minutes, and runs with LACUNA_EXACTLY_ONCE=1 (make exactly-once).
func TestExactlyOnceOutOfOrder(t *testing.T) {
	if os.Getenv("LACUNA_EXACTLY_ONCE") == "" {
		t.Skip("runs with LACUNA_EXACTLY_ONCE=1")
	}
	for _, mode := range []string{"round-robin", "key-ordered", "key-range", eosReaders} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			for seed := range seeds(t, scaled(3, 10)) {
				t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) { newEOSRun(t, mode, uint64(seed), 2000).run() })
			}
			if long() {
				t.Run("many", func(t *testing.T) { newEOSRun(t, mode, 1000, 100_000).run() })
			}
		})
	}
}

// eosRun is one group at work on one topic.
type eosRun struct {
	t       *testing.T
	mode    string
	seed    uint64
	rng     *rand.Rand
	inputs  int
	keys    int
	dir     string // data of the broker
	proxy   *eosProxy
	broker  *process
	account *eosAccount
	rival   *eosRival

	seats     [eosSeats]*eosProcess
	zombies   []*eosProcess // whose seat another has
	processes int           // ever
	names     int
	acked     int // inputs, when somebody looked last
	done      map[string]int
}

func newEOSRun(t *testing.T, mode string, seed uint64, inputs int) *eosRun {
	r := &eosRun{t: t, mode: mode, seed: seed, rng: rand.New(rand.NewPCG(seed, 7)), inputs: inputs, dir: t.TempDir(), done: make(map[string]int)}
	r.keys = []int{20, 200}[r.rng.IntN(2)]
	r.account = newEOSAccount(t, r.ordered())
	r.proxy = startEOSProxy(t)
	r.startBroker()
	return r
}

func (r *eosRun) ordered() bool { return strings.HasPrefix(r.mode, "key-") }

func (r *eosRun) startBroker() {
	flags := []string{"--advertise", r.proxy.addr()}
	for name, value := range map[string]string{
		"offsets.topic.num.partitions": "2", "offsets.topic.segment.bytes": "100000",
		"transaction.state.log.num.partitions": "2", "transaction.state.log.segment.bytes": "100000",
		"log.cleaner.backoff.ms": "200", "log.cleaner.min.cleanable.ratio": "0",
		"group.share.min.record.lock.duration.ms": fmt.Sprint(eosLock.Milliseconds()),
		"group.share.min.session.timeout.ms":      "100", "group.share.min.heartbeat.interval.ms": "100",
		"group.share.max.delivery.count.limit": "25",
	} {
		flags = append(flags, "--set", name+"="+value)
	}
	r.broker = startProcess(r.t, r.dir, flags...)
	r.proxy.lead(r.broker.addr)
}

// prepare makes the topics, the inputs and the group.
func (r *eosRun) prepare() {
	conn := dial(r.t, r.broker.addr)
	defer conn.Close()
	require.NoError(r.t, conn.CreateTopic(eosIn, 1, nil))
	require.NoError(r.t, conn.CreateTopic(eosOut, eosOutPartitions, map[string]string{"segment.bytes": "1048576"}))
	if r.mode != eosReaders {
		configureGroup(r.t, r.broker.addr, eosGroup, map[string]string{
			"share.auto.offset.reset": "earliest", "share.delivery.mode": r.mode, "share.isolation.level": "read_committed",
			"share.delivery.count.limit":    "25",
			"share.record.lock.duration.ms": fmt.Sprint(eosLock.Milliseconds()),
			"share.session.timeout.ms":      fmt.Sprint(eosSession.Milliseconds()),
			"share.heartbeat.interval.ms":   "300",
		})
	}
	cl := kafkaClient(r.t, r.broker.addr)
	for i := range r.inputs {
		record := &kgo.Record{Topic: eosIn, Key: fmt.Appendf(nil, "key-%d", r.rng.IntN(r.keys)), Value: fmt.Append(nil, i)}
		cl.Produce(r.t.Context(), record, func(record *kgo.Record, err error) {
			if err != nil || record.Offset != int64(i) {
				r.account.fault("input %d is written to offset %d: %v", i, record.Offset, err)
			}
		})
	}
	require.NoError(r.t, cl.Flush(r.t.Context()))
	cl.Close()
}

func (r *eosRun) run() {
	r.prepare()
	watching := r.watch()
	defer watching()
	r.rival = newEOSRival(r)
	r.rival.first(r.hireAll)
	competing := r.rival.compete()
	for _, e := range r.plan() {
		r.account.await(fmt.Sprintf("%d inputs are not reached", e.at), func() bool { return r.account.count() >= e.at })
		e.happen()
		r.done[e.name]++
	}
	competing()
	all := 0
	for input := range int64(r.inputs) {
		if !eosDropped(input) {
			all++
		}
	}
	r.account.await("not all is done", func() bool { return r.account.count() >= all })
	for _, p := range append(r.seats[:], r.zombies...) {
		p.dismiss()
	}
	r.finish(all)
}

// hireAll takes a process for each seat.
func (r *eosRun) hireAll() {
	for seat := range r.seats {
		name := r.newName()
		if r.seats[seat] != nil && r.rng.IntN(2) == 0 {
			name = r.seats[seat].job.Name
		}
		r.seats[seat] = r.hire(seat, name)
	}
}

// finish looks for the last time, when workers have closed that nobody has killed.
func (r *eosRun) finish(all int) {
	seen := r.look()
	require.Len(r.t, seen.by, all)
	r.account.await("the reader of committed records is behind", func() bool { return r.account.count() == len(seen.by) })
	r.account.compare(seen)
	for partition, values := range seen.values {
		r.account.await("the reader of committed records is behind", func() bool {
			r.account.mu.Lock()
			defer r.account.mu.Unlock()
			return len(r.account.mu.seen.values[partition]) == len(values)
		})
	}
	require.Equal(r.t, r.inputs, r.acked, "inputs that are not acknowledged")
	conn := dial(r.t, r.broker.addr)
	defer conn.Close()
	written := 0
	for partition := range int32(eosOutPartitions) {
		n, err := countRecords(conn, eosOut, partition)
		require.NoError(r.t, err)
		written += n
	}
	visible := 0
	for _, values := range seen.values {
		visible += len(values)
	}
	r.account.mu.Lock()
	defer r.account.mu.Unlock()
	r.t.Logf("%d inputs, %d keys: %v; transactions: %v; %d of %d records are of aborted ones, %d were read again",
		r.inputs, r.keys, r.done, r.account.mu.told, written-visible, written, r.account.mu.again)
	require.Positive(r.t, r.account.mu.told[eosCommitted])
	require.Positive(r.t, r.account.mu.told[eosConflict], "no two transactions wanted the same record")
	require.Greater(r.t, written, visible, "nothing was aborted that had been written")
	r.broker.stop()
}

// countRecords counts the records of a partition, those of aborted transactions too.
func countRecords(conn *wire.Conn, topic string, partition int32) (n int, err error) {
	for at := int64(0); ; {
		resp, err := conn.Do(wire.FetchRequest(topic, partition, at, 1<<20, 0))
		if err != nil {
			return 0, err
		}
		p, err := wire.Fetched(resp)
		if err != nil || len(p.RecordBatches) == 0 {
			return n, err
		}
		if at, err = countBatches(p.RecordBatches, &n); err != nil {
			return 0, err
		}
	}
}

// watch has a stock client read the output as far as it is committed, from the beginning to
// the end of the run.
func (r *eosRun) watch() (end func()) {
	from := make(map[int32]kgo.Offset)
	for partition := range int32(eosOutPartitions) {
		from[partition] = kgo.NewOffset().At(0)
	}
	cl := kafkaClient(r.t, r.proxy.addr(), kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.FetchMaxWait(100*time.Millisecond),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{eosOut: from}))
	ctx, cancel := context.WithCancel(r.t.Context())
	var reading sync.WaitGroup
	reading.Go(func() {
		for ctx.Err() == nil {
			fetches := cl.PollFetches(ctx)
			fetches.EachError(func(_ string, _ int32, err error) { r.account.note("reader of committed records: %v", err) })
			fetches.EachRecord(func(record *kgo.Record) { r.account.see(record.Partition, record.Offset, string(record.Value)) })
		}
	})
	return func() {
		cancel()
		reading.Wait()
		cl.Close()
	}
}
