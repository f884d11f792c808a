package processor

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Context is what a [Processor] has of its task. It is used in the calls of the Processor
// and its punctuations only, never from another goroutine.
type Context struct {
	chain  *chain
	at     int // of the node in the topology
	stores map[string]*Store
}

// Store is a store that the node names.
func (c *Context) Store(name string) (*Store, error) {
	if s := c.stores[name]; s != nil {
		return s, nil
	}
	node := &c.chain.topology.Processors[c.at]
	if !slices.Contains(node.Stores, name) {
		return nil, fmt.Errorf("processor %s does not name the store %q", node.Name, name)
	}
	s := &Store{state: c.chain.state, name: name, prefix: append([]byte(name), 0)}
	c.stores[name] = s
	return s, nil
}

// Forward hands a record to the next processor, or from the last one to a sink: to the topic
// that the record names, which must be one of the topology's Sinks, or without one to the
// only sink. The record and what it points to are the runtime's from then on.
//
// A record that was processed before, by whoever had its key, is processed silently, and what
// it forwards goes nowhere.
func (c *Context) Forward(r *kgo.Record) error {
	return c.chain.forward(c.at, r)
}

// Clock is what a punctuation goes by.
type Clock int8

const (
	// WallClock is the time of this machine.
	WallClock Clock = iota
	// StreamTime is the highest timestamp of the records that the task has processed: it
	// stands still when there are none. A durable state keeps it. With AckOnPunctuate it begins
	// anew, with the records that are open, when the task does.
	StreamTime
)

// Schedule has punctuate called at every whole multiple of the interval since 1970, by one
// clock or the other; if several have passed, once. A state that only follows what others
// have processed is not punctuated. Schedule returns what ends that. An error of
// punctuate goes to the [ErrorPolicy]; what it has put into stores and forwarded is undone.
func (c *Context) Schedule(every time.Duration, by Clock, punctuate func(at time.Time) error) (cancel func(), err error) {
	if every < time.Millisecond {
		return nil, fmt.Errorf("the interval %v of a punctuation is below a millisecond", every)
	}
	if punctuate == nil {
		return nil, errors.New("a punctuation without a function")
	}
	return c.chain.schedules.add(every, by, punctuate, c.chain.now(), c.chain.streamTime), nil
}

// RequestCommit asks that what was done so far is committed soon: with [AckAtProcess] after
// the record that is processed. With [AckOnPunctuate] it is asked for by a punctuation, and says
// that everything processed before has been emitted: it is acknowledged when the sink has
// confirmed that. In Process it means nothing then.
func (c *Context) RequestCommit() { c.chain.commitRequested = true }

// Now is the time that punctuations by wall clock go by.
func (c *Context) Now() time.Time { return c.chain.now() }

// StreamTime is the highest timestamp of the records that the task has processed, zero
// before the first.
func (c *Context) StreamTime() time.Time { return c.chain.streamTime }

// Input is the record of an input topic that is being processed, for its topic, partition,
// offset, headers and timestamp; nil in a punctuation.
func (c *Context) Input() *kgo.Record { return c.chain.input }

// Replaying tells that the record was processed before: stores are to follow, and what is
// forwarded goes nowhere. What is done outside of stores and sinks may be left out.
func (c *Context) Replaying() bool { return c.chain.silent }

// Bucket is the number of the task.
func (c *Context) Bucket() int32 { return c.chain.bucket }
