package client

import (
	"context"
	"errors"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// Txn is a transaction under way, for the unit of work that was given it. It must not be used
// after that has returned, nor by several goroutines at the same time.
type Txn struct {
	t    *Transactor
	ctx  context.Context
	over bool
	err  error // why it cannot commit

	records []*kgo.Record // not sent yet
	bytes   int           // of them, about
	acks    []txnAcks     // not held yet
	held    []txnAcks

	// p is the producer, nil until something has to be sent. From then on sending ends with
	// the time-out of the transaction.
	p       *txnProducer
	sending context.Context
	stop    func()
	outbox  outbox

	// decided is set by whoever comes first: the one that sends the commit, or the end of the
	// caller's context, which aborts.
	decided atomic.Int32
}

const (
	undecided int32 = iota
	decidedCommit
	decidedAbort
)

// txnAcks are the records of one Reader or Worker that a transaction acknowledges.
type txnAcks interface {
	// claims yields the records, with a pointer that tells the deliveries of each apart.
	claims(yield func(c txnClaim, delivery any))
	count() int
	// hold keeps its owner from doing anything else with the records. If it fails it has
	// held none.
	hold() error
	// stage makes them pending, in one TxnOffsetCommit of the producer.
	stage(ctx context.Context, p *txnProducer) error
	// settle tells the owner what became of them. It follows each hold that did not fail,
	// also if they were never staged.
	settle(outcome txnOutcome)
	// drop tells the owner that the unit of work has failed before anything was held.
	drop()
}

func newTxn(ctx context.Context, t *Transactor) *Txn { return &Txn{t: t, ctx: ctx} }

// keptBytes is how much a unit may produce before it is sent while the unit goes on.
const keptBytes = 1 << 20

// Produce adds records to the transaction. They are sent when the unit returns, or now if
// there are many of them; so they must not be changed any more. Their topic must be set.
// Records of a partition keep their order. When the transaction is committed, their
// partition and offset are set.
func (tx *Txn) Produce(records ...*kgo.Record) error {
	if err := tx.usable(); err != nil {
		return err
	}
	now := time.Now()
	for _, r := range records {
		if r.Topic == "" {
			return tx.fail(errors.New("a record without a topic"))
		}
		if r.Timestamp.IsZero() {
			r.Timestamp = now
		}
		tx.records = append(tx.records, r)
		tx.bytes += len(r.Key) + len(r.Value) + 64
	}
	if tx.bytes < keptBytes {
		return nil
	}
	return tx.fail(tx.flush())
}

// Ack acknowledges records of a Reader: they are committed for its group with the
// transaction. Until its outcome is known the Reader does not deliver them; if it is aborted
// it delivers them again. A record must not be committed otherwise meanwhile.
func (tx *Txn) Ack(r *Reader, records ...*kgo.Record) error {
	acks, err := tx.acksOf(r)
	if err != nil {
		return err
	}
	acks.records = append(acks.records, records...)
	return nil
}

// AckRuns is Ack for runs of offsets of one partition of the Reader. Whether they hold
// records, or records of the Reader's slots, is the caller's affair.
//
// Without runs it acknowledges nothing. But if the Reader reads for a member of a group, the
// transaction is aborted unless the group has the member still ([ErrRevoked]).
func (tx *Txn) AckRuns(r *Reader, topic string, partition int32, runs ...Run) error {
	acks, err := tx.acksOf(r)
	if err != nil {
		return err
	}
	if acks.runs == nil {
		acks.runs = make(map[TopicPartition][]Run)
	}
	tp := TopicPartition{topic, partition}
	acks.runs[tp] = append(acks.runs[tp], runs...)
	return nil
}

// acksOf are the acknowledgements of a Reader's records.
func (tx *Txn) acksOf(r *Reader) (*readerAcks, error) {
	if err := tx.usable(); err != nil {
		return nil, err
	}
	if r.cfg.group == "" {
		return nil, tx.fail(ErrNoGroup)
	}
	for _, a := range tx.acks {
		if a, ok := a.(*readerAcks); ok && a.r == r {
			return a, nil
		}
	}
	acks := &readerAcks{r: r}
	tx.acks = append(tx.acks, acks)
	return acks, nil
}

// Accept accepts records of a [Worker], each in its handler: they are done when the
// transaction commits. If it is aborted they are delivered again, to any worker of the group.
// It fails with [ErrLockLost] if a record is not the worker's any more.
func (tx *Txn) Accept(records ...*ShareRecord) error {
	if err := tx.usable(); err != nil {
		return err
	}
	for _, r := range records {
		if r.worker == nil {
			return tx.fail(errors.New("a record that no worker has"))
		}
		if !r.worker.has(r.delivery) {
			return tx.fail(&TransactionError{Doing: "accept", Outcome: ErrAborted, Err: errors.Join(ErrConflict, ErrLockLost)})
		}
		tx.accept(r)
	}
	return nil
}

func (tx *Txn) accept(r *ShareRecord) {
	for _, a := range tx.acks {
		if a, ok := a.(*workerAcks); ok && a.w == r.worker {
			if !slices.Contains(a.deliveries, r.delivery) {
				a.deliveries = append(a.deliveries, r.delivery)
			}
			return
		}
	}
	tx.acks = append(tx.acks, &workerAcks{w: r.worker, deliveries: []*delivery{r.delivery}})
}

func (tx *Txn) usable() error {
	if tx.over {
		return errTxnOver
	}
	return tx.err
}

// fail notes why the transaction cannot commit, whatever its unit makes of it.
func (tx *Txn) fail(err error) error {
	if err != nil && tx.err == nil {
		tx.err = err
	}
	return err
}

// flush sends the records that are kept.
func (tx *Txn) flush() error {
	if err := tx.take(); err != nil {
		return tx.aborted("begin", err)
	}
	batches, err := tx.pack(tx.sending)
	if err == nil {
		err = tx.outbox.send(tx.sending, tx.p, batches)
	}
	return tx.aborted("produce", err)
}

// pack makes batches of the records that are kept.
func (tx *Txn) pack(ctx context.Context) ([]*txnBatch, error) {
	if len(tx.records) == 0 {
		return nil, nil
	}
	records := tx.records
	tx.records, tx.bytes = nil, 0
	return tx.outbox.pack(ctx, tx.p, records)
}

// take gets the producer that everything is sent by.
func (tx *Txn) take() error {
	if tx.p != nil {
		return nil
	}
	p, err := tx.t.take(tx.ctx)
	if err != nil {
		return err
	}
	tx.p = p
	var end context.CancelFunc
	tx.sending, end = context.WithTimeout(tx.ctx, tx.t.cfg.timeout)
	detach := context.AfterFunc(tx.t.ctx, end)
	tx.stop = func() { detach(); end() }
	return nil
}

func (tx *Txn) aborted(doing string, err error) error {
	if err == nil {
		return nil
	}
	e := &TransactionError{Doing: doing, Outcome: ErrAborted, Err: err}
	if tx.p != nil {
		e.TransactionalID = tx.p.name
	}
	return e
}

// finish ends the transaction once its unit has returned err.
func (tx *Txn) finish(err error) error {
	tx.over = true
	if err == nil {
		err = tx.err
	}
	if err == nil && len(tx.records)+len(tx.acks) == 0 && tx.p == nil {
		return nil
	}
	if err != nil && tx.p == nil { // nothing was sent, nothing is held
		tx.drop()
		return err
	}
	// From here on it goes its way, whether or not somebody waits.
	done := make(chan error, 1)
	tx.t.ending.Add(1)
	go func() {
		defer tx.t.ending.Done()
		done <- tx.conclude(err)
	}()
	select {
	case err := <-done:
		return err
	case <-tx.ctx.Done():
	case <-tx.t.ctx.Done():
	}
	tx.decided.CompareAndSwap(undecided, decidedAbort)
	if tx.decided.Load() == decidedAbort {
		select { // it may know better why
		case err := <-done:
			return err
		default:
		}
		return errors.Join(err, &TransactionError{Doing: "commit", Outcome: ErrAborted, Err: tx.impatience()})
	}
	return tx.unheard(done)
}

// unheard is the end of a caller's patience after the commit was sent.
func (tx *Txn) unheard(done <-chan error) error {
	select {
	case err := <-done:
		return err
	default:
	}
	return &TransactionError{TransactionalID: tx.p.name, Doing: "commit", Outcome: ErrOutcomeUnknown, Err: tx.impatience()}
}

// impatience is why nobody waits any more.
func (tx *Txn) impatience() error {
	if err := context.Cause(tx.ctx); err != nil {
		return err
	}
	return ErrTransactorClosed
}

// conclude sends what is left, ends the transaction and tells those whose records it has.
func (tx *Txn) conclude(err error) error {
	if err == nil {
		err = tx.sendAll()
	}
	outcome := txnAborted
	if tx.p != nil {
		commit := err == nil && tx.decided.CompareAndSwap(undecided, decidedCommit)
		if !commit && err == nil {
			err = tx.aborted("commit", tx.impatience())
		}
		var ended error
		outcome, ended = tx.p.end(tx.t.ctx, commit)
		err = tx.concluded(commit, outcome, err, ended)
	}
	for _, a := range tx.held {
		a.settle(outcome)
	}
	tx.drop()
	if tx.p != nil {
		tx.stop()
		tx.t.idle <- tx.p
	}
	return err
}

// concluded is the error of a transaction that has ended.
func (tx *Txn) concluded(commit bool, outcome txnOutcome, err, ended error) error {
	switch {
	case !commit:
		return err
	case outcome == txnCommitted:
		tx.outbox.delivered()
		return nil
	case outcome == txnAborted:
		return tx.aborted("commit", ended)
	}
	return &TransactionError{TransactionalID: tx.p.name, Doing: "commit", Outcome: ErrOutcomeUnknown, Err: ended}
}

// drop gives up the acknowledgements that are not held.
func (tx *Txn) drop() {
	for _, a := range tx.acks {
		a.drop()
	}
	tx.acks = nil
}

// sendAll sends the records that are kept, and the acknowledgements, at the same time. The
// records go first by a little: when they begin the transaction at the broker, that has the
// partition of the acknowledgements in it from the same moment, if the one before had.
func (tx *Txn) sendAll() error {
	if err := tx.checkOnce(); err != nil {
		return tx.aborted("acknowledge", err)
	}
	for len(tx.acks) > 0 {
		if err := tx.acks[0].hold(); err != nil {
			return tx.aborted("acknowledge", err)
		}
		tx.held, tx.acks = append(tx.held, tx.acks[0]), tx.acks[1:]
	}
	if err := tx.take(); err != nil {
		return tx.aborted("begin", err)
	}
	batches, err := tx.pack(tx.sending)
	if err != nil {
		return tx.aborted("produce", err)
	}
	if len(tx.held) == 0 {
		return tx.aborted("produce", tx.outbox.send(tx.sending, tx.p, batches))
	}
	sending, cancel := context.WithCancel(tx.sending)
	defer cancel()
	var once sync.Once // the first failure ends the others, and theirs tell nothing
	var first error
	try := func(doing string, f func(context.Context) error) {
		if err := f(sending); err != nil {
			once.Do(func() { first = tx.aborted(doing, err) })
			cancel()
		}
	}
	var acks sync.WaitGroup
	for _, a := range tx.held {
		acks.Go(func() {
			try("acknowledge", func(ctx context.Context) error { return a.stage(ctx, tx.p) })
		})
	}
	try("produce", func(ctx context.Context) error { return tx.outbox.send(ctx, tx.p, batches) })
	acks.Wait()
	return first
}
