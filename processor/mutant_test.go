package processor

import (
	"context"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
)

// Mutant makes an App one that does a thing wrong, which the tests that kill processors have
// to notice.
type Mutant struct {
	Name string
	// do runs a unit in place of the right outlet's.
	do func(m *mutated, ctx context.Context, work unitWork) error
}

type unitWork func(emit func(*kgo.Record) error) (acks, error)

// Option is for Open.
func (m Mutant) Option() Option {
	return func(c *config) {
		c.outlet = func(a *App, right outlet) outlet { return &mutated{App: a, right: right, mutant: m} }
	}
}

// mutated is the outlet of a Mutant.
type mutated struct {
	*App
	right  outlet
	mutant Mutant
}

func (m *mutated) do(ctx context.Context, work func(emit func(*kgo.Record) error) (acks, error)) error {
	return m.mutant.do(m, ctx, work)
}

// taskOf is the task that has a unit run.
func (m *mutated) taskOf(ctx context.Context) *task {
	for _, t := range m.allTasks() {
		if t.ctx == ctx {
			return t
		}
	}
	return nil
}

// commit acknowledges outside of any transaction.
func (m *mutated) commit(ctx context.Context, done acks) error {
	return done.each(func(r *client.Reader, tp client.TopicPartition, runs []client.Run) error {
		return r.CommitRuns(ctx, tp.Topic, tp.Partition, runs...)
	})
}

// hold has work done, and keeps what it emits.
func (work unitWork) hold() (emitted []*kgo.Record, done acks, err error) {
	done, err = work(func(r *kgo.Record) error {
		emitted = append(emitted, r)
		return nil
	})
	return emitted, done, err
}

// emit has records emitted, and what is given acknowledged.
func emitAll(emitted []*kgo.Record, done acks) unitWork {
	return func(emit func(*kgo.Record) error) (acks, error) {
		for _, r := range emitted {
			if err := emit(r); err != nil {
				return nil, err
			}
		}
		return done, nil
	}
}

// AckWhenProcessed acknowledges with AckOnPunctuate what was processed, before a punctuation
// has emitted it.
var AckWhenProcessed = Mutant{"acknowledge before the punctuation", func(m *mutated, ctx context.Context, work unitWork) error {
	t := m.taskOf(ctx)
	if t == nil {
		return m.right.do(ctx, work)
	}
	at, early := t.used(), make(acks)
	t.open = make(acks) // it was acknowledged
	return m.right.do(ctx, func(emit func(*kgo.Record) error) (acks, error) {
		done, err := work(emit)
		for i, b := range t.queue {
			for _, r := range b.records[at[i]:b.used] {
				early.add(b.feed, r)
			}
		}
		if len(early) > 0 { // else it is a punctuation
			done = early
		}
		return done, err
	})
}}

// StoreFirst commits the store before the ledger has answered.
var StoreFirst = Mutant{"commit the store before the ledger", func(m *mutated, ctx context.Context, work unitWork) error {
	t := m.taskOf(ctx)
	if t == nil {
		return m.right.do(ctx, work)
	}
	u := unit{at: t.used()}
	return m.right.do(ctx, func(emit func(*kgo.Record) error) (acks, error) {
		done, err := work(emit)
		if err == nil {
			t.noteOffsets(&u)
			err = t.commitState(&u)
		}
		return done, err
	})
}}

// EmitOutside emits outside of the transaction that acknowledges.
var EmitOutside = Mutant{"emit outside of the transaction", func(m *mutated, ctx context.Context, work unitWork) error {
	emitted, done, err := work.hold()
	if err != nil {
		return err
	}
	if err := (plain{m.kafka}).do(ctx, emitAll(emitted, nil)); err != nil {
		return err
	}
	return m.right.do(ctx, emitAll(nil, done))
}}

// AckFirst acknowledges before anything is emitted.
var AckFirst = Mutant{"acknowledge before emitting", func(m *mutated, ctx context.Context, work unitWork) error {
	emitted, done, err := work.hold()
	if err != nil {
		return err
	}
	if err := m.commit(ctx, done); err != nil {
		return err
	}
	return m.right.do(ctx, emitAll(emitted, nil))
}}

// AckAfter acknowledges when the transaction of what was emitted has ended.
var AckAfter = Mutant{"acknowledge after the transaction", func(m *mutated, ctx context.Context, work unitWork) error {
	emitted, done, err := work.hold()
	if err != nil {
		return err
	}
	if err := m.right.do(ctx, emitAll(emitted, nil)); err != nil {
		return err
	}
	return m.commit(ctx, done)
}}
