package processor

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// Ack is when a record is acknowledged.
type Ack int8

const (
	// AckAtProcess acknowledges a record when it was processed; stores are durable.
	AckAtProcess Ack = iota
	// AckOnPunctuate acknowledges records when a punctuation has emitted what became of
	// them; stores are scratch.
	AckOnPunctuate
)

// String is the name of the mode as people write it.
func (a Ack) String() string {
	if a == AckOnPunctuate {
		return "ack on punctuate"
	}
	return "ack at process"
}

// Topology is what the members of a group run. All of them must have the same.
type Topology struct {
	// Inputs are the topics to read. Those that are to meet in a task, by key, need the same
	// number of partitions and the same partitioner.
	Inputs []string
	// Processors run in a row: what one forwards the next one processes, and what the last
	// one forwards goes to a sink.
	Processors []Node
	// Sinks are the topics that may be forwarded to. With one, records need not name it.
	Sinks []string
	// Ack says when a record is done.
	Ack Ack
}

// Node is one processor of a topology.
type Node struct {
	// Name is for errors and metrics; unique in the topology.
	Name string
	// New makes the Processor of a task.
	New func() Processor
	// Stores are those that the processor uses. A store may be named by several.
	Stores []string
}

// validate finds what is wrong with a topology.
func (t *Topology) validate() error {
	switch {
	case len(t.Inputs) == 0:
		return errors.New("a topology needs at least one input topic")
	case len(t.Processors) == 0:
		return errors.New("a topology needs at least one processor")
	}
	for i, name := range t.Inputs {
		if name == "" || slices.Contains(t.Inputs[:i], name) {
			return fmt.Errorf("input topic %q is empty or named twice", name)
		}
	}
	for i := range t.Processors {
		n := &t.Processors[i]
		if n.Name == "" || slices.ContainsFunc(t.Processors[:i], func(o Node) bool { return o.Name == n.Name }) {
			return fmt.Errorf("processor name %q is empty or there twice", n.Name)
		}
		if n.New == nil {
			return fmt.Errorf("processor %s has no New", n.Name)
		}
		for _, store := range n.Stores {
			if store == "" || strings.ContainsRune(store, 0) {
				return fmt.Errorf("processor %s: store name %q is empty or has a zero byte", n.Name, store)
			}
		}
	}
	return nil
}
