package processor_test

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/processor"
	"github.com/lacunamq/lacuna/processor/processortest"
)

// crashJob is what processors do while they are killed. Inputs have the versions of their key
// for values, from 1. Outputs are "version,version,...|sum" in both kinds: with AckAtProcess
// one for each input, with AckOnPunctuate one for those of a key that came since the last
// one, made by a punctuation. The sum is of all versions so far, in order, of the store.
type crashJob struct {
	ack  processor.Ack
	once bool
	// changelog: states are built up from one, not from the input.
	changelog bool
}

func (j crashJob) String() string {
	name := j.ack.String()
	if j.changelog {
		name += " with a changelog"
	}
	if j.once {
		return name + ", exactly once"
	}
	return name + ", at least once"
}

// topology is what the job runs. What is out of order is told.
func (j crashJob) topology(wrong func(string)) processor.Topology {
	t := processor.Topology{Inputs: []string{"in"}, Sinks: []string{"out"}, Ack: j.ack}
	if j.ack == processor.AckOnPunctuate {
		t.Processors = []processor.Node{{Name: "gather", Stores: []string{"gathered"}, New: func() processor.Processor { return new(gathering) }}}
		return t
	}
	t.Processors = []processor.Node{{Name: "sum", Stores: []string{"sums"}, New: processor.ProcessFunc(func(c *processor.Context, r *kgo.Record) error {
		return sumUp(c, r, wrong)
	})}}
	return t
}

// sumUp keeps of each key "version|sum", and emits that.
func sumUp(c *processor.Context, r *kgo.Record, wrong func(string)) error {
	sums, err := c.Store("sums")
	if err != nil {
		return err
	}
	before, _, err := sums.Get(r.Key)
	if err != nil {
		return err
	}
	last, sum, err := parseSum(before)
	if err != nil {
		return err
	}
	version, err := strconv.Atoi(string(r.Value))
	if err != nil {
		return err
	}
	if version != last+1 {
		wrong(fmt.Sprintf("version %d of %s at %d/%d is processed after %d (replaying: %v)", version, r.Key, r.Partition, r.Offset, last, c.Replaying()))
	}
	after := fmt.Appendf(nil, "%d|%d", version, addTo(sum, version))
	if err := sums.Put(r.Key, after); err != nil {
		return err
	}
	return c.Forward(&kgo.Record{Key: r.Key, Value: after})
}

// addTo adds a version to a sum, in which the order counts.
func addTo(sum uint32, version int) uint32 { return sum*31 + uint32(version) }

func parseSum(value []byte) (version int, sum uint32, err error) {
	if len(value) == 0 {
		return 0, 0, nil
	}
	_, err = fmt.Sscanf(string(value), "%d|%d", &version, &sum)
	return version, sum, err
}

// gathering keeps of each key the versions that came, and emits them every so often.
type gathering struct {
	c        *processor.Context
	gathered *processor.Store
}

func (p *gathering) Init(c *processor.Context) (err error) {
	p.c = c
	if p.gathered, err = c.Store("gathered"); err == nil {
		_, err = c.Schedule(5*time.Millisecond, processor.WallClock, func(time.Time) error { return processortest.Drain(p.c, p.gathered) })
	}
	return err
}

func (p *gathering) Process(r *kgo.Record) error {
	before, _, err := p.gathered.Get(r.Key)
	if err != nil {
		return err
	}
	return p.gathered.Put(r.Key, []byte(strings.TrimPrefix(string(before)+","+string(r.Value), ",")))
}

func (p *gathering) Close() error { return nil }

// emitted is what of the inputs the outputs tell of.
type emitted struct {
	job      crashJob
	versions map[string][]int // by key, in the order of the outputs
	distinct int
	last     map[string]int // the highest version of each key
	wrong    []error
}

func newEmitted(job crashJob) *emitted {
	return &emitted{job: job, versions: make(map[string][]int), last: make(map[string]int)}
}

// add takes an output in. Each version comes after those before it, exactly once or not.
func (e *emitted) add(o *kgo.Record) {
	list, sum, _ := strings.Cut(string(o.Value), "|")
	key := string(o.Key)
	for s := range strings.SplitSeq(list, ",") {
		version, err := strconv.Atoi(s)
		last := e.last[key]
		switch {
		case err != nil:
			e.wrong = append(e.wrong, fmt.Errorf("output %q of %s at %d", o.Value, key, o.Offset))
			return
		case version == last+1:
			e.last[key] = version
			e.distinct++
		case version > last:
			e.wrong = append(e.wrong, fmt.Errorf("version %d of %s at %d comes after %d: one is lost or late", version, key, o.Offset, last))
			e.last[key] = version
			e.distinct++
		case e.job.once:
			e.wrong = append(e.wrong, fmt.Errorf("version %d of %s at %d is emitted again after %d", version, key, o.Offset, last))
		}
		e.versions[key] = append(e.versions[key], version)
	}
	if e.job.ack == processor.AckOnPunctuate {
		return
	}
	want, version := uint32(0), e.versions[key][len(e.versions[key])-1]
	for v := range version {
		want = addTo(want, v+1)
	}
	if sum != strconv.FormatUint(uint64(want), 10) {
		e.wrong = append(e.wrong, fmt.Errorf("version %d of %s at %d has the sum %s, a single thread has %d", version, key, o.Offset, sum, want))
	}
}

// check is what all outputs lack, given how many versions of each key were produced.
func (e *emitted) check(produced map[string]int) error {
	var wrong []error
	for key, n := range produced {
		if e.last[key] != n {
			wrong = append(wrong, fmt.Errorf("the outputs of %s end at version %d, the inputs at %d", key, e.last[key], n))
		}
	}
	return errors.Join(wrong...)
}
