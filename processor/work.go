package processor

import (
	"errors"
	"fmt"
	"strconv"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/lacunamq/lacuna/statestore"
)

// fatalError ends the App.
type fatalError struct{ err error }

func (e *fatalError) Error() string { return e.err.Error() }
func (e *fatalError) Unwrap() error { return e.err }

// workError says what a processor could not do: with a record, or in a punctuation.
type workError struct {
	record *kgo.Record // nil: a punctuation
	before int         // records of the unit that went well
	err    error
}

func (e *workError) Error() string {
	if e.record == nil {
		return fmt.Sprintf("punctuate: %v", e.err)
	}
	return fmt.Sprintf("process %s[%d] offset %d: %v", e.record.Topic, e.record.Partition, e.record.Offset, e.err)
}

func (e *workError) Unwrap() error { return e.err }

// unit is some work and the commit that ends it.
type unit struct {
	acks     acks
	at       []int // used of each batch in the queue, before
	records  int
	replayed int
	held     map[*batch]bool // waits for a record to be committed
	// offsets is where the state is in the inputs when the unit is committed.
	offsets []statestore.Offset
}

// process is a unit of work of records that are queued.
func (t *task) process() {
	u := unit{acks: make(acks), at: t.used(), held: make(map[*batch]bool)}
	limit := t.app.cfg.unitRecords
	if t.failed.alone > 0 {
		limit = t.failed.alone
	} else if t.failed.record != nil {
		limit = 1
	}
	err := t.do(&u, func() (acks, error) {
		if err := t.processRecords(&u, limit); err != nil {
			return nil, err
		}
		t.noteOffsets(&u)
		return u.acks, nil
	})
	if err == nil {
		err = t.commitState(&u)
	}
	if err != nil {
		t.failedUnit(&u, err)
		return
	}
	t.succeeded(&u)
}

// do does some work whose processors emit to the outlet. What it changes in the state goes to
// the changelog, if there is one, beside what is emitted.
func (t *task) do(u *unit, work func() (acks, error)) error {
	defer func() { t.chain.emit = nil }()
	if t.log != nil {
		t.log.changes.begin()
	}
	err := t.app.outlet.do(t.ctx, func(send func(*kgo.Record) error) (acks, error) {
		t.emitted = false
		emit := func(r *kgo.Record) error {
			t.emitted = true
			return send(r)
		}
		t.chain.emit = emit
		done, err := work()
		if err == nil && t.log != nil {
			err = t.log.emit(u.offsets, emit)
		}
		if err == nil && len(done) == 0 {
			done = t.fence(done)
		}
		return done, err
	})
	if err != nil && t.log != nil {
		t.log.changes.abandon()
	}
	return err
}

// fence adds to what acknowledges nothing that it does so, which a transaction is aborted for if the group does not have the
// member any more: what it emits without an acknowledgement is another's to emit then.
func (t *task) fence(nothing acks) acks {
	if !t.app.cfg.exactlyOnce || !t.emitted {
		return nothing
	}
	for _, f := range t.feeds {
		return acks{f: {f.tps[0]: nil}}
	}
	return nothing
}

// partitionOf is where a record is from.
func partitionOf(r *kgo.Record) client.TopicPartition {
	return client.TopicPartition{Topic: r.Topic, Partition: r.Partition}
}

// processRecords works through the queue, up to so many records.
func (t *task) processRecords(u *unit, limit int) error {
	for _, b := range t.queue {
		for b.used < len(b.records) {
			if u.records+u.replayed >= limit {
				return nil
			}
			r := b.records[b.used]
			committed := t.app.topology.Ack == AckAtProcess && b.feed.reader.IsCommitted(partitionOf(r), r.Offset)
			if !b.own && !committed {
				u.held[b] = true
				break
			}
			if committed && t.log != nil {
				b.used++ // who committed it has its changes in the changelog, or wanted none
				continue
			}
			if err := t.processRecord(b, r, committed, u); err != nil {
				return &workError{record: r, before: u.records + u.replayed, err: err}
			}
			b.used++
			if t.chain.commitRequested && t.app.topology.Ack == AckAtProcess {
				t.chain.commitRequested = false
				return nil
			}
		}
	}
	return nil
}

