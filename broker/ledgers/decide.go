package ledgers

import (
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// one carries out what is committed of one partition, and leaves the records that say so
// with l.
func (t *Commit) one(l *loaded, p *PartitionCommit, committed map[extension.TopicPartition]extension.CommittedOffset) Result {
	bounds, err := t.s.c.opts.Log.Bounds(p.TopicPartition)
	if err != nil {
		return Result{Err: fmt.Errorf("%w: %w", kerr.UnknownTopicOrPartition, err)}
	}
	e := l.state.Get(idOf(t.group, p.TopicPartition))
	if e == nil {
		return t.found(l, p, committed, bounds)
	}
	if err := e.Trouble(); err != nil {
		return Result{Err: fmt.Errorf("%s: %w: %w", e.ID, kerr.UnsupportedVersion, err)}
	}
	l.advance(e, bounds.Start)
	if t.txn != nil {
		return t.stage(l, e, p)
	}
	delta, err := t.decide(e.Ledger, e.ID, p, bounds, 0)
	if err != nil {
		return Result{Err: err}
	}
	if !delta.Empty() {
		stable, offset := e.Ledger.Stable(), e.Ledger.Committed()
		l.change(e, delta, p.Metadata)
		t.note(l, e.ID, e.Ledger.Stable() != stable, e.Ledger.Committed() < offset)
	}
	return Result{Stable: e.Ledger.Committed(), MaxCommit: e.Ledger.MaxCommit()}
}

// change carries out what is decided, and has the owner of the ledger hear of it. A
// cumulative commit takes the ledger away from its owner.
func (l *loaded) change(e *individualcommit.Entry, delta individualcommit.Delta, metadata *string) {
	if delta.Move.Kind != individualcommit.MoveNone {
		l.end(e.ID)
	}
	var committed, reopened []individualcommit.Run
	if l.shares[e.ID] != nil || e.HasCounts() {
		for _, r := range delta.Commit {
			committed = e.Ledger.AppendOpen(committed, r)
		}
		for _, r := range delta.Reopen {
			reopened = e.Ledger.AppendCommitted(reopened, r)
		}
	}
	l.state.Log(&l.records, e, delta, metadata, l.s.c.nowMs())
	l.tellCommitted(e, committed)
	l.tellReopened(e, reopened)
}

// found makes the ledger of a partition that had none, where its group stands.
func (t *Commit) found(l *loaded, p *PartitionCommit, committed map[extension.TopicPartition]extension.CommittedOffset, bounds extension.Bounds) Result {
	id := idOf(t.group, p.TopicPartition)
	at, known := committed[p.TopicPartition]
	if !known {
		// Its ledger was deleted since it was routed or looked for.
		return Result{Err: fmt.Errorf("%s: the ledger was deleted: %w", id, kerr.CoordinatorLoadInProgress)}
	}
	if at.Pending {
		return Result{Err: fmt.Errorf("%s: a transaction commits an offset of the group, where the ledger is to begin: %w", id, kerr.UnstableOffsetCommit)}
	}
	ledger, err := newLedger(p, at, bounds)
	if err != nil {
		return Result{Err: fmt.Errorf("%s: %w", id, wireError(err))}
	}
	if t.txn != nil {
		return t.foundInTransaction(l, id, ledger, p, &at, bounds.HighWatermark)
	}
	delta, err := t.decide(ledger, id, p, bounds, ledgerBytes)
	if err != nil {
		return Result{Err: err}
	}
	metadata := p.Metadata
	if metadata == nil {
		metadata = &at.Metadata
	}
	e := l.state.Found(&l.records, id, ledger, delta, metadata, t.s.c.nowMs())
	t.note(l, id, true, true)
	return Result{Stable: e.Ledger.Committed(), MaxCommit: e.Ledger.MaxCommit()}
}

// decide judges what is asked of a ledger; bytes is what it will take in memory besides.
func (t *Commit) decide(ledger *individualcommit.Ledger, id individualcommit.ID, p *PartitionCommit, bounds extension.Bounds, bytes int64) (individualcommit.Delta, error) {
	delta, err := ledger.Decide(p.Request, bounds.HighWatermark)
	if err != nil {
		return delta, fmt.Errorf("%s: %w", id, wireError(err))
	}
	if err := t.s.c.room(bytes + runBytes*int64(ledger.Growth(delta))); err != nil {
		return delta, fmt.Errorf("%s: %w", id, err)
	}
	return delta, nil
}

// note remembers what is to be done about a ledger that was changed.
func (t *Commit) note(l *loaded, id individualcommit.ID, stableMoved, urgent bool) {
	l.moved[id] = struct{}{}
	if stableMoved {
		t.changed = append(t.changed, id)
	}
	if urgent {
		t.urgent = append(t.urgent, id)
	}
}

// newLedger is the ledger that a partition gets which had none.
func newLedger(p *PartitionCommit, committed extension.CommittedOffset, bounds extension.Bounds) (*individualcommit.Ledger, error) {
	at := bounds.Start
	switch {
	case committed.Offset >= 0:
		at = committed.Offset
	case p.Origin > bounds.HighWatermark:
		return nil, fmt.Errorf("%w: origin %d, the high watermark is %d", individualcommit.ErrOutOfRange, p.Origin, bounds.HighWatermark)
	case p.Origin >= 0:
		at = p.Origin
	}
	return individualcommit.NewLedger(at, bounds.Start, bounds.HighWatermark), nil
}

// About what a run of its own takes in a ledger, and a ledger without any.
const (
	runBytes    = 64
	ledgerBytes = 1024
)

// room refuses what would take the ledgers past their memory.
func (c *Coordinator) room(bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if taken, limit := c.memory.Load(), c.opts.MaxMemoryBytes(); taken+bytes > limit {
		return fmt.Errorf("the ledgers take %d bytes of individual.commit.max.memory.bytes=%d, and %d more are too many: "+
			"commit what is open, or raise the limit: %w", taken, limit, bytes, kerr.PolicyViolation)
	}
	return nil
}

// wireError is Kafka's error for one of the ledger's.
func wireError(err error) error {
	for _, e := range []struct {
		err  error
		kind *kerr.Error
	}{
		{individualcommit.ErrInvalidRuns, kerr.InvalidRequest},
		{individualcommit.ErrOutOfRange, kerr.OffsetOutOfRange},
		{individualcommit.ErrPending, kerr.InvalidRecordState},
	} {
		if errors.Is(err, e.err) {
			return fmt.Errorf("%w: %w", e.kind, err)
		}
	}
	return err
}
