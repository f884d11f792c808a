package coordinator

import (
	"context"
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/broker/group"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kerr"
)

// BeginCommitInTransaction begins to commit offsets in a transaction; see
// group.State.CommitInTransaction. Commits of a group, in transactions or not, are carried
// out in the order of the calls. INVALID_PRODUCER_EPOCH refuses a producer of which the
// partition knows a newer epoch. Whether the transaction is open, and has the group's
// partition in it, is for the transaction coordinator to have said before.
func (c *Coordinator) BeginCommitInTransaction(req *group.TxnCommitRequest) Commit {
	return Commit{begin(c.shardOf(req.Group), func(t *turn) (list errorList) {
		var records []group.Record
		records, list.errs, list.err = t.state.CommitInTransaction(t.now, req)
		if list.err == nil {
			list.err = t.appendInTransaction(records)
		}
		return list
	})}
}

// CommitInTransaction commits offsets in a transaction, and waits until they are durable.
func (c *Coordinator) CommitInTransaction(ctx context.Context, req *group.TxnCommitRequest) ([]*kerr.Error, error) {
	return c.BeginCommitInTransaction(req).Wait(ctx)
}

// End is the end of a transaction that has its place in the queue.
type End struct{ pending *Pending[*kerr.Error] }

// BeginEndTransaction begins to end a producer's transaction in a partition of
// __consumer_offsets, so that several partitions can be ended together.
//
// A marker may be written again and again: whoever ends a transaction and does not know how
// far he came does all of it once more. Where the producer has no open transaction none is
// written, as when all its offsets are in ledgers. It is refused with
// INVALID_PRODUCER_EPOCH if the producer has a newer epoch there, or, from transaction
// version 2 on, an open transaction of the marker's epoch; and with
// TRANSACTION_COORDINATOR_FENCED if there was a marker of a newer coordinator.
func (c *Coordinator) BeginEndTransaction(partition int32, m protocol.EndTxnMarker, transactionVersion int16) End {
	if partition < 0 || int(partition) >= len(c.shards) {
		return End{&Pending[*kerr.Error]{err: fmt.Errorf("partition %d of the group coordinator, which has %d: %w",
			partition, len(c.shards), kerr.UnknownTopicOrPartition)}}
	}
	return End{begin(c.shards[partition], func(t *turn) *kerr.Error { return t.endTransaction(m, transactionVersion) })}
}

// Wait waits until the marker is durable, and the offsets are committed or forgotten.
func (e End) Wait(ctx context.Context) error {
	refused, err := e.pending.Wait(ctx)
	return either(err, refused)
}

// EndTransaction ends a producer's transaction in a partition of __consumer_offsets, and
// waits until that is durable; see BeginEndTransaction.
func (c *Coordinator) EndTransaction(ctx context.Context, partition int32, m protocol.EndTxnMarker, transactionVersion int16) error {
	return c.BeginEndTransaction(partition, m, transactionVersion).Wait(ctx)
}

// appendInTransaction appends records that the log may refuse, behind what was decided
// before in this turn, and applies them if it does not. A refusal is the answer to one
// request, and concerns no other.
func (t *turn) appendInTransaction(records []group.Record) *kerr.Error {
	if len(records) == 0 {
		return nil
	}
	if t.err = t.s.append(t.now); t.err != nil {
		return nil // the turn has failed, and everybody is told so
	}
	if t.err = t.s.ensureOpen(); t.err != nil {
		return nil
	}
	for rest := records; len(rest) > 0; {
		n := fitting(rest)
		if err := t.s.appendBatch(rest[:n], t.now.UnixMilli()); err != nil {
			return t.refused(err)
		}
		for i := range rest[:n] {
			t.state.Apply(&rest[i])
		}
		rest = rest[n:]
	}
	t.s.followTransactions()
	return nil
}

func (t *turn) endTransaction(m protocol.EndTxnMarker, version int16) *kerr.Error {
	if t.err = t.s.append(t.now); t.err != nil {
		return nil
	}
	w := &t.s.owner
	if w.journal == nil || !w.journal.InTransaction(m.ProducerID) {
		return nil // there is nothing to end, as when all its offsets are in ledgers
	}
	receipt, err := w.journal.AppendMarker(m, version, t.now.UnixMilli())
	if err != nil {
		return t.refused(err)
	}
	w.last, w.applied = receipt, receipt.Next
	t.state.EndTransaction(m.ProducerID, m.Commit)
	t.s.followTransactions()
	return nil
}

// refused is the answer to who wrote for a transaction what the log does not take. Any
// other error ends the turn.
func (t *turn) refused(err error) *kerr.Error {
	switch {
	case errors.Is(err, commitlog.ErrInvalidProducerEpoch):
		return kerr.InvalidProducerEpoch
	case errors.Is(err, commitlog.ErrCoordinatorFenced):
		return kerr.TransactionCoordinatorFenced
	}
	t.err = err
	return nil
}

// followTransactions notes for the view what transactions have changed.
func (s *shard) followTransactions() { s.owner.state.ViewChanges(s.owner.view.unseen.Note) }