func (t *task) processRecord(b *batch, r *kgo.Record, committed bool, u *unit) error {
	if t.failed.skip && t.failed.record == r {
		u.records++
		u.acks.add(b.feed, r)
		if t.app.cfg.deadLetters == "" {
			return nil
		}
		return t.chain.emit(deadLetter(t.app.cfg.deadLetters, r))
	}
	t.state.unit = t.group.Unit(r.Topic, r.Partition, keyfilter.Slot(r.Key, r.Offset))
	defer func() { t.state.unit = -1 }()
	streamTime := t.chain.streamTime
	if err := t.chain.process(r, committed); err != nil {
		return err
	}
	switch {
	case committed:
		t.chain.schedules.skip(streamTime, t.chain.streamTime)
		u.replayed++
	case t.app.topology.Ack == AckOnPunctuate:
		u.records++
	default:
		u.records++
		u.acks.add(b.feed, r)
		b.feed.live(partitionOf(r))
	}
	return nil
}

// deadLetter is the record to leave for people, with where it comes from in its headers.
func deadLetter(topic string, r *kgo.Record) *kgo.Record {
	headers := append([]kgo.RecordHeader(nil), r.Headers...)
	for _, h := range []struct{ key, value string }{
		{"lacuna.input.topic", r.Topic}, {"lacuna.input.partition", strconv.Itoa(int(r.Partition))}, {"lacuna.input.offset", strconv.FormatInt(r.Offset, 10)},
	} {
		headers = append(headers, kgo.RecordHeader{Key: h.key, Value: []byte(h.value)})
	}
	return &kgo.Record{Topic: topic, Key: r.Key, Value: r.Value, Headers: headers, Timestamp: r.Timestamp}
}

// noteOffsets notes where the state is in the inputs. Of a scratch one that is in the ledger,
// but that it has taken in a stage it has to know.
func (t *task) noteOffsets(u *unit) {
	for i, b := range t.queue {
		if t.app.topology.Ack == AckAtProcess || b.ended() {
			u.offsets = t.offsetsOf(u.offsets, b, u.at[i])
		}
	}
}

// commitState commits the state with the offsets that it has taken in.
func (t *task) commitState(u *unit) error {
	if t.log != nil {
		u.offsets = t.log.reached(u.offsets)
	}
	if err := t.keepStreamTime(); err != nil {
		return fmt.Errorf("bucket %d: keep its stream time: %w", t.bucket, err)
	}
	if err := t.store.Commit(u.offsets...); err != nil {
		return fmt.Errorf("bucket %d: commit its state: %w", t.bucket, err)
	}
	if t.log != nil {
		t.log.changes.end()
	}
	return nil
}

// offsetsOf appends where the state is in what a batch has brought.
func (t *task) offsetsOf(offsets []statestore.Offset, b *batch, before int) []statestore.Offset {
	add := func(tp client.TopicPartition, next int64) {
		// What was reopened comes again from below, and is no step back. What stands still is not
		// said again: behind the end of a stage another feed may have come further.
		at, told := b.feed.taken[tp]
		if told && next <= at {
			return
		}
		next = max(next, b.feed.began[tp])
		b.feed.taken[tp] = next
		offsets = append(offsets, statestore.Offset{Next: next, Source: t.app.source(tp, b.feed.spec.slots)})
	}
	if b.used == len(b.records) {
		for tp, next := range b.next {
			add(tp, next)
		}
		return offsets
	}
	last := make(map[client.TopicPartition]int64)
	for _, r := range b.records[before:b.used] {
		last[partitionOf(r)] = r.Offset + 1
	}
	for tp, next := range last {
		add(tp, next)
	}
	return offsets
}

