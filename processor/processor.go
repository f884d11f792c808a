package processor

import (
	"github.com/twmb/franz-go/pkg/kgo"
)

// Processor handles the records of one task, one call at a time.
//
// State that matters belongs in stores, which the runtime takes back to what was committed
// when a unit of work fails; fields of a Processor stay as they are then.
type Processor interface {
	// Init is called before the first record. c is the Processor's until Close.
	Init(c *Context) error
	// Process handles a record, which it may keep. An error goes to the topology's
	// [ErrorPolicy]; what the call has put into stores and forwarded is undone.
	//
	// With AckAtProcess, and without a changelog, it must be deterministic: the same records in the same order leave
	// the same in the stores. Order holds between records of the same key.
	Process(r *kgo.Record) error
	// Close is called when the task ends, also after a failure. Stores may not be used.
	Close() error
}

// ProcessFunc is a Processor without punctuation: a function of a record.
func ProcessFunc(process func(c *Context, r *kgo.Record) error) func() Processor {
	return func() Processor { return &processFunc{process: process} }
}

type processFunc struct {
	c       *Context
	process func(c *Context, r *kgo.Record) error
}

func (p *processFunc) Init(c *Context) error       { p.c = c; return nil }
func (p *processFunc) Process(r *kgo.Record) error { return p.process(p.c, r) }
func (p *processFunc) Close() error                { return nil }
