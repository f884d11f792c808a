package processor_test

import (
	"context"
	"errors"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
	"github.com/lacunamq/lacuna/processor/processortest"
)

// latest emits the latest record of each key, every so often: the processor of somebody who
// asked whether that can be fault tolerant without a changelog.
type latest struct {
	c     *processor.Context
	store *processor.Store
	every time.Duration
	by    processor.Clock
	gate  func() error // asked before a punctuation; may be nil
}

func (p *latest) Init(c *processor.Context) (err error) {
	p.c = c
	if p.store, err = c.Store("latest"); err != nil {
		return err
	}
	_, err = c.Schedule(p.every, p.by, p.punctuate)
	return err
}

func (p *latest) Process(r *kgo.Record) error { return p.store.Put(r.Key, r.Value) }

func (p *latest) punctuate(time.Time) error {
	if p.gate != nil {
		if err := p.gate(); err != nil {
			return err
		}
	}
	return processortest.Drain(p.c, p.store)
}

func (p *latest) Close() error { return nil }

func latestTopology(every time.Duration, gate func() error) processor.Topology {
	return processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"}, Ack: processor.AckOnPunctuate,
		Processors: []processor.Node{{Name: "latest", Stores: []string{"latest"}, New: func() processor.Processor {
			return &latest{every: every, gate: gate}
		}}}}
}

// committed is the stable offset of the group in the only partition of the input, 0
// or -1: none.
func (r *rig) committed() int64 {
	offsets, err := kadm.NewClient(r.kafka).FetchOffsets(r.t.Context(), "job")
	require.NoError(r.t, err)
	if o, ok := offsets.Lookup("in", 0); ok {
		return o.At
	}
	return -1
}

func TestNothingIsDoneBeforeItIsEmitted(t *testing.T) {
	for name, opts := range map[string][]processor.Option{"at least once": nil, "exactly once": {processor.ExactlyOnce()}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.produce(300, 10)
			seen := make(chan struct{}, 1)
			opts := append(opts, processor.Name("w1"))
			// It has processed all and never comes to a punctuation.
			events := processor.OnEvents(processor.Hooks{Committed: func(int32, int, int) {
				select {
				case seen <- struct{}{}:
				default:
				}
			}})
			a := r.open(latestTopology(1000*time.Hour, nil), append(opts, events)...)
			<-seen
			require.NoError(t, a.Close(context.Background()))
			require.LessOrEqual(t, r.committed(), int64(0), "at close")

			a = r.open(latestTopology(100*time.Millisecond, nil), opts...)
			latest := make(map[string]int)
			for _, o := range r.output(10) {
				n, err := strconv.Atoi(string(o.Value))
				require.NoError(t, err)
				latest[string(o.Key)] = n
			}
			require.Equal(t, r.values, latest)
			require.NoError(t, a.Close(context.Background()))
			require.EqualValues(t, 300, r.committed())
		})
	}
}

func TestPunctuationThatFails(t *testing.T) {
	r := newRig(t, 1)
	r.produce(100, 10)
	tries := 0
	gate := func() error {
		if tries++; tries < 3 {
			return errors.New("not now")
		}
		return nil
	}
	a := r.open(latestTopology(50*time.Millisecond, gate), processor.ExactlyOnce(),
		processor.OnError(processor.RetryThen(5, time.Millisecond, processor.Stop())))
	require.Len(t, r.output(10), 10)
	require.NoError(t, a.Close(context.Background()))
	require.EqualValues(t, 100, r.committed())
}

func TestRecordsThatFail(t *testing.T) {
	for name, opts := range map[string][]processor.Option{"at least once": nil, "exactly once": {processor.ExactlyOnce()}} {
		t.Run(name, func(t *testing.T) {
			r := newRig(t, 1)
			r.produce(100, 10)
			failures := 0
			process := func(c *processor.Context, rec *kgo.Record) error {
				// What a failed call has done is undone.
				n, err := processortest.Count(c, "counts", rec.Key)
				if err != nil {
					return err
				}
				if err := c.Forward(&kgo.Record{Key: rec.Key, Value: []byte(strconv.Itoa(n + 1))}); err != nil {
					return err
				}
				if string(rec.Key) == "key-3" && string(rec.Value) == "5" {
					failures++
					return errors.New("I do not like it")
				}
				return nil
			}
			topology := processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"}, Processors: []processor.Node{{
				Name: "count", Stores: []string{"counts"}, New: processor.ProcessFunc(process)}}}
			r.open(topology, append(opts, processor.StateDir(t.TempDir()), processor.DeadLetters("dead"),
				processor.OnError(processor.RetryThen(2, time.Millisecond, processor.Skip())))...)
			out := r.output(99)
			require.Equal(t, 3, failures)
			if len(opts) > 0 {
				r.values["key-3"]--
				r.requireCounts(out)
			}
		})
	}
}

