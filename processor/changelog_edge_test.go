package processor_test

import (
	"bytes"
	"context"
	"fmt"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/cockroachdb/pebble/v2/vfs"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor"
	"github.com/lacunamq/lacuna/statestore"
)

// changes reads the changelog up to its end, as who reads committed records does.
func (r *rig) changes() (all []*kgo.Record) {
	r.t.Helper()
	adm := kadm.NewClient(r.kafka)
	ends, err := adm.ListCommittedOffsets(r.t.Context(), "job-changelog")
	require.NoError(r.t, err)
	cl, err := kgo.NewClient(kgo.SeedBrokers(r.b.Addr()), kgo.ConsumeTopics("job-changelog"), kgo.KeepControlRecords(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	require.NoError(r.t, err)
	defer cl.Close()
	left := make(map[int32]int64)
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			left[o.Partition] = o.Offset
		}
	})
	ctx, cancel := context.WithTimeout(r.t.Context(), time.Minute)
	defer cancel()
	for len(left) > 0 {
		fetches := cl.PollFetches(ctx)
		require.NoError(r.t, ctx.Err())
		fetches.EachRecord(func(record *kgo.Record) {
			if !record.Attrs.IsControl() {
				all = append(all, record)
			}
			if record.Offset+1 >= left[record.Partition] {
				delete(left, record.Partition)
			}
		})
	}
	return all
}

// The changelog is compacted to a record for each key and each range of an input, and that is
// all that has to be read.
func TestChangelogIsCompacted(t *testing.T) {
	r := newRig(t, 2)
	r.makeChangelog(1)
	r.produce(3000, 20)
	c := new(counting)
	a, _ := r.restoring(c.topology(), processor.StateDir(t.TempDir()), processor.UnitRecords(50))
	r.output(3000)
	require.Eventually(t, func() bool { return len(r.changes()) < 150 }, 20*time.Second, 20*time.Millisecond, "records of 60 units are left")
	require.NoError(t, a.Close(context.Background()))

	r.forget(-1)
	r.produce(20, 20)
	_, read := r.restoring(c.topology(), processor.StateDir(t.TempDir()))
	r.requireCounts(r.output(3020))
	_, n := read.counts()
	require.Less(t, n, 150)
	c.check(t)
}

// A group that has processed records has to have a changelog from the beginning.
func TestChangelogBeginsWithItsGroup(t *testing.T) {
	r := newRig(t, 1)
	r.produce(100, 10)
	c := new(counting)
	a := r.open(c.topology(), processor.StateDir(t.TempDir()))
	r.output(100)
	require.NoError(t, a.Close(context.Background()))

	dir := processor.StateDir(t.TempDir())
	a, _ = r.restoring(c.topology(), dir)
	<-a.Failed()
	require.ErrorContains(t, a.Err(), "the changelog job-changelog is empty, and the group has processed records already")
	require.NoError(t, a.Close(context.Background()))

	r.values = make(map[string]int) // counted from nothing
	a, _ = r.restoring(c.topology(), dir, processor.EmptyState())
	r.active(a)
	r.produce(100, 10)
	r.output(200)
	c.check(t)
}

func TestChangelogMustFit(t *testing.T) {
	t.Run("partitions", func(t *testing.T) {
		r := newRig(t, 1)
		r.makeChangelog(3)
		a, _ := r.restoring(new(counting).topology(), processor.StateDir(t.TempDir()))
		<-a.Failed()
		require.ErrorContains(t, a.Err(), "the changelog job-changelog has 3 partitions, and the group 1 initial buckets")
	})
	t.Run("policy", func(t *testing.T) {
		r := newRig(t, 1)
		r.makeChangelog(1, "cleanup.policy", "compact,delete")
		a, _ := r.restoring(new(counting).topology(), processor.StateDir(t.TempDir()))
		<-a.Failed()
		require.ErrorContains(t, a.Err(), `the changelog job-changelog has the cleanup.policy "compact,delete"`)
	})
	t.Run("options", func(t *testing.T) {
		topology := new(counting).topology()
		scratch, noStore := topology, topology
		scratch.Ack = processor.AckOnPunctuate
		noStore.Processors = []processor.Node{{Name: "n", New: topology.Processors[0].New}}
		for want, open := range map[string]func() (*processor.App, error){
			"a changelog with ack on punctuate": func() (*processor.App, error) {
				return processor.Open(t.Context(), "job", scratch, processor.Changelog("log"))
			},
			"a changelog, and no store": func() (*processor.App, error) {
				return processor.Open(t.Context(), "job", noStore, processor.Changelog("log"))
			},
			"the changelog out is an input, a sink or for dead letters too": func() (*processor.App, error) {
				return processor.Open(t.Context(), "job", topology, processor.Changelog("out"), processor.StateDir("x"))
			},
			"processor.EmptyState is for a changelog": func() (*processor.App, error) {
				return processor.Open(t.Context(), "job", topology, processor.EmptyState(), processor.StateDir("x"))
			},
		} {
			_, err := open()
			require.ErrorContains(t, err, want)
		}
	})
}

