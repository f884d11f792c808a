package processor_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

// remembering puts the value of each record into a store, or removes the key if it is empty,
// and forwards what was there before and is now.
func remembering(inputs ...string) processor.Topology {
	return processor.Topology{Inputs: inputs, Sinks: []string{"out"}, Processors: []processor.Node{{
		Name: "remember", Stores: []string{"latest"}, New: processor.ProcessFunc(func(c *processor.Context, r *kgo.Record) error {
			latest, err := c.Store("latest")
			if err != nil {
				return err
			}
			before, ok, err := latest.Get(r.Key)
			if err != nil {
				return err
			}
			if !ok {
				before = []byte("nothing")
			}
			if len(r.Value) == 0 {
				err = latest.Delete(r.Key)
			} else {
				err = latest.Put(r.Key, r.Value)
			}
			if err != nil {
				return err
			}
			return c.Forward(&kgo.Record{Key: r.Key, Value: fmt.Appendf(nil, "%s > %s", before, r.Value)})
		})}}}
}

// history is a group with a changelog, its members' disks, and what its outputs must be.
type history struct {
	*rig
	rng     *rand.Rand
	once    bool
	buckets int32
	inputs  []string // put writes to the first
	members []*member
	named   int
	latest  map[string]string
	want    map[string][]string // of each key, in order
	n       int                 // records
}

func newHistory(t *testing.T, partitions, buckets int32, once bool) *history {
	return &history{rig: newRig(t, partitions), rng: rand.New(rand.NewPCG(1, 0)), once: once, buckets: buckets, inputs: []string{"in"},
		latest: make(map[string]string), want: make(map[string][]string)}
}

// member is one process and its disk.
type member struct {
	name string
	fs   *vfs.MemFS
	app  *processor.App
	// restores is what it has read of its changelog since it was started.
	restores *restores
	// copying asks for a copy of the disk as it is behind a unit of work.
	copying atomic.Bool
	copied  chan *vfs.MemFS
}

// makeChangelog makes the changelog beforehand, with segments of a few batches, so that it is
// compacted at once.
func (r *rig) makeChangelog(partitions int32, configs ...string) {
	r.t.Helper()
	all := map[string]*string{"cleanup.policy": kadm.StringPtr("compact"), "internal.segment.bytes": kadm.StringPtr("2000")}
	for i := 0; i < len(configs); i += 2 {
		all[configs[i]] = &configs[i+1]
	}
	_, err := kadm.NewClient(r.kafka).CreateTopic(r.t.Context(), partitions, 1, all, "job-changelog")
	require.NoError(r.t, err)
}

func (h *history) start(m *member) {
	h.t.Helper()
	m.copied = make(chan *vfs.MemFS, 1)
	// At least once, who only seemed to be gone may write what nobody expects.
	opts, session := guarantees["at least once"], 3*time.Second
	if h.once {
		opts, session = guarantees["exactly once"], time.Second
	}
	m.restores = new(restores)
	m.app = h.open(remembering(slices.Clone(h.inputs)...), append(opts, processor.Changelog("job-changelog"), processor.InitialBuckets(h.buckets),
		processor.MemberOpts(kgo.SessionTimeout(session)), processor.StateFS(m.fs), processor.StateDir("state"), processor.Name(m.name),
		processor.UnitRecords(1+h.rng.IntN(40)), processor.HandOverThreshold(10), processor.OnEvents(processor.Hooks{
			Failed:    func(err error) { h.t.Log(m.name, "failed:", err) },
			Restarted: func(bucket int32, err error) { h.t.Log(m.name, "restarted:", bucket, err) },
			Restored:  m.restores.hook,
			Committed: func(int32, int, int) {
				if m.copying.CompareAndSwap(true, false) {
					m.copied <- m.fs.CrashClone(vfs.CrashCloneCfg{UnsyncedDataPercent: 50, RNG: rand.New(rand.NewPCG(1, 2))})
				}
			},
		}))...)
}

// join has another member come and produces until that processes something.
func (h *history) join() {
	h.named++
	m := &member{name: fmt.Sprint("w", h.named), fs: vfs.NewCrashableMem()}
	h.members = append(h.members, m)
	h.start(m)
	deadline := time.Now().Add(30 * time.Second)
	for !processes(m.app) {
		require.True(h.t, time.Now().Before(deadline), "%s is given nothing", m.name)
		h.produce(3)
	}
}

