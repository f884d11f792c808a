package client

import (
	"context"
	"fmt"
	"sync"

	"github.com/google/uuid"
	"github.com/lacunamq/lacuna/protocol"
	"golang.org/x/sync/errgroup"
)

// Transactor runs units of work as transactions: the records that a unit produces and the
// records that it acknowledges, of a [Worker] or a [Reader], become visible together or not
// at all. Who reads with read_committed sees the outputs of each input once, also when units
// fail, processes are killed and brokers restart.
//
//	err := t.Do(ctx, func(tx *client.Txn) error {
//		if err := tx.Produce(bill(order)); err != nil {
//			return err
//		}
//		return tx.Ack(reader, order)
//	})
//
// Any number of goroutines may call Do. A unit works beside the others, in any order, since
// every record is acknowledged on its own; and two units that want the same record cannot
// both commit: the broker refuses the second with [ErrConflict].
//
// # Inside
//
// Each transactional id of a Transactor is a txnProducer, which has one transaction at a
// time. A unit has none until it sends something: what it produces is kept until it returns,
// as far as that is little. Then its records and its acknowledgements are sent at the same
// time, and when all have been answered, EndTxn. What happens then to the records is told to
// the Reader or Worker that they are of (txnAcks).
//
// All requests are the Transactor's own, in the second version of transactions (KIP-890),
// where each transaction has an epoch of its own. kgo's producer keeps its id and epoch to
// itself, ends no transaction that has produced nothing, and knows nothing of a
// TxnOffsetCommit that it has not sent.
type Transactor struct {
	cfg    transactorConfig
	idle   chan *txnProducer
	all    []*txnProducer
	topics topicCache

	ctx     context.Context // of requests that end transactions; ends when Close loses patience
	cancel  context.CancelFunc
	ending  sync.WaitGroup // units, and ends of transactions
	closing sync.Once

	mu struct {
		sync.Mutex
		closed bool
	}
}

// OpenTransactor connects, and takes over its transactional ids: transactions that a former
// Transactor of the same name left open are aborted. It fails with a [FeatureError] if the
// broker does not know individual commits.
func OpenTransactor(ctx context.Context, opts ...TransactorOpt) (*Transactor, error) {
	cfg := defaultTransactorConfig()
	for _, o := range opts {
		o.applyTransactor(&cfg)
	}
	if cfg.prefix == "" {
		cfg.prefix = "lacuna-" + uuid.NewString()
	}
	if err := cfg.validate(); err != nil {
		return nil, fmt.Errorf("open a transactor: %w", err)
	}
	t := &Transactor{cfg: cfg, idle: make(chan *txnProducer, cfg.atATime)}
	t.ctx, t.cancel = context.WithCancel(context.Background())
	if err := t.begin(ctx); err != nil {
		t.disconnect()
		return nil, fmt.Errorf("open transactor %s: %w", cfg.prefix, err)
	}
	return t, nil
}

func (t *Transactor) begin(ctx context.Context) error {
	for i := range t.cfg.atATime {
		p, err := newTxnProducer(t, fmt.Sprintf("%s-%d", t.cfg.prefix, i))
		if err != nil {
			return err
		}
		t.all = append(t.all, p)
	}
	if err := requireFeatures(ctx, t.all[0].cl, protocol.FeatureIndividualCommit); err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(ctx)
	for _, p := range t.all {
		group.Go(func() error { return p.begin(ctx) })
	}
	if err := group.Wait(); err != nil {
		return err
	}
	for _, p := range t.all {
		t.idle <- p
	}
	return nil
}

func (t *Transactor) disconnect() {
	t.cancel()
	for _, p := range t.all {
		p.cl.Close()
	}
}

// Do runs a unit of work as a transaction. It commits when the unit returns nil, and aborts
// otherwise. The error is
//
//   - nil: it is committed, durably and whole.
//   - what the unit returned, as it is: nothing of it has happened.
//   - a [TransactionError] with [ErrAborted]: the same, for the reason that it wraps. If that is
//     [ErrConflict], a record was not the caller's any more.
//   - a [TransactionError] with [ErrOutcomeUnknown], when ctx or the patience of Close ended
//     while the broker did not say what became of it.
//
// Records that an aborted unit acknowledged come again: from their Reader, or to a worker of
// their group. So a caller need not try again by itself; a unit with other inputs may.
//
// When ctx ends before the outcome is decided, the transaction is aborted. A unit may call Do
// for another one, which has nothing to do with the first.
func (t *Transactor) Do(ctx context.Context, unit func(*Txn) error) (err error) {
	if !t.enter() {
		return ErrTransactorClosed
	}
	defer t.ending.Done()
	tx := newTxn(ctx, t)
	err = errPanicked
	defer func() { err = tx.finish(err) }()
	err = unit(tx)
	return err
}

// TxnHandler handles one record of a [Worker] in a transaction, which it may produce in. Nil
// commits the transaction, with the record accepted in it; an error aborts it, and releases
// or rejects the record as for a [Handler].
type TxnHandler func(ctx context.Context, tx *Txn, r *ShareRecord) error

// Handler makes a handler for [OpenWorker] of one that works in transactions: a transaction
// for each record. The Transactor must be closed after the Worker.
//
// A record whose transaction was committed counts as [Accepted]. If it was aborted after the
// broker had the acknowledgement, the broker has released the record already.
func (t *Transactor) Handler(handle TxnHandler) Handler {
	return func(ctx context.Context, r *ShareRecord) error {
		return t.Do(ctx, func(tx *Txn) error {
			if err := handle(ctx, tx, r); err != nil {
				return err
			}
			return tx.Accept(r)
		})
	}
}

// enter counts a unit, unless the Transactor is closed.
func (t *Transactor) enter() bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.mu.closed {
		return false
	}
	t.ending.Add(1)
	return true
}

// Close waits until the units that run have returned and their transactions are ended, and
// closes the connections. When ctx ends first it asks no more what became of transactions;
// what is still open is aborted by the broker after [TransactionTimeout], or when the next
// Transactor of the name opens. It still waits for units to return. Readers and Workers whose
// records are acknowledged here should be closed before.
func (t *Transactor) Close(ctx context.Context) error {
	t.mu.Lock()
	t.mu.closed = true
	t.mu.Unlock()
	var err error
	t.closing.Do(func() {
		ended := make(chan struct{})
		go func() {
			t.ending.Wait()
			close(ended)
		}()
		select {
		case <-ended:
		case <-ctx.Done():
			err = fmt.Errorf("close transactor %s: wait for transactions to end: %w", t.cfg.prefix, context.Cause(ctx))
			t.cancel()
			<-ended
		}
		t.disconnect()
	})
	return err
}

// take waits for a producer without a transaction, and sees that it has an epoch.
func (t *Transactor) take(ctx context.Context) (*txnProducer, error) {
	select {
	case p := <-t.idle:
		if err := p.begin(ctx); err != nil {
			t.idle <- p
			return nil, err
		}
		return p, nil
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	case <-t.ctx.Done():
		return nil, ErrTransactorClosed
	}
}

func (t *Transactor) tell(err error) {
	if t.cfg.failed != nil {
		t.cfg.failed(err)
	}
}