func TestAnErrorStopsTheApp(t *testing.T) {
	r := newRig(t, 1)
	r.produce(10, 10)
	bad := errors.New("bad")
	a := r.open(processor.Topology{Inputs: []string{"in"}, Processors: []processor.Node{{Name: "fail",
		New: processor.ProcessFunc(func(*processor.Context, *kgo.Record) error { return bad })}}})
	<-a.Failed()
	require.ErrorIs(t, a.Err(), bad)
	require.ErrorContains(t, a.Err(), "in[0] offset 0")
	require.LessOrEqual(t, r.committed(), int64(0))
}

// ticking emits the time of each punctuation by stream time.
type ticking struct{ c *processor.Context }

func (p *ticking) Init(c *processor.Context) error {
	p.c = c
	_, err := c.Schedule(time.Second, processor.StreamTime, func(at time.Time) error {
		return c.Forward(&kgo.Record{Key: []byte("tick"), Value: []byte(at.UTC().Format(time.TimeOnly))})
	})
	return err
}

func (p *ticking) Process(*kgo.Record) error { return nil }
func (p *ticking) Close() error              { return nil }

// What was punctuated once is not again by a state that is built up anew.
func TestStreamTimePassesOnce(t *testing.T) {
	r := newRig(t, 1)
	topology := processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"},
		Processors: []processor.Node{{Name: "tick", New: func() processor.Processor { return new(ticking) }}}}
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	// One record a unit, so that no second goes by unseen.
	produce := func(from, to int) {
		for i := from; i < to; i++ {
			res := r.kafka.ProduceSync(t.Context(), &kgo.Record{Topic: "in", Key: []byte("k"), Timestamp: begin.Add(time.Duration(i) * 500 * time.Millisecond)})
			require.NoError(t, res.FirstErr())
		}
	}
	produce(0, 7)
	opts := func() []processor.Option {
		return []processor.Option{processor.StateDir(t.TempDir()), processor.ExactlyOnce(), processor.UnitRecords(1)}
	}
	a := r.open(topology, opts()...)
	r.output(3)
	require.NoError(t, a.Close(context.Background()))
	produce(7, 9)
	r.open(topology, opts()...)
	var ticks []string
	for _, o := range r.output(4) {
		ticks = append(ticks, string(o.Value))
	}
	require.Equal(t, []string{"12:00:01", "12:00:02", "12:00:03", "12:00:04"}, ticks)
}

func TestAFailedAppLeavesTheGroup(t *testing.T) {
	r := newRig(t, 1)
	r.produce(10, 10)
	fail := func(*processor.Context, *kgo.Record) error { return errors.New("bad") }
	a := r.open(processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"}, Processors: []processor.Node{{Name: "fail", New: processor.ProcessFunc(fail)}}})
	<-a.Failed()
	// Another one gets what it had, though it is not closed.
	c := new(counting)
	r.open(c.topology(), processor.StateDir(t.TempDir()))
	r.requireCounts(r.output(10))
}

// Stream time begins with the first record, not with the end of the unit that it is in.
func TestStreamTimeBeginsWithTheFirstRecord(t *testing.T) {
	r := newRig(t, 1)
	begin := time.Date(2026, 1, 1, 12, 0, 0, 0, time.UTC)
	for _, seconds := range []float64{0.5, 0.9, 3.5} {
		r.kafka.Produce(t.Context(), &kgo.Record{Topic: "in", Key: []byte("k"), Timestamp: begin.Add(time.Duration(seconds * float64(time.Second)))}, nil)
	}
	require.NoError(t, r.kafka.Flush(t.Context()))
	r.open(processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"},
		Processors: []processor.Node{{Name: "tick", New: func() processor.Processor { return new(ticking) }}}})
	require.Equal(t, "12:00:01", string(r.output(1)[0].Value))
}
