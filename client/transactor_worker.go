package client

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/protocol"
)

// workerAcks are records of a Worker that a transaction accepts.
type workerAcks struct {
	w          *Worker
	deliveries []*delivery
	staged     map[TopicPartition]bool // pending at the broker, surely
}

// has tells that a handler has the record and no transaction does.
func (w *Worker) has(d *delivery) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	return d.state == deliveryRunning && d.inTxn == txnNone
}

// outcomeOf is what became of a record whose handler has returned err. What its transaction
// did stands.
func (w *Worker) outcomeOf(d *delivery, err error) Outcome {
	w.mu.Lock()
	defer w.mu.Unlock()
	switch d.inTxn {
	case txnDone:
		return Accepted
	case txnReleased:
		return Released
	case txnHeld:
		return Unfinished
	case txnNone:
	}
	return outcomeOf(err)
}

func (a *workerAcks) hold() error {
	a.w.mu.Lock()
	defer a.w.mu.Unlock()
	for i, d := range a.deliveries {
		if a.w.mu.state.holdForTxn(d) {
			continue
		}
		for _, held := range a.deliveries[:i] {
			a.w.mu.state.settleTxn(held, txnNone, time.Now())
		}
		return errors.Join(ErrConflict, ErrLockLost)
	}
	return nil
}

func (a *workerAcks) stage(ctx context.Context, p *txnProducer) error {
	runs := make(map[sharePartition][]Run)
	names := make(map[sharePartition]string)
	for _, d := range a.deliveries {
		runs[d.at] = append(runs[d.at], Run{Start: d.offset(), End: d.offset() + 1})
		names[d.at] = d.record.Topic
	}
	changes := make([]change, 0, len(runs))
	for at, runs := range runs {
		changes = append(changes, change{
			tp: TopicPartition{names[at], at.number}, id: at.topic, offset: -1,
			individual: &protocol.IndividualOffsets{Commit: join(runs), Origin: protocol.NoOrigin},
		})
	}
	slices.SortFunc(changes, func(x, y change) int { return compareTopicPartitions(x.tp, y.tp) })
	a.staged = make(map[TopicPartition]bool, len(changes))
	return p.stageOffsets(ctx, a.w.cfg.group, a.w.identity(), changes, func(tp TopicPartition) { a.staged[tp] = true })
}

// identity is who the Worker is in its group.
func (w *Worker) identity() *memberIdentity {
	w.mu.Lock()
	defer w.mu.Unlock()
	return &memberIdentity{member: w.member, generation: w.mu.epoch}
}

func (a *workerAcks) settle(outcome txnOutcome) {
	w := a.w
	var e shareEvents
	w.mu.Lock()
	for _, d := range a.deliveries {
		to := txnReleased
		switch {
		case outcome == txnCommitted:
			to = txnDone
		case outcome == txnAborted && !a.staged[TopicPartition{d.record.Topic, d.at.number}]:
			to = txnNone
		}
		one := w.mu.state.settleTxn(d, to, time.Now())
		e.acked, e.lost = append(e.acked, one.acked...), append(e.lost, one.lost...)
		w.wakeLocked(d.session)
	}
	w.mu.work.Broadcast() // a key may be free
	w.mu.Unlock()
	w.tell(e)
}

// drop leaves the records to their handlers, whose errors release them.
func (a *workerAcks) drop() {}
