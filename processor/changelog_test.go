package processor_test

import (
	"context"
	"fmt"
	"strconv"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
)

// restores counts what an App reads of its changelog.
type restores struct {
	mu   sync.Mutex
	told int // how often something was restored
	read int
}

func (c *restores) hook(_ int32, records int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.told, c.read = c.told+1, c.read+records
}

func (c *restores) counts() (told, read int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.told, c.read
}

// restoring opens an App with a changelog, and counts what it reads of that.
func (r *rig) restoring(topology processor.Topology, opts ...processor.Option) (*processor.App, *restores) {
	r.t.Helper()
	c := new(restores)
	a := r.open(topology, append([]processor.Option{processor.Changelog("job-changelog"), processor.OnEvents(processor.Hooks{
		Failed:    func(err error) { r.t.Log("failed:", err) },
		Restarted: func(bucket int32, err error) { r.t.Log("restarted:", bucket, err) },
		Restored:  c.hook,
	})}, opts...)...)
	return a, c
}

// forget deletes the records of the input below an offset of each partition: -1, all.
func (r *rig) forget(below int64) {
	r.t.Helper()
	adm := kadm.NewClient(r.kafka)
	ends, err := adm.ListEndOffsets(r.t.Context(), "in")
	require.NoError(r.t, err)
	offsets := make(kadm.Offsets)
	ends.Each(func(o kadm.ListedOffset) {
		at := o.Offset
		if below >= 0 {
			at = below
		}
		offsets.AddOffset("in", o.Partition, at, -1)
	})
	deleted, err := adm.DeleteRecords(r.t.Context(), offsets)
	require.NoError(r.t, err)
	require.NoError(r.t, deleted.Error())
}

// guarantees are both kinds of delivery.
var guarantees = map[string][]processor.Option{"at least once": nil, "exactly once": {processor.ExactlyOnce()}}

// A state that is lost comes back from the changelog when the input is gone.
func TestChangelogRestores(t *testing.T) {
	for name, opts := range guarantees {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 2)
			r.produce(1000, 50)
			c := new(counting)
			a, _ := r.restoring(c.topology(), append(opts, processor.StateDir(t.TempDir()), processor.UnitRecords(100))...)
			r.requireCounts(r.output(1000))
			require.NoError(t, a.Close(context.Background()))

			r.forget(-1)
			r.produce(500, 50)
			a, read := r.restoring(c.topology(), append(opts, processor.StateDir(t.TempDir()))...)
			r.requireCounts(r.output(1500))
			_, n := read.counts()
			require.GreaterOrEqual(t, n, 50)
			c.check(t)
			require.Zero(t, c.silently, "nothing is processed twice")
			require.NoError(t, a.Close(context.Background()))
		})
	}
}

// A state reads its changelog on from its own offset.
func TestChangelogIsReadOnFrom(t *testing.T) {
	for name, opts := range guarantees {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.produce(1000, 50)
			c := new(counting)
			opts := append(opts, processor.StateDir(t.TempDir()))
			a, _ := r.restoring(c.topology(), opts...)
			r.output(1000)
			require.NoError(t, a.Close(context.Background()))
			r.produce(10, 50)
			_, read := r.restoring(c.topology(), opts...)
			r.requireCounts(r.output(1010))
			told, n := read.counts()
			require.Equal(t, 1, told)
			require.Zero(t, n)
			c.check(t)
		})
	}
}

// naming gives each key a number that nobody could tell before, and says it with each record.
type naming struct {
	counting
	next int
}

func (n *naming) topology() processor.Topology {
	return processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"}, Processors: []processor.Node{{
		Name: "name", Stores: []string{"names", "counts"}, New: processor.ProcessFunc(n.process)}}}
}

func (n *naming) process(c *processor.Context, r *kgo.Record) error {
	names, err := c.Store("names")
	if err != nil {
		return err
	}
	name, ok, err := names.Get(r.Key)
	if err != nil {
		return err
	}
	if !ok {
		n.mu.Lock()
		n.next++
		name = strconv.AppendInt(nil, int64(n.next), 10)
		n.mu.Unlock()
		if err := names.Put(r.Key, name); err != nil {
			return err
		}
	}
	return c.Forward(&kgo.Record{Key: r.Key, Value: name})
}

// requireNames checks that each key has one name, and each name one key.
func (r *rig) requireNames(out []*kgo.Record) {
	r.t.Helper()
	names, keys := make(map[string]string), make(map[string]string)
	for _, o := range out {
		key, name := string(o.Key), string(o.Value)
		if names[key] == "" {
			names[key] = name
			require.Empty(r.t, keys[name], "two keys with the name %s", name)
			keys[name] = key
		}
		require.Equal(r.t, names[key], name, "key %s", key)
	}
	require.Len(r.t, names, len(r.values))
}

// Members that come are given what the ones before have made, also where nobody could make it
// again.
func TestChangelogGrows(t *testing.T) {
	for name, opts := range guarantees {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			n := new(naming)
			produced := 0
			for i := range 3 {
				r.produce(1000, 100+50*i)
				produced += 1000
				a, _ := r.restoring(n.topology(), append(opts, processor.StateDir(t.TempDir()), processor.Name(fmt.Sprint("w", i)))...)
				r.active(a)
				r.output(produced)
				r.forget(-1)
			}
			r.produce(1000, 200)
			r.requireNames(r.output(produced + 1000))
		})
	}
}
