package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// TransactorOpt is an option of [OpenTransactor]. [SeedBrokers] and [KafkaOpts] are among
// them; of kgo's options about producing, kgo.RecordPartitioner, kgo.ProducerBatchCompression
// (the first codec counts), kgo.ProducerBatchMaxBytes and kgo.AllowAutoTopicCreation have an
// effect here.
type TransactorOpt interface{ applyTransactor(*transactorConfig) }

func (o Opt) applyTransactor(cfg *transactorConfig) { cfg.kafka = append(cfg.kafka, o.kafka...) }

type transactorOpt func(*transactorConfig)

func (o transactorOpt) applyTransactor(cfg *transactorConfig) { o(cfg) }

type transactorConfig struct {
	kafka   []kgo.Opt
	prefix  string
	atATime int
	timeout time.Duration
	backoff func(tries int) time.Duration
	failed  func(error)
}

func defaultTransactorConfig() transactorConfig {
	return transactorConfig{atATime: 4, timeout: 30 * time.Second, backoff: defaultBackoff}
}

// TransactionalID names the Transactor. Its transactional ids are this name with "-0", "-1"
// and so on. One that is opened under the name of another that crashed aborts what that one
// left at once; without a name, a random one is taken, and what a crash leaves is aborted
// after [TransactionTimeout], until when its records are with nobody. Two Transactors that run
// at the same time must not have the same name: they would abort each other's transactions.
func TransactionalID(prefix string) TransactorOpt {
	return transactorOpt(func(cfg *transactorConfig) { cfg.prefix = prefix })
}

// TransactionsAtATime is how many transactions a Transactor has on their way at the same
// time, each with a transactional id and connections of its own. Units of work beyond that
// wait for one only when they have something to send, so it may be far below the number of
// handlers. The default is 4.
func TransactionsAtATime(n int) TransactorOpt {
	return transactorOpt(func(cfg *transactorConfig) { cfg.atATime = n })
}

// TransactionTimeout is how long a transaction may take from its first request on. Then it
// is aborted, by the broker if the Transactor is gone. The default is 30 s; a broker admits
// up to its transaction.max.timeout.ms.
func TransactionTimeout(d time.Duration) TransactorOpt {
	return transactorOpt(func(cfg *transactorConfig) { cfg.timeout = d })
}

// TransactorRetryBackoff is how long to wait before the try after so many. By default it
// doubles from 100 ms to 5 s. What only waits for the transaction before is asked for sooner.
func TransactorRetryBackoff(backoff func(tries int) time.Duration) TransactorOpt {
	return transactorOpt(func(cfg *transactorConfig) { cfg.backoff = backoff })
}

// TransactorFailed is told what went wrong that no caller waits for, such as a transaction
// whose end is still being tried. It must not call the Transactor.
func TransactorFailed(told func(error)) TransactorOpt {
	return transactorOpt(func(cfg *transactorConfig) { cfg.failed = told })
}

func (cfg *transactorConfig) validate() error {
	switch {
	case cfg.atATime <= 0:
		return fmt.Errorf("%d transactions at a time", cfg.atATime)
	case cfg.timeout < time.Millisecond || cfg.timeout.Milliseconds() > 1<<31-1:
		return fmt.Errorf("transaction timeout %v is not between 1 ms and 24 days", cfg.timeout)
	case cfg.backoff == nil:
		return errors.New("no backoff")
	}
	return nil
}
