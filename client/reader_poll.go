package client

import (
	"context"
	"errors"

	"github.com/twmb/franz-go/pkg/kgo"
)

// chunk is what one fetch brought of one partition: all that the Reader may want of the
// offsets from one to another.
type chunk struct {
	source     *source
	partition  *partition
	generation int
	next       int64 // one past the last offset that it covers
	records    []*kgo.Record
}

// Poll returns the records that were fetched since the last call, at least one, and waits
// for them until ctx ends. Those of a partition are in offset order. Records whose offsets
// are known to be committed are left out.
//
// An error concerns one partition ([PartitionError]), or commits that nobody waited for;
// the Reader goes on, and so may the caller. [ErrClosed] is the end. If ctx ends first its
// error is returned, together with what kept the Reader from fetching, if anything did.
func (r *Reader) Poll(ctx context.Context) ([]*kgo.Record, error) {
	for {
		records, changed, err := r.poll()
		if len(records) > 0 || err != nil {
			return records, err
		}
		select {
		case <-changed:
		case <-ctx.Done():
			r.mu.Lock()
			defer r.mu.Unlock()
			return nil, errors.Join(context.Cause(ctx), r.mu.trouble)
		}
	}
}

// poll takes what there is. Without records and error, changed is closed when it is worth
// to look again.
func (r *Reader) poll() (records []*kgo.Record, changed <-chan struct{}, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	switch {
	case r.mu.closed:
		return nil, nil, ErrClosed
	case len(r.mu.errs) > 0:
		err, r.mu.errs = r.mu.errs[0], r.mu.errs[1:]
		return nil, nil, err
	}
	for _, c := range r.mu.ready {
		records = r.deliverLocked(records, c)
	}
	clear(r.mu.ready)
	r.mu.ready = r.mu.ready[:0]
	return records, r.mu.changed, nil
}

// deliverLocked appends what is wanted of a chunk, and lets its source fetch on.
func (r *Reader) deliverLocked(records []*kgo.Record, c *chunk) []*kgo.Record {
	if c.source.buffered--; c.source.buffered == 0 {
		c.source.signal()
	}
	p := c.partition
	p.buffered--
	if c.generation != p.generation || p.broken != nil {
		return records
	}
	for _, record := range c.records {
		if p.wants(record.Offset) {
			records = append(records, record)
		}
	}
	p.delivered(c.next)
	return records
}

// Redeliver delivers records once more, unless they are committed by now: for a caller
// that could not handle them and has not kept them. Offsets that the log no longer holds
// do not come.
func (r *Reader) Redeliver(records ...*kgo.Record) error {
	return r.redeliver(runsOf(records))
}

func (r *Reader) redeliver(runs map[TopicPartition][]Run) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for tp, runs := range runs {
		p, err := r.partitionLocked(tp)
		if err != nil {
			return err
		}
		var open []Run
		for _, run := range join(runs) {
			open = appendOthers(open, &p.closed, run)
		}
		p.redeliver(open)
		r.wakeSourceLocked(p)
	}
	return nil
}

// RedeliverOpen reads the ledger and delivers once more every record of the Reader's slots
// that was delivered and is not committed, also by another Reader before. It does not wait
// for them to be polled.
func (r *Reader) RedeliverOpen(ctx context.Context) error {
	if r.cfg.group == "" {
		return ErrNoGroup
	}
	return r.upkeep.refreshNow(ctx, true)
}

// Refresh reads the ledger at once instead of waiting for the refresh interval.
func (r *Reader) Refresh(ctx context.Context) error {
	if r.cfg.group == "" {
		return ErrNoGroup
	}
	return r.upkeep.refreshNow(ctx, false)
}

// partitionLocked is a partition that the Reader reads.
func (r *Reader) partitionLocked(tp TopicPartition) (*partition, error) {
	fail := func(err error) (*partition, error) {
		return nil, &PartitionError{Topic: tp.Topic, Partition: tp.Partition, Group: r.cfg.group, Doing: "use", Err: err}
	}
	if r.mu.closed {
		return fail(ErrClosed)
	}
	p := r.mu.partitions[tp]
	if p == nil {
		return fail(ErrNotAssigned)
	}
	if errors.Is(p.broken, ErrTopicRecreated) {
		return fail(p.broken)
	}
	return p, nil
}

// runsOf collects the offsets of records by partition.
func runsOf(records []*kgo.Record) map[TopicPartition][]Run {
	runs := make(map[TopicPartition][]Run, 1)
	for _, record := range records {
		tp := TopicPartition{record.Topic, record.Partition}
		runs[tp] = appendRuns(runs[tp], []Run{{Start: record.Offset, End: record.Offset + 1}})
	}
	return runs
}
