package tests

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/cockroachdb/pebble/v2/vfs/errorfs"
	"github.com/stretchr/testify/require"

	"github.com/lacunamq/lacuna/broker"
	"github.com/lacunamq/lacuna/tests/wire"
)

// history is a random run of a whole broker on a file system that can crash, with the
// account of what it confirmed. What a crash would leave is kept at random file
// operations, together with the account of that moment; the history itself goes on.
type history struct {
	t       *testing.T
	rng     *rand.Rand
	mem     *vfs.MemFS
	config  broker.Config
	b       *broker.Broker
	conn    *wire.Conn
	writers []*writer
	values  int // made so far, so that every record is different from all others

	// inject may fail a file operation; nil: none fails. A request that fails then ends
	// the history.
	inject func(op errorfs.Op) error

	mu struct {
		sync.Mutex
		model *model
		// change is what is being asked for: it may have happened, or not, when it crashes.
		change func(*model)
		// stopping: a clean stop is under way or over, and the next start has not ended, so
		// that no crash may be noticed.
		stopping bool

		rng   *rand.Rand
		every int // one in so many file operations leaves a crash; 0: none
		left  []crash
	}
}

// crash is what a crash leaves.
type crash struct {
	fs       *vfs.MemFS
	model    *model
	change   func(*model)
	stopping bool
	unsynced int // percent of what was not synced that is there all the same
}

// maxCrashes is how many crashes of a history are kept.
const maxCrashes = 8

func newHistory(t *testing.T, seed uint64) *history {
	h := &history{t: t, rng: rand.New(rand.NewPCG(seed, 1)), mem: vfs.NewCrashableMem()}
	h.mu.model = newModel()
	h.mu.rng = rand.New(rand.NewPCG(seed, 2))
	h.config = broker.Config{Listen: []string{"127.0.0.1:0"}, DataDir: "data", Settings: map[string]string{
		"offsets.topic.num.partitions":            "2",
		"offsets.topic.segment.bytes":             fmt.Sprint(500 + h.rng.IntN(5000)),
		"group.initial.rebalance.delay.ms":        "0",
		"log.retention.check.interval.ms":         fmt.Sprint(1 + h.rng.IntN(20)),
		"log.cleaner.backoff.ms":                  fmt.Sprint(1 + h.rng.IntN(20)),
		"log.flush.offset.checkpoint.interval.ms": fmt.Sprint(1 + h.rng.IntN(50)),
		"log.cleaner.min.cleanable.ratio":         "0",
	}}
	return h
}

// start starts the broker on the file system of the history.
func (h *history) start() {
	h.config.FS = errorfs.Wrap(h.mem, errorfs.InjectorFunc(h.beforeOp))
	var err error
	h.b, err = broker.Start(h.t.Context(), h.config)
	require.NoError(h.t, err)
	h.setStopping(false)
	h.conn, err = wire.Dial(h.t.Context(), h.b.Addr())
	require.NoError(h.t, err)
	b, conn := h.b, h.conn
	h.t.Cleanup(func() { // of what a failure leaves
		conn.Close()
		ctx, cancel := context.WithTimeout(context.Background(), wire.Patience)
		defer cancel()
		b.Stop(ctx)
	})
}

// stop stops it cleanly.
func (h *history) stop() {
	h.setStopping(true)
	h.conn.Close()
	ctx, cancel := context.WithTimeout(context.Background(), wire.Patience)
	defer cancel()
	require.NoError(h.t, h.b.Stop(ctx))
	h.mu.Lock()
	defer h.mu.Unlock()
	for _, t := range h.mu.model.topics {
		for _, p := range t.partitions {
			p.promote(1 << 62) // a clean stop loses nothing that was answered
		}
	}
}

func (h *history) setStopping(stopping bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.stopping = stopping
}

// beforeOp keeps what a crash would leave, before one in so many operations that change
// the disk.
func (h *history) beforeOp(op errorfs.Op) error {
	if op.Kind.ReadOrWrite() != errorfs.OpIsWrite {
		return nil
	}
	if h.inject != nil {
		return h.inject(op)
	}
	if h.oneIn() {
		// A slow disk: whoever confirms before the operation is over does so now.
		<-time.After(slowest)
		h.crash()
	}
	return nil
}

// slowest is how long an operation takes before which there is a crash: longer than the
// way of an answer to the client.
const slowest = time.Millisecond