// succeeded goes on behind a unit.
func (t *task) succeeded(u *unit) {
	t.tries = 0
	if t.unseen = true; t.app.cfg.now().Sub(t.looked) > time.Second {
		t.lookAtStore()
	}
	if t.failed.alone > 0 {
		t.failed.alone = 0 // the one that failed is next
	} else if u.records+u.replayed > 0 {
		t.failed = failing{}
	}
	if t.app.topology.Ack == AckOnPunctuate {
		t.keepOpen(u)
	}
	left := t.queue[:0]
	var ended []*feed
	for _, b := range t.queue {
		if b.used < len(b.records) && !u.held[b] {
			left = append(left, b)
			continue
		}
		if b.ended() {
			ended = append(ended, b.feed)
		}
		b.feed.verdicts <- b.used
	}
	clear(t.queue[len(left):])
	t.queue = left
	if len(ended) > 0 {
		t.nextStage(ended)
	}
	if t.app.cfg.hooks.Committed != nil && u.records+u.replayed > 0 {
		t.app.cfg.hooks.Committed(t.bucket, u.records, u.replayed)
	}
}

// keepOpen notes what a scratch store has taken in and no punctuation has emitted.
func (t *task) keepOpen(u *unit) {
	for i, b := range t.queue {
		for _, r := range b.records[u.at[i]:b.used] {
			if !u.acks.has(b.feed, r) {
				t.open.add(b.feed, r)
			}
		}
	}
}

func (a acks) has(f *feed, r *kgo.Record) bool {
	for _, run := range a[f][partitionOf(r)] {
		if run.Start <= r.Offset && r.Offset < run.End {
			return true
		}
	}
	return false
}

// failedUnit undoes a unit. An error of a processor goes to the policy; any other is of the
// network or the disk, and the task begins anew from its last commit.
func (t *task) failedUnit(u *unit, err error) {
	var work *workError
	if !errors.As(err, &work) || t.ctx.Err() != nil {
		t.restart(err)
		return
	}
	t.chain.commitRequested = false
	if err := t.store.Rollback(); err != nil {
		t.restart(&fatalError{fmt.Errorf("bucket %d: roll its state back: %w", t.bucket, err)})
		return
	}
	if t.log != nil {
		t.log.changes.end()
	}
	for i, b := range t.queue {
		b.used = u.at[i]
	}
	if errors.Is(work.err, statestore.ErrUncommittedFull) && work.before > 0 {
		t.failed = failing{alone: work.before}
		return
	}
	t.decide(work)
	t.failed.alone = work.before
}

// decide asks the policy what becomes of what failed.
func (t *task) decide(work *workError) {
	if t.failed.record != work.record {
		t.failed = failing{record: work.record}
	}
	t.failed.failures++
	d := t.app.cfg.onError(work.record, work.err, t.failed.failures)
	switch {
	case d.action == retry:
		t.app.report(fmt.Errorf("bucket %d: %w", t.bucket, work))
		t.failed.again = t.app.cfg.now().Add(d.after)
	case d.action == skip && work.record != nil:
		t.app.report(fmt.Errorf("bucket %d: %w", t.bucket, work))
		t.failed.skip = true
	default:
		t.restart(&fatalError{fmt.Errorf("bucket %d: %w", t.bucket, work)})
	}
}

// punctuate is a unit of work of a punctuation.
func (t *task) punctuate(s *schedule) {
	at, now := s.next, t.app.cfg.now()
	t.chain.commitRequested = false
	visible := t.state.visible
	t.state.visible = t.want.active
	u := unit{at: t.used()}
	err := t.do(&u, func() (acks, error) {
		if err := s.punctuate(at); err != nil {
			return nil, &workError{err: err}
		}
		if t.chain.commitRequested && t.app.topology.Ack == AckOnPunctuate {
			return t.open, nil
		}
		return nil, nil
	})
	t.state.visible = visible
	requested := t.chain.commitRequested
	t.chain.commitRequested = false
	if err == nil {
		s.passed(now, t.chain.streamTime)
		err = t.commitState(&u)
	}
	if err != nil {
		t.failedUnit(&u, err)
		return
	}
	t.failed, t.tries = failing{}, 0
	if requested && t.app.topology.Ack == AckOnPunctuate {
		t.open = make(acks)
	}
}

// used is how far the queue is used.
func (t *task) used() (at []int) {
	for _, b := range t.queue {
		at = append(at, b.used)
	}
	return at
}