// A state is restored whole if the changelog is another one than it was made of.
func TestChangelogMadeAnew(t *testing.T) {
	r := newRig(t, 1)
	r.produce(500, 20)
	c := new(counting)
	dir := processor.StateDir(t.TempDir())
	a, _ := r.restoring(c.topology(), dir)
	r.output(500)
	require.NoError(t, a.Close(context.Background()))

	all := r.changes()
	deleted, err := kadm.NewClient(r.kafka).DeleteTopics(t.Context(), "job-changelog")
	require.NoError(t, err)
	require.NoError(t, deleted.Error())
	r.makeChangelog(1)
	mirror, err := kgo.NewClient(kgo.SeedBrokers(r.b.Addr()), kgo.RecordPartitioner(kgo.ManualPartitioner()))
	require.NoError(t, err)
	defer mirror.Close()
	for _, record := range all {
		require.NoError(t, mirror.ProduceSync(t.Context(), &kgo.Record{Topic: record.Topic, Key: record.Key, Value: record.Value}).FirstErr())
	}

	r.produce(20, 20)
	_, read := r.restoring(c.topology(), dir)
	r.requireCounts(r.output(520))
	_, n := read.counts()
	require.Equal(t, len(all), n)
	c.check(t)
}

// A state that was away for longer than tombstones stay does not know what was deleted
// meanwhile, and is restored whole.
func TestChangelogForgetsTombstones(t *testing.T) {
	h := newHistory(t, 1, 1, true)
	h.makeChangelog(1, "delete.retention.ms", "0")
	m := &member{name: "w1", fs: vfs.NewMem()}
	run := func() {
		h.start(m)
		h.check()
		require.NoError(t, m.app.Close(context.Background()))
	}
	put := func(value string) {
		for i := range 30 {
			h.put(fmt.Sprint("gone-", i), value)
		}
	}
	put("value")
	run()
	old := vfs.NewMem()
	cloned, err := vfs.Clone(m.fs, old, "state", "state", vfs.CloneSync)
	require.NoError(t, err)
	require.True(t, cloned)
	put("")
	h.start(m)
	h.check()
	tombstones := func() bool {
		return slices.ContainsFunc(h.changes(), func(r *kgo.Record) bool { return r.Value == nil && bytes.Contains(r.Key, []byte("gone-")) })
	}
	for deadline := time.Now().Add(30 * time.Second); tombstones(); {
		require.True(t, time.Now().Before(deadline), "tombstones are left")
		h.produce(50) // what is written last is not compacted
		h.check()
	}
	require.NoError(t, m.app.Close(context.Background()))
	put("again")
	m.fs = old
	run()
}

// A state that is lost whole is restored by what the group had divided its input by, and not
// by the number of partitions that there are now.
func TestChangelogKnowsTheMeasure(t *testing.T) {
	h := newHistory(t, 2, 1, true)
	m := &member{name: "w1", fs: vfs.NewMem()}
	run := func() {
		h.produce(200)
		h.start(m)
		h.check()
		require.NoError(t, m.app.Close(context.Background()))
	}
	run()
	h.grow(4)
	m.fs = vfs.NewMem()
	run()
	m.fs = vfs.NewMem()
	run()
}

