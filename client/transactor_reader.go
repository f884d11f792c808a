package client

import (
	"context"
	"errors"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
)

// readerAcks are records of a Reader that a transaction acknowledges. To the Reader they are
// commits on their way until the transaction has ended.
type readerAcks struct {
	r       *Reader
	records []*kgo.Record
	runs    map[TopicPartition][]Run // what was acknowledged by runs
	parts   []part                   // once they are held
	// contested tells that the broker has refused some.
	contested bool
}

func (a *readerAcks) hold() error {
	if err := a.r.checkLost(a.records); err != nil {
		return err
	}
	a.r.countTransaction(1) // before Close can have waited for it
	runs := runsOf(a.records)
	for tp, more := range a.runs {
		runs[tp] = append(runs[tp], more...)
	}
	parts, err := a.r.closing(runs)
	if err != nil {
		a.r.countTransaction(-1)
		return err
	}
	a.parts = parts
	return nil
}

func (r *Reader) countTransaction(n int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.mu.inTransactions += n; n < 0 {
		r.notifyLocked()
	}
}

// stage sends the offsets as the member that the Reader reads for. What is refused because
// that has gone on to another generation is sent again in that one.
func (a *readerAcks) stage(ctx context.Context, p *txnProducer) error {
	r := a.r
	for {
		changes, err := a.changes()
		if err != nil || len(changes) == 0 {
			return err
		}
		as := r.cfg.as.identity()
		err = p.stageOffsets(ctx, r.cfg.group, as, changes, func(TopicPartition) {})
		switch {
		case err == nil:
			return nil
		case as != nil && fenced(err):
			if r.cfg.as.movedOn(ctx, as) {
				continue
			}
			return &revokedError{err}
		}
		a.contested = errors.Is(err, ErrConflict)
		return err
	}
}

// changes are what the request asks for, unless some of it must not be committed any more.
func (a *readerAcks) changes() ([]change, error) {
	a.r.mu.Lock()
	defer a.r.mu.Unlock()
	changes := make([]change, 0, len(a.parts))
	for _, part := range a.parts {
		p := a.r.mu.partitions[part.tp]
		if err := p.commitable(part.runs); err != nil {
			return nil, a.r.commitError(part.tp, err)
		}
		changes = append(changes, change{tp: p.tp, id: p.id, offset: -1,
			individual: &protocol.IndividualOffsets{Commit: part.runs, Origin: p.origin}})
	}
	if len(changes) > 0 || a.r.cfg.as == nil {
		return changes, nil
	}
	for tp := range a.runs { // to commit nothing of one is enough to be refused
		p, err := a.r.partitionLocked(tp)
		if err != nil {
			return nil, err
		}
		return append(changes, change{tp: tp, id: p.id, offset: -1, individual: &protocol.IndividualOffsets{Origin: p.origin}}), nil
	}
	return changes, nil
}

// settle has the records delivered again if they were not committed. What the broker refused
// is committed or in another transaction, so the ledger is read first, after a while.
func (a *readerAcks) settle(outcome txnOutcome) {
	r := a.r
	r.mu.Lock()
	defer r.mu.Unlock()
	r.mu.inTransactions--
	r.notifyLocked()
	for _, part := range a.parts {
		p := r.mu.partitions[part.tp]
		p.settled(part.runs, outcome == txnCommitted)
		if outcome == txnCommitted {
			continue
		}
		if outcome == txnAborted && !a.contested {
			r.reopenLocked(p, part.runs)
			continue
		}
		p.closing(part.runs) // not to be delivered before the ledger is read
		p.doubted = appendRuns(p.doubted, part.runs)
	}
	if outcome != txnCommitted && (outcome == txnUnknown || a.contested) && !r.mu.closed {
		r.wg.Go(r.resolveDoubts)
	}
}

// drop has the records delivered again, as far as the Reader still may.
func (a *readerAcks) drop() {
	_ = a.r.Redeliver(a.records...)
	_ = a.r.redeliver(a.runs)
}

// resolveDoubts has the ledgers read that know about doubted offsets. It waits a while before
// that, since whoever else has the offsets in a transaction may take its time to end it.
func (r *Reader) resolveDoubts() {
	if !sleep(r.ctx, r.cfg.backoff(1)) {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.mu.partitions {
		p.stale = p.stale || len(p.doubted) > 0
	}
	r.upkeep.signal()
}

// reopenLocked has runs delivered again, as far as they are open.
func (r *Reader) reopenLocked(p *partition, runs []Run) {
	var open []Run
	for _, run := range runs {
		open = appendOthers(open, &p.closed, run)
	}
	p.redeliver(open)
	r.wakeSourceLocked(p)
}

// takeDoubted lets the ledger, which is about to be taken in, decide about runs.
func (p *partition) takeDoubted() []Run {
	doubted := join(p.doubted)
	p.doubted = nil
	p.settled(doubted, false)
	return doubted
}

// awaitTransactions waits until the transactions with records of the Reader have ended.
func (r *Reader) awaitTransactions(ctx context.Context) error {
	for {
		r.mu.Lock()
		n, changed := r.mu.inTransactions, r.mu.changed
		r.mu.Unlock()
		if n == 0 {
			return nil
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}
