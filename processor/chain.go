package processor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// chain is the processors of a task in a row, with what a call of them goes by.
type chain struct {
	topology  *Topology
	bucket    int32
	now       func() time.Time
	state     *state
	nodes     []Processor
	schedules schedules

	streamTime      time.Time
	input           *kgo.Record
	silent          bool
	commitRequested bool
	// emit takes what goes to a sink.
	emit func(r *kgo.Record) error
}

// newChain makes the processors and initialises them.
func newChain(t *Topology, bucket int32, s *state, now func() time.Time) (*chain, error) {
	c := &chain{topology: t, bucket: bucket, state: s, now: now}
	if err := c.restoreStreamTime(); err != nil {
		return nil, fmt.Errorf("read the stream time of bucket %d: %w", bucket, err)
	}
	for i := range t.Processors {
		node := t.Processors[i].New()
		c.nodes = append(c.nodes, node)
		if err := node.Init(&Context{chain: c, at: i, stores: make(map[string]*Store)}); err != nil {
			return nil, errors.Join(fmt.Errorf("init processor %s of bucket %d: %w", t.Processors[i].Name, bucket, err), c.close())
		}
	}
	return c, nil
}

// process has a record of an input processed. What a silent one forwards to a sink goes
// nowhere.
func (c *chain) process(r *kgo.Record, silent bool) error {
	if r.Timestamp.After(c.streamTime) {
		c.streamTime = r.Timestamp
		c.schedules.begin(c.streamTime)
	}
	c.input, c.silent = r, silent
	defer func() { c.input, c.silent = nil, false }()
	return c.nodes[0].Process(r)
}

// forward hands a record from one node to the next.
func (c *chain) forward(from int, r *kgo.Record) error {
	if next := from + 1; next < len(c.nodes) {
		return c.nodes[next].Process(r)
	}
	if r.Topic == "" && len(c.topology.Sinks) == 1 {
		r.Topic = c.topology.Sinks[0]
	}
	if !slices.Contains(c.topology.Sinks, r.Topic) {
		return fmt.Errorf("processor %s forwards to %q, which is not a sink of the topology", c.topology.Processors[from].Name, r.Topic)
	}
	if c.silent {
		return nil
	}
	return c.emit(r)
}

// close closes the processors, the last one first.
func (c *chain) close() error {
	var errs []error
	for i := len(c.nodes) - 1; i >= 0; i-- {
		if err := c.nodes[i].Close(); err != nil {
			errs = append(errs, fmt.Errorf("close processor %s of bucket %d: %w", c.topology.Processors[i].Name, c.bucket, err))
		}
	}
	c.nodes = nil
	return errors.Join(errs...)
}
