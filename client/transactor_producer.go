package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// txnProducer is one transactional id, with its producer id and epoch, and connections of its
// own: in one connection its requests would wait for those of other transactions. It belongs
// to whoever took it from the idle ones.
type txnProducer struct {
	t           *Transactor
	name        string // the transactional id
	cl          *kgo.Client
	id          int64 // -1: it needs an epoch first
	epoch       int16
	partitioner partitioning
}

// transactionsVersion is the first version of EndTxn and of TxnOffsetCommit that belongs to
// the second version of transactions; producesVersion that of Produce.
const (
	transactionsVersion = 5
	producesVersion     = 12
)

func newTxnProducer(t *Transactor, name string) (*txnProducer, error) {
	// kgo writes its own acks into every Produce.
	cl, err := kgo.NewClient(append(append([]kgo.Opt(nil), t.cfg.kafka...), kgo.RequiredAcks(kgo.AllISRAcks()))...)
	if err != nil {
		return nil, err
	}
	return &txnProducer{t: t, name: name, cl: cl, id: -1, partitioner: newPartitioning(cl)}, nil
}

// begin takes over the transactional id, unless this producer has it. What passes is tried
// again until ctx ends; that includes waiting for the abort of a transaction that the one
// before left open.
func (p *txnProducer) begin(ctx context.Context) error {
	if p.id >= 0 {
		return nil
	}
	req := kmsg.NewPtrInitProducerIDRequest()
	req.TransactionalID, req.TransactionTimeoutMillis = &p.name, int32(p.t.cfg.timeout.Milliseconds())
	req.ProducerID, req.ProducerEpoch = -1, -1
	for tries := 1; ; tries++ {
		resp, err := req.RequestWith(ctx, p.cl)
		answered := err == nil
		if answered {
			err = kerr.ErrorForCode(resp.ErrorCode)
		}
		switch {
		case err == nil:
			p.id, p.epoch = resp.ProducerID, resp.ProducerEpoch
			return nil
		case !passing(err, answered):
			return fmt.Errorf("take over transactional id %s: %w", p.name, err)
		case !sleep(ctx, p.pause(tries, err)):
			return fmt.Errorf("take over transactional id %s: %w", p.name, errors.Join(context.Cause(ctx), err))
		}
	}
}

// concurrentPause is how long to wait for the end of the transaction before: the broker is
// writing its markers.
const concurrentPause = 5 * time.Millisecond

// pause is how long to wait after so many tries, the last of which failed with err.
func (p *txnProducer) pause(tries int, err error) time.Duration {
	if errors.Is(err, kerr.ConcurrentTransactions) && tries < 100 {
		return concurrentPause
	}
	return p.t.cfg.backoff(tries)
}

// gone notes that somebody else has the transactional id, or that nobody knows the epoch.
func (p *txnProducer) gone() { p.id, p.epoch = -1, -1 }

// txnOutcome is what became of a transaction.
type txnOutcome int8

const (
	txnAborted txnOutcome = iota
	txnCommitted
	txnUnknown // one of the two
)

// end commits or aborts, and finds out what came of it: a request without an answer is sent
// again, with the same epoch, by which the broker knows it. The outcome is unknown only if
// ctx ends first, or if somebody took the transactional id over between two tries. An abort
// that cannot be confirmed is one all the same: whoever sent no commit has committed nothing.
func (p *txnProducer) end(ctx context.Context, commit bool) (txnOutcome, error) {
	unheard := false // a commit was sent that may have been carried out
	for tries := 1; ; tries++ {
		err := p.sendEnd(ctx, commit)
		switch {
		case err == nil && commit:
			return txnCommitted, nil
		case err == nil:
			return txnAborted, nil
		case commit && errors.Is(err, kerr.TransactionAbortable):
			_, also := p.end(ctx, false)
			return txnAborted, errors.Join(err, also)
		case errors.Is(err, kerr.InvalidTxnState): // the broker has aborted it, because of its time-out
			p.gone()
			return txnAborted, err
		case producerGone(err):
			p.gone()
			return endedBy(commit && unheard), err
		}
		if !errors.Is(err, kerr.ConcurrentTransactions) {
			unheard = true
			p.t.tell(fmt.Errorf("end a transaction of %s: %w", p.name, err))
		}
		if refusedForGood(err) || !sleep(ctx, p.pause(tries, err)) {
			p.gone()
			return endedBy(commit), errors.Join(context.Cause(ctx), err)
		}
	}
}

func endedBy(unknown bool) txnOutcome {
	if unknown {
		return txnUnknown
	}
	return txnAborted
}

// refusedForGood tells that EndTxn will not be answered otherwise. An error that says nothing
// of the transaction, such as UNKNOWN_SERVER_ERROR, is not of that kind.
func refusedForGood(err error) bool {
	return errors.Is(err, kgo.ErrClientClosed) || errors.Is(err, errOldTransactions) ||
		errors.Is(err, kerr.TransactionalIDAuthorizationFailed) || errors.Is(err, kerr.UnsupportedVersion) ||
		errors.Is(err, kerr.InvalidRequest)
}

// sendEnd sends one EndTxn, and takes the epoch of the next transaction from its answer.
func (p *txnProducer) sendEnd(ctx context.Context, commit bool) error {
	req := kmsg.NewPtrEndTxnRequest()
	req.TransactionalID, req.ProducerID, req.ProducerEpoch, req.Commit = p.name, p.id, p.epoch, commit
	resp, err := req.RequestWith(ctx, p.cl)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return err
	}
	if resp.Version < transactionsVersion || resp.ProducerID < 0 {
		p.gone() // it is ended, and the epoch stays: begin anew
		return nil
	}
	p.id, p.epoch = resp.ProducerID, resp.ProducerEpoch
	return nil
}
