package ledgers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Stage is Do for what a member of the share group wants to have committed with the
// transaction of p. If f says so, the offsets of runs become pending in it: they stay
// uncommitted until EndTransaction. f is told why that cannot be, when the ledger refuses
// it: the error is one of Kafka's, and f must say no then. What is pending in the same
// transaction already may be asked for again.
func (s *Share) Stage(out *cooperative.Changes, p individualcommit.Producer, runs []individualcommit.Run,
	f func(l *individualcommit.Ledger, refused error) (ok bool),
) (ShareReceipt, error) {
	return s.do(out, func() {
		if f(s.e.Ledger, s.l.checkStage(s.e, p, runs)) && !holdsAll(s.e.Ledger, p, runs) {
			s.l.state.Stage(&s.l.records, s.e, p, individualcommit.StageRequest{Offset: individualcommit.NoOffset, Commit: runs})
		}
	})
}

// checkStage judges whether a transaction may have the offsets of runs.
func (l *loaded) checkStage(e *individualcommit.Entry, p individualcommit.Producer, runs []individualcommit.Run) error {
	bounds, err := l.s.c.opts.Log.Bounds(partitionOf(e.ID))
	if err != nil {
		return fmt.Errorf("%s: %w: %w", e.ID, kerr.UnknownTopicOrPartition, err)
	}
	err = wireError(e.Ledger.CheckStage(p, runs, bounds.HighWatermark))
	if err == nil {
		err = l.s.c.room(runBytes * int64(len(runs)))
	}
	if err != nil {
		return fmt.Errorf("%s: %w", e.ID, err)
	}
	return nil
}

// holdsAll tells whether all offsets of runs are pending in the transaction of p.
func holdsAll(l *individualcommit.Ledger, p individualcommit.Producer, runs []individualcommit.Run) bool {
	for held := range l.Staged(p) {
		for len(runs) > 0 && held.Start <= runs[0].Start && runs[0].End <= held.End {
			runs = runs[1:]
		}
	}
	return len(runs) == 0
}

// End is the end of a transaction that has been carried out and is to become durable.
type End struct {
	s       *shard
	t       Commit // what it has changed
	receipt journal.Receipt
	err     error
}

// BeginEnd ends the transaction of a producer id for all ledgers of one partition of the
// internal log: what they have pending in it becomes committed, or open again. The epoch
// does not matter: a marker may have a newer one than the transaction had, and a producer
// id has one transaction at a time. With an error it is to be done again. A transaction
// that has nothing pending has ended. Of a ledger that a later version wrote the outcome is
// logged, for that version to carry out.
func (c *Coordinator) BeginEnd(ctx context.Context, index int32, producerID int64, commit bool) End {
	if index < 0 || int(index) >= len(c.shards) {
		return End{err: fmt.Errorf("partition %d of %s: %w", index, individualcommit.TopicName, kerr.UnknownTopicOrPartition)}
	}
	e := End{s: c.shards[index]}
	e.t, e.receipt, e.err = e.s.endTransaction(ctx, producerID, commit)
	return e
}

// Wait waits until the end is durable and, where a committed offset fell, the primary
// topic has followed.
func (e End) Wait(ctx context.Context) error {
	if e.err != nil {
		return e.err
	}
	s, t := e.s, &e.t
	if err := s.await(ctx, e.receipt); err != nil {
		return err
	}
	if len(t.changed) > 0 {
		s.settle(t.changed)
	}
	if len(t.urgent) > 0 {
		return s.follow(ctx, t.urgent)
	}
	return nil
}

// endTransaction carries out the end of a transaction, and gives what it has changed.
func (s *shard) endTransaction(ctx context.Context, producerID int64, commit bool) (t Commit, receipt journal.Receipt, err error) {
	l, err := s.lock(ctx, false)
	if err != nil {
		return t, receipt, err
	}
	defer s.mu.Unlock()
	if l == nil {
		return t, receipt, nil // no ledger was ever founded here
	}
	var failed error
	for _, p := range l.state.Transactions(producerID) {
		for _, id := range l.state.Staging(p) {
			failed = errors.Join(failed, t.end(l, id, p, commit))
		}
	}
	if err := s.appendLocked(); err != nil {
		return t, receipt, err
	}
	return t, l.last, failed
}

// end ends a transaction for one ledger.
func (t *Commit) end(l *loaded, id individualcommit.ID, p individualcommit.Producer, commit bool) error {
	e := l.state.Get(id)
	bounds, err := l.s.c.opts.Log.Bounds(partitionOf(id))
	switch {
	case errors.Is(err, extension.ErrUnknownPartition):
		return nil // the ledger goes, and with it what is pending
	case err != nil:
		return fmt.Errorf("%s: end a transaction: %w", id, err)
	}
	if e.Trouble() != nil {
		// A version of Lacuna that can read the ledger does the rest when it loads it.
		l.state.EndTransaction(&l.records, e, p, commit, bounds.HighWatermark, l.s.c.nowMs())
		if l.state.Get(id) == e && e.Trouble() == nil {
			l.use(e, bounds) // what could not be read is gone
		}
		return nil
	}
	l.advance(e, bounds.Start)
	runs := slices.Collect(e.Ledger.Staged(p))
	stable, offset := e.Ledger.Stable(), e.Ledger.Committed()
	delta := l.state.EndTransaction(&l.records, e, p, commit, bounds.HighWatermark, l.s.c.nowMs())
	if delta.Move.Kind != individualcommit.MoveNone {
		l.end(id)
	} else if len(runs) > 0 {
		l.tell(e, func(o ShareOwner, out *cooperative.Changes) { o.Ended(runs, commit, out) })
	}
	if !delta.Empty() {
		t.note(l, id, e.Ledger.Stable() != stable, e.Ledger.Committed() < offset)
	}
	return nil
}

// stage makes what is committed of one partition pending in the transaction.
func (t *Commit) stage(l *loaded, e *individualcommit.Entry, p *PartitionCommit) Result {
	if err := l.checkStage(e, *t.txn, p.Commit); err != nil {
		return Result{Err: err}
	}
	if p.Offset < individualcommit.NoOffset || len(p.Reopen) > 0 {
		return Result{Err: fmt.Errorf("%s: a transaction commits offset %d and reopens %d runs: %w", e.ID, p.Offset, len(p.Reopen), kerr.InvalidRequest)}
	}
	if p.Offset != individualcommit.NoOffset || !holdsAll(e.Ledger, *t.txn, p.Commit) {
		l.state.Stage(&l.records, e, *t.txn, individualcommit.StageRequest{Offset: p.Offset, Metadata: p.Metadata, Commit: p.Commit})
	}
	return Result{Stable: e.Ledger.Committed(), MaxCommit: e.Ledger.MaxCommit()}
}

// foundInTransaction is stage for a partition that had no ledger, which stays whatever
// becomes of the transaction.
func (t *Commit) foundInTransaction(l *loaded, id individualcommit.ID, ledger *individualcommit.Ledger, p *PartitionCommit,
	at *extension.CommittedOffset, highWatermark int64,
) Result {
	err := wireError(ledger.CheckStage(*t.txn, p.Commit, highWatermark))
	if err == nil {
		err = t.s.c.room(ledgerBytes)
	}
	if err != nil {
		return Result{Err: fmt.Errorf("%s: %w", id, err)}
	}
	e := l.state.Found(&l.records, id, ledger, individualcommit.Delta{}, &at.Metadata, t.s.c.nowMs())
	t.note(l, id, true, true)
	return t.stage(l, e, p)
}
