package client

import (
	"context"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
)

// Commit commits records, each on its own, and waits for the answer: when it returns nil
// they are committed durably and are not delivered again.
//
// Commits of all goroutines travel together, so many callers that each commit one record
// do as well as one that commits many. A broker that is away is waited for until ctx ends;
// then the commit may still happen.
func (r *Reader) Commit(ctx context.Context, records ...*kgo.Record) error {
	if err := r.checkLost(records); err != nil {
		return err
	}
	return r.commit(ctx, runsOf(records), true)
}

// CommitRuns is Commit for runs of offsets of one partition. Whether they hold records, or
// records of the Reader's slots, is the caller's affair.
func (r *Reader) CommitRuns(ctx context.Context, topic string, partition int32, runs ...Run) error {
	return r.commit(ctx, map[TopicPartition][]Run{{topic, partition}: append([]Run(nil), runs...)}, true)
}

// Enqueue is Commit without waiting for the answer, but for room in the queue. If the
// commit fails, Poll says so; [Reader.Flush] waits for everything enqueued.
func (r *Reader) Enqueue(ctx context.Context, records ...*kgo.Record) error {
	if err := r.checkLost(records); err != nil {
		return err
	}
	return r.commit(ctx, runsOf(records), false)
}

// EnqueueRuns is CommitRuns without waiting for the answer.
func (r *Reader) EnqueueRuns(ctx context.Context, topic string, partition int32, runs ...Run) error {
	return r.commit(ctx, map[TopicPartition][]Run{{topic, partition}: append([]Run(nil), runs...)}, false)
}

// Flush waits until everything that was enqueued before is answered.
func (r *Reader) Flush(ctx context.Context) error {
	if r.commits == nil {
		return ErrNoGroup
	}
	return r.commits.flush(ctx)
}

// checkLost refuses records that their log has lost: their offsets may hold others by now.
func (r *Reader) checkLost(records []*kgo.Record) error {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, record := range records {
		p := r.mu.partitions[TopicPartition{record.Topic, record.Partition}]
		if p != nil && p.lost.has(record.Offset, record.LeaderEpoch) {
			return r.commitError(p.tp, ErrTruncated)
		}
	}
	return nil
}

func (r *Reader) commitError(tp TopicPartition, err error) error {
	if r.cfg.as != nil && fenced(err) {
		err = &revokedError{err}
	}
	return &PartitionError{Topic: tp.Topic, Partition: tp.Partition, Group: r.cfg.group, Doing: "commit", Err: err}
}

// commit queues runs, which it keeps.
func (r *Reader) commit(ctx context.Context, runs map[TopicPartition][]Run, wait bool) error {
	if r.commits == nil {
		return ErrNoGroup
	}
	parts, err := r.closing(runs)
	if err != nil || len(parts) == 0 {
		return err
	}
	var t *ticket
	if wait {
		t = newTicket(len(parts))
	}
	if err := r.commits.add(ctx, parts, t); err != nil {
		for _, p := range parts {
			r.settled(p, State{}, err)
		}
		return err
	}
	if !wait {
		return nil
	}
	return r.commits.wait(ctx, t)
}

// closing checks runs and notes in the progress of their partitions that a commit of them
// is on its way.
func (r *Reader) closing(runs map[TopicPartition][]Run) ([]part, error) {
	parts := make([]part, 0, len(runs))
	for tp, runs := range runs {
		normal, err := normalize(runs)
		if err != nil {
			return nil, r.commitError(tp, err)
		}
		if len(normal) > 0 {
			parts = append(parts, part{tp: tp, runs: normal})
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, part := range parts {
		if _, err := r.partitionLocked(part.tp); err != nil {
			return nil, err
		}
	}
	for _, part := range parts {
		r.mu.partitions[part.tp].closing(part.runs)
	}
	return parts, nil
}

func newReaderCommitter(r *Reader) *committer {
	c := newCommitter()
	c.send, c.settled, c.failed = r.sendCommits, r.settled, r.commitFailed
	c.backoff, c.linger, c.maxRuns = r.cfg.backoff, r.cfg.commitLinger, r.cfg.maxQueuedRuns
	return c
}

// sendCommits sends one request with parts of several partitions, but for those that can
// not be committed any more.
func (r *Reader) sendCommits(ctx context.Context, parts []part) ([]changed, error) {
	out := make([]changed, len(parts))
	var changes []change
	var at []int // the part of each change
	r.mu.Lock()
	for i, part := range parts {
		out[i].tp = part.tp
		p := r.mu.partitions[part.tp]
		if err := p.commitable(part.runs); err != nil {
			out[i].err = r.commitError(part.tp, err)
			continue
		}
		changes = append(changes, change{tp: p.tp, id: p.id, offset: -1,
			individual: &protocol.IndividualOffsets{Commit: part.runs, Origin: p.origin}})
		at = append(at, i)
	}
	r.mu.Unlock()
	if len(changes) == 0 {
		return out, nil
	}
	answers, err := r.commitAs(ctx, changes)
	if err != nil {
		return nil, err
	}
	for i, answer := range answers {
		if answer.err != nil {
			answer.err = r.commitError(answer.tp, answer.err)
		}
		out[at[i]] = answer
	}
	return out, nil
}

// commitable tells why runs that were queued must not be sent, if they must not.
func (p *partition) commitable(runs []Run) error {
	if p.broken != nil {
		return p.broken
	}
	for _, r := range runs {
		// What a truncation lost is closed no more; records that came since are.
		if p.lost.end > 0 && r.End > p.lost.end && !p.closed.Includes(Run{Start: max(r.Start, p.stable), End: r.End}) {
			return ErrTruncated
		}
	}
	return nil
}

// settled takes in the outcome of a commit.
func (r *Reader) settled(part part, state State, err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	p := r.mu.partitions[part.tp]
	p.settled(part.runs, err == nil)
	if err == nil && !p.raiseStable(state.Stable) {
		p.stale = true
		r.upkeep.signal()
	}
}

// maxErrors bounds the errors that wait for Poll.
const maxErrors = 100

// commitFailed leaves the error of a commit that nobody waits for to Poll.
func (r *Reader) commitFailed(err error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.mu.errs) < maxErrors {
		r.mu.errs = append(r.mu.errs, err)
		r.notifyLocked()
	}
}

// closeAborted commits the records of aborted transactions among the Reader's slots. They
// are never delivered, so nobody else would, and they would stay gaps for ever.
func (r *Reader) closeAborted(ctx context.Context, tp TopicPartition, aborted []Run) error {
	r.mu.Lock()
	p := r.mu.partitions[tp]
	var open []Run
	for _, run := range aborted {
		run.Start = max(run.Start, p.stable)
		open = appendOthers(open, &p.closed, run)
	}
	r.mu.Unlock()
	if len(open) == 0 {
		return nil
	}
	return r.commit(ctx, map[TopicPartition][]Run{tp: open}, false)
}