// oneIn chooses one in so many operations; fewer of a start or a stop, which has many.
func (h *history) oneIn() bool {
	h.mu.Lock()
	defer h.mu.Unlock()
	every := h.mu.every
	if h.mu.stopping {
		every *= 8
	}
	return every > 0 && h.mu.rng.IntN(every) == 0
}

// crash keeps what a crash would leave now.
func (h *history) crash() {
	h.mu.Lock()
	defer h.mu.Unlock()
	unsynced := []int{0, 0, 30, 70, 100}[h.mu.rng.IntN(5)]
	if h.config.NoFsync {
		unsynced = 100 // only the process may crash
	}
	left := crash{
		fs:    h.mem.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: unsynced, RNG: h.mu.rng}),
		model: h.mu.model.clone(), change: h.mu.change, stopping: h.mu.stopping, unsynced: unsynced,
	}
	if len(h.mu.left) < maxCrashes {
		h.mu.left = append(h.mu.left, left)
	} else {
		h.mu.left[h.mu.rng.IntN(maxCrashes)] = left
	}
}

// run does n random operations, and leaves crashes on the way.
func (h *history) run(n, every int) {
	h.setEvery(every)
	h.start()
	for range n {
		h.step()
	}
	h.stop()
	h.setEvery(0)
}

func (h *history) setEvery(every int) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.every = every
}

// update changes the account.
func (h *history) update(change func(m *model)) {
	h.mu.Lock()
	defer h.mu.Unlock()
	change(h.mu.model)
}

// do asks for a change, which may be there from now on, and notes that it is confirmed.
func (h *history) do(change func(m *model), ask func() error) {
	h.mu.Lock()
	h.mu.change = change
	h.mu.Unlock()
	h.must(ask())
	h.mu.Lock()
	defer h.mu.Unlock()
	h.mu.change = nil
	change(h.mu.model)
}

// must ends the history if a request failed, which is a failure of the test unless file
// operations fail.
func (h *history) must(err error) {
	if err != nil && h.inject != nil {
		panic(requestFailed{err})
	}
	require.NoError(h.t, err)
}

// requestFailed ends a history.
type requestFailed struct{ error }

// verify recovers some of the crashes and goes on from there, depth times over.
func (h *history) verify(crashes, ops, depth int) {
	left := h.mu.left
	h.rng.Shuffle(len(left), func(i, j int) { left[i], left[j] = left[j], left[i] })
	for i := range min(crashes, len(left)) {
		h.recover(&left[i], ops, depth)
	}
}

func (h *history) recover(c *crash, ops, depth int) {
	h.t.Logf("crash that leaves %d %% of what was not synced; a clean stop was under way: %v", c.unsynced, c.stopping)
	f := &history{t: h.t, rng: h.rng, mem: c.fs, config: h.config, values: h.values}
	f.mu.rng = h.mu.rng
	f.mu.model = c.model
	f.mu.change = c.change
	f.mu.stopping = c.stopping // until the broker has started
	if depth > 0 {
		f.mu.every = 10 // in the recovery as well
	}
	f.start()
	seen := observe(h.t, f.conn)
	agreed, err := seen.agrees(c)
	require.NoError(h.t, err)
	f.adopt(seen, agreed)
	for range ops {
		f.step()
	}
	f.stop()
	f.setEvery(0)

	f.start()
	seen = observe(h.t, f.conn)
	_, err = seen.agrees(&crash{model: f.mu.model, stopping: true})
	require.NoError(h.t, err, "after a clean stop")
	f.stop()
	if depth > 0 {
		f.verify(2, 0, depth-1)
	}
}

// adopt makes what is seen after a crash the account to go on with.
func (h *history) adopt(seen *observed, agreed *model) {
	h.mu.Lock()
	defer h.mu.Unlock()
	m := agreed.clone()
	for name, t := range m.topics {
		t.id = seen.topics[name].id
		for i, p := range t.partitions {
			p.start, p.sure, p.asked = seen.topics[name].partitions[i].start, nil, nil
			for _, b := range seen.topics[name].partitions[i].batches {
				p.sure = append(p.sure, batchModel{base: b.header.BaseOffset, bytes: b.bytes})
			}
		}
	}
	// Which of two accounts is true cannot always be told from records that compaction
	// has thinned out.
	for key, l := range seen.ledgers {
		if m.committed(key).founded || len(l.Gaps) > 0 {
			m.of(key).see(&l)
		}
	}
	h.mu.model, h.mu.change = m, nil
}

// names are the topics that there are, in order.
func (h *history) names() []string {
	names := make([]string, 0, len(h.mu.model.topics))
	for name := range h.mu.model.topics {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
