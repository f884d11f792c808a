package tests

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kgo"
)

// processorRun is a group of processors whose processes, and whose broker, are killed at
// random while records come in.
type processorRun struct {
	t        *testing.T
	rng      *rand.Rand
	job      processorJob
	dir      string
	proxy    *eosProxy
	broker   *process
	producer *kgo.Client
	seats    [5]*processorProcess
	dirs     [5]string
	versions map[string]int // produced of each key
	inputs   int
}

// processorProcess runs processors.
type processorProcess struct {
	t     *testing.T
	cmd   *exec.Cmd
	stdin io.Closer
	done  bool
}

func newProcessorRun(t *testing.T, kind string, once bool, seed uint64) *processorRun {
	r := &processorRun{t: t, rng: rand.New(rand.NewPCG(seed, 6)), dir: t.TempDir(), versions: make(map[string]int),
		job: processorJob{Kind: kind, ExactlyOnce: once}}
	r.proxy = startEOSProxy(t)
	r.startBroker()
	conn := dial(t, r.broker.addr)
	defer conn.Close()
	require.NoError(t, conn.CreateTopic("in", 2, nil))
	require.NoError(t, conn.CreateTopic("out", 1, nil))
	r.job.Addr = r.proxy.addr()
	r.producer = kafkaClient(t, r.job.Addr, kgo.DefaultProduceTopic("in"))
	return r
}

func (r *processorRun) startBroker() {
	r.broker = startProcess(r.t, r.dir, "--advertise", r.proxy.addr(), "--set", "group.min.session.timeout.ms=100",
		"--set", "offsets.topic.num.partitions=2", "--set", "transaction.state.log.num.partitions=2", "--set", "group.initial.rebalance.delay.ms=0")
	r.proxy.lead(r.broker.addr)
}

// hire starts a process on a seat, with the state of the one before it or with none.
func (r *processorRun) hire(seat int) {
	job := r.job
	job.Name = fmt.Sprint("seat-", seat)
	if r.dirs[seat] == "" || r.rng.IntN(2) == 0 {
		r.dirs[seat] = r.t.TempDir()
	}
	job.Dir = r.dirs[seat]
	encoded, err := json.Marshal(job)
	require.NoError(r.t, err)
	self, err := os.Executable()
	require.NoError(r.t, err)
	p := &processorProcess{t: r.t, cmd: exec.Command(self)}
	p.cmd.Env = append(os.Environ(), processorJobVariable+"="+string(encoded))
	p.cmd.Stderr = os.Stderr
	p.stdin, err = p.cmd.StdinPipe()
	require.NoError(r.t, err)
	require.NoError(r.t, p.cmd.Start())
	r.t.Cleanup(p.kill)
	r.seats[seat] = p
}

func (p *processorProcess) kill() {
	if !p.done {
		p.done = true
		p.cmd.Process.Kill()
		p.cmd.Wait()
	}
}

// dismiss lets the process end in good order.
func (p *processorProcess) dismiss() {
	p.t.Helper()
	p.done = true
	impatient := time.AfterFunc(time.Minute, func() { p.cmd.Process.Kill() })
	defer impatient.Stop()
	require.NoError(p.t, p.stdin.Close())
	require.NoError(p.t, p.cmd.Wait())
}

// produce writes records of a few keys, whose values count from 1.
func (r *processorRun) produce(n int) {
	for range n {
		key := fmt.Sprint("key-", r.rng.IntN(12))
		r.versions[key]++
		r.inputs++
		r.producer.Produce(r.t.Context(), &kgo.Record{Key: []byte(key), Value: []byte(strconv.Itoa(r.versions[key]))}, func(_ *kgo.Record, err error) {
			if err != nil {
				r.t.Error(err)
			}
		})
	}
	require.NoError(r.t, r.producer.Flush(r.t.Context()))
}

// event is something that happens to the processes of the first seats.
func (r *processorRun) event(seats int) {
	seat := r.rng.IntN(seats)
	p := r.seats[seat]
	switch k := r.rng.IntN(10); {
	case p == nil:
		r.hire(seat)
	case k < 5:
		p.kill()
		r.hire(seat)
	case k < 7:
		r.broker.kill()
		r.startBroker()
	case k < 8:
		p.kill()
		r.broker.kill()
		r.startBroker()
		r.hire(seat)
	case seat > 0: // the first one stays
		p.dismiss()
		r.seats[seat] = nil
	default:
		r.proxy.cut()
	}
}

// run lets so many things happen to three seats, and drains them.
func (r *processorRun) run(events int, inputs func(*kgo.Record) int) (out []*kgo.Record) {
	r.hire(0)
	for range events {
		r.produce(20 + r.rng.IntN(40))
		r.event(3)
	}
	return r.drain(inputs)
}

// grow grows the group from 1 to 2, 3 and 5 processes and shrinks it to 2, while some are
// killed, and drains it.
func (r *processorRun) grow(inputs func(*kgo.Record) int) (out []*kgo.Record) {
	for _, n := range []int{1, 2, 3, 5, 2} {
		for seat, p := range r.seats {
			switch {
			case seat < n && p == nil:
				r.hire(seat)
			case seat >= n && p != nil:
				p.dismiss()
				r.seats[seat] = nil
			}
		}
		for range 3 {
			r.produce(20 + r.rng.IntN(40))
			r.event(n)
		}
	}
	return r.drain(inputs)
}