// produce writes records of few keys, and deletes what is below them sometimes.
func (h *history) produce(n int) {
	for range n {
		value := ""
		if h.rng.IntN(3) > 0 {
			value = fmt.Sprint(h.n)
		}
		h.put(fmt.Sprintf("key-%d", h.rng.IntN(historyKeys)), value)
	}
	require.NoError(h.t, h.kafka.Flush(h.t.Context()))
}

const historyKeys = 30

func (h *history) put(key, value string) {
	before := h.latest[key]
	if before == "" {
		before = "nothing"
	}
	h.latest[key], h.want[key] = value, append(h.want[key], before+" > "+value)
	h.kafka.Produce(h.t.Context(), &kgo.Record{Topic: h.inputs[0], Key: []byte(key), Value: []byte(value)}, func(_ *kgo.Record, err error) {
		if err != nil {
			h.t.Error(err)
		}
	})
	h.n++
}

// check waits until everything is processed, and compares what came out: all of it, or if it may
// have come out twice what is said of one more record of each key.
func (h *history) check() {
	h.t.Helper()
	require.NoError(h.t, h.kafka.Flush(h.t.Context())) // what was written may come out before its producer hears of it
	if !h.once {
		h.probe()
		return
	}
	got := make(map[string][]string)
	for _, r := range h.output(h.n) {
		got[string(r.Key)] = append(got[string(r.Key)], string(r.Value))
	}
	require.Equal(h.t, h.want, got)
}

func (h *history) probe() {
	h.t.Helper()
	want, got := make(map[string]string), make(map[string]string)
	for i := range historyKeys {
		key := fmt.Sprintf("key-%d", i)
		h.put(key, fmt.Sprint("probe-", h.n))
		want[key] = h.want[key][len(h.want[key])-1]
	}
	require.NoError(h.t, h.kafka.Flush(h.t.Context()))
	h.outputUntil(func(r *kgo.Record) bool {
		_, now, _ := strings.Cut(string(r.Value), " > ")
		if key := string(r.Key); got[key] == "" && now == h.latest[key] {
			got[key] = string(r.Value)
		}
		return len(got) == historyKeys
	})
	require.Equal(h.t, want, got)
}

// crash ends a member where it is, and starts it again with what a crash some units of work
// before would have left on its disk.
func (h *history) crash(m *member) {
	m.copying.Store(true)
	h.produce(100)
	h.check()
	m.copying.Store(false)
	h.abort(m)
	select {
	case m.fs = <-m.copied:
	default: // it had nothing to do
	}
	h.produce(30)
	h.start(m)
}

// abort ends a member without letting it finish anything.
func (h *history) abort(m *member) {
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := m.app.Close(ctx); err != nil {
		h.t.Log(m.name, "aborted:", err)
	}
}

// step does something to a member.
func (h *history) step() {
	m := h.members[h.rng.IntN(len(h.members))]
	what := h.rng.IntN(6)
	h.t.Log("step", what, m.name, "of", len(h.members))
	switch what {
	case 0, 1:
		if len(h.members) < 4 {
			h.join()
			return
		}
		require.NoError(h.t, m.app.Close(context.Background()))
		h.members = without(h.members, m)
	case 2: // in good order, with its disk
		require.NoError(h.t, m.app.Close(context.Background()))
		h.produce(20)
		h.start(m)
	case 3: // in the middle of its work, with its disk
		h.abort(m)
		h.start(m)
	case 4: // without its disk
		h.abort(m)
		m.fs = vfs.NewCrashableMem()
		h.start(m)
	case 5:
		h.crash(m)
	}
}

func without(all []*member, m *member) (left []*member) {
	for _, other := range all {
		if other != m {
			left = append(left, other)
		}
	}
	return left
}

// Members come, go, crash and lose their disks while the input is forgotten and the changelog
// compacted. What comes out is what one state in one process would have said.
func TestChangelogSurvives(t *testing.T) {
	seeds, steps := 4, 5
	if os.Getenv("LACUNA_LONG") != "" {
		seeds, steps = 30, 12
	}
	for seed := range seeds {
		t.Run(fmt.Sprint(seed), func(t *testing.T) {
			h := newHistory(t, 1+int32(seed%2), 1+int32(seed%3), seed%4 < 3)
			h.rng = rand.New(rand.NewPCG(uint64(seed), 0))
			h.makeChangelog(h.buckets)
			h.produce(100)
			h.join()
			for range steps {
				h.produce(h.rng.IntN(150))
				if h.rng.IntN(2) == 0 {
					h.check()
					h.forget(-1)
				}
				h.step()
			}
			h.check()
		})
	}
}