// An entry that changes its unit, here with the topic that its records come from, leaves
// nothing behind under the old one.
func TestChangelogFollowsKeysThatMove(t *testing.T) {
	h := newHistory(t, 2, 1, true)
	_, err := kadm.NewClient(h.kafka).CreateTopic(t.Context(), 3, 1, nil, "in-3")
	require.NoError(t, err)
	h.inputs = []string{"in", "in-3"}
	m := &member{name: "w1", fs: vfs.NewMem()}
	h.start(m)
	for range 3 {
		h.produce(100)
		h.check()
		slices.Reverse(h.inputs)
	}
	require.NoError(t, m.app.Close(context.Background()))

	entries := make(map[string]map[string]bool) // by key, under which keys of records
	moved := 0
	for _, r := range h.changes() {
		if r.Key[0] != 1 {
			continue
		}
		at := entries[string(r.Key[3:])]
		if at == nil {
			at = make(map[string]bool)
			entries[string(r.Key[3:])] = at
		}
		at[string(r.Key)] = r.Value != nil
		if len(at) > 1 {
			moved++
		}
	}
	require.Positive(t, moved, "no key has moved")
	for key, at := range entries {
		there := 0
		for _, is := range at {
			if is {
				there++
			}
		}
		require.LessOrEqual(t, there, 1, "key %q is under several units", key)
	}
	m.fs = vfs.NewMem()
	h.produce(100)
	h.start(m)
	h.check()
}

// A restored state owns the offsets of the inputs that it has taken in.
func TestChangelogRestoresOffsets(t *testing.T) {
	for name := range guarantees {
		t.Run(name, func(t *testing.T) {
			h := newHistory(t, 2, 1, name == "exactly once")
			m := &member{name: "w1", fs: vfs.NewMem()}
			h.produce(200)
			h.start(m)
			h.check()
			require.NoError(t, m.app.Close(context.Background()))
			m.fs = vfs.NewMem()
			h.start(m)
			require.Eventually(t, func() bool { told, _ := m.restores.counts(); return told > 0 }, 20*time.Second, time.Millisecond)
			require.NoError(t, m.app.Close(context.Background()))

			store, err := statestore.Pebble()(m.fs, "state/job/0/state")
			require.NoError(t, err)
			defer store.Close()
			offsets, err := store.(statestore.OffsetKeeper).Offsets()
			require.NoError(t, err)
			ends, err := kadm.NewClient(h.kafka).ListEndOffsets(t.Context(), "in")
			require.NoError(t, err)
			inputs := 0
			for _, o := range offsets {
				if o.Topic == "in" {
					end, _ := ends.Lookup("in", o.Partition)
					require.Equal(t, end.Offset, o.Next, "partition %d", o.Partition)
					require.Equal(t, client.SlotRange{Lo: 0, Hi: 65535}, o.Slots)
					inputs++
				}
			}
			require.Equal(t, 2, inputs)
		})
	}
}

// inventing adds an entry in each punctuation, and says with each record how many there are.
type inventing struct {
	c *processor.Context
	s *processor.Store
}

func (p *inventing) Init(c *processor.Context) (err error) {
	p.c = c
	if p.s, err = c.Store("invented"); err != nil {
		return err
	}
	_, err = c.Schedule(10*time.Millisecond, processor.WallClock, func(at time.Time) error {
		return p.s.Put([]byte(strconv.FormatInt(at.UnixNano(), 10)), []byte("invented"))
	})
	return err
}

func (p *inventing) Process(r *kgo.Record) error {
	n := 0
	for _, err := range p.s.Prefix(nil) {
		if err != nil {
			return err
		}
		n++
	}
	return p.c.Forward(&kgo.Record{Key: r.Key, Value: strconv.AppendInt(nil, int64(n), 10)})
}

func (p *inventing) Close() error { return nil }

// What a punctuation has written comes back too, although no record has to do with it.
func TestChangelogHasWhatPunctuationsWrite(t *testing.T) {
	for name, opts := range guarantees {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			topology := processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"}, Processors: []processor.Node{{
				Name: "invent", Stores: []string{"invented"}, New: func() processor.Processor { return new(inventing) }}}}
			a, _ := r.restoring(topology, append(opts, processor.StateDir(t.TempDir()))...)
			r.active(a)
			count := func(outputs int) (last int) {
				r.produce(1, 1)
				out := r.output(outputs)
				last, err := strconv.Atoi(string(out[len(out)-1].Value))
				require.NoError(t, err)
				return last
			}
			outputs, before := 0, 0
			for before < 5 {
				outputs++
				before = count(outputs)
			}
			require.NoError(t, a.Close(context.Background()))
			for _, c := range r.changes() {
				require.True(t, c.Key[0] == 2 || bytes.HasPrefix(c.Key, []byte{1, 0, 0}), "%q is of another unit than the first", c.Key)
			}
			r.restoring(topology, append(opts, processor.StateDir(t.TempDir()))...)
			require.GreaterOrEqual(t, count(outputs+1), before)
		})
	}
}