// drain ends with all processes stopped in good order once the outputs tell of every input. It
// returns all outputs that were committed.
func (r *processorRun) drain(inputs func(*kgo.Record) int) (out []*kgo.Record) {
	if r.seats[0] == nil {
		r.hire(0)
	}
	reader := kafkaClient(r.t, r.job.Addr, kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeTopics("out"),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.FetchMaxWait(100*time.Millisecond))
	ctx, cancel := context.WithTimeout(r.t.Context(), 40*time.Second)
	defer cancel()
	seen := 0
	for seen < r.inputs && ctx.Err() == nil {
		for _, o := range reader.PollFetches(ctx).Records() {
			seen += inputs(o)
			out = append(out, o)
		}
	}
	for _, p := range r.seats {
		if p != nil && !p.done {
			p.dismiss()
		}
	}
	// What came after that would be too much.
	last := r.producer.ProduceSync(r.t.Context(), &kgo.Record{Topic: "out", Key: []byte("the end")})
	require.NoError(r.t, last.FirstErr())
	for ctx.Err() == nil {
		for _, o := range reader.PollFetches(ctx).Records() {
			if string(o.Key) == "the end" {
				return out
			}
			out = append(out, o)
		}
	}
	require.NoError(r.t, ctx.Err(), "%d of %d inputs seen in the output", seen, r.inputs)
	return out
}

// folded is the latest version of each key among outputs, and how often each input is in
// them.
func folded(t *testing.T, out []*kgo.Record) (versions, offsets map[string]int) {
	versions, offsets = make(map[string]int), make(map[string]int)
	for _, o := range out {
		version, list, ok := strings.Cut(string(o.Value), "|")
		require.True(t, ok)
		n, err := strconv.Atoi(version)
		require.NoError(t, err)
		versions[string(o.Key)] = max(versions[string(o.Key)], n)
		for at := range strings.SplitSeq(list, ",") {
			offsets[at]++
		}
	}
	return versions, offsets
}

func countFolded(o *kgo.Record) int { return strings.Count(string(o.Value), ",") + 1 }

// TestProcessorsKilledBeforeTheyEmit is the question of a forum: whether a processor that
// keeps the latest version of each key and emits it every so often can be fault tolerant
// without a changelog.
func TestProcessorsKilledBeforeTheyEmit(t *testing.T) {
	for seed := range seeds(t, scaled(2, 12)) {
		t.Run(fmt.Sprint("exactly once/seed=", seed), func(t *testing.T) {
			r := newProcessorRun(t, foldKind, true, uint64(seed))
			versions, offsets := folded(t, r.run(8, countFolded))
			require.Equal(t, r.versions, versions)
			require.Len(t, offsets, r.inputs, "inputs that were emitted")
			for at, n := range offsets {
				require.Equal(t, 1, n, "input %s was emitted so often", at)
			}
		})
	}
	t.Run("at least once", func(t *testing.T) {
		r := newProcessorRun(t, foldKind, false, 1)
		// Some inputs may be emitted twice, so the number of them is no sign of the end.
		all := make(map[string]bool)
		fresh := func(o *kgo.Record) (n int) {
			_, list, _ := strings.Cut(string(o.Value), "|")
			for at := range strings.SplitSeq(list, ",") {
				if !all[at] {
					all[at] = true
					n++
				}
			}
			return n
		}
		versions, offsets := folded(t, r.run(6, fresh))
		require.Equal(t, r.versions, versions)
		require.Len(t, offsets, r.inputs)
	})
}

// TestCountingProcessorsKilled lets processors with durable state come, go and die. Each
// count of each key is seen once, in order.
func TestCountingProcessorsKilled(t *testing.T) {
	for seed := range seeds(t, scaled(2, 12)) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := newProcessorRun(t, countKind, true, uint64(seed))
			r.requireCounts(r.run(8, func(*kgo.Record) int { return 1 }))
		})
	}
}

// TestProcessorsGrowWhileKilled is the same while the group grows and shrinks.
func TestProcessorsGrowWhileKilled(t *testing.T) {
	if !long() {
		t.Skip("processes that are killed for a while: LACUNA_LONG")
	}
	for seed := range seeds(t, 4) {
		t.Run(fmt.Sprint("seed=", seed), func(t *testing.T) {
			r := newProcessorRun(t, countKind, true, uint64(seed))
			r.requireCounts(r.grow(func(*kgo.Record) int { return 1 }))
		})
	}
}

// requireCounts checks that each count of each key is among outputs, once and in order.
func (r *processorRun) requireCounts(out []*kgo.Record) {
	r.t.Helper()
	last := make(map[string]int)
	for _, o := range out {
		last[string(o.Key)]++
		require.Equal(r.t, strconv.Itoa(last[string(o.Key)]), string(o.Value), "count of %s at offset %d", o.Key, o.Offset)
	}
	require.Equal(r.t, r.versions, last)
}
