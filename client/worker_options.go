package client

import (
	"errors"
	"fmt"
	"time"
)

// WorkerOpt is an option of [OpenWorker]. Those that are also options of a Reader are
// [Group], [Topics], [Slots], [Keys], [FetchMaxWait], [FetchMinBytes], [FetchMaxBytes],
// [RefreshInterval] and [RetryBackoff].
type WorkerOpt interface{ applyWorker(*workerConfig) }

type workerOpt func(*workerConfig)

func (o workerOpt) applyWorker(cfg *workerConfig) { o(cfg) }

// workerConfig is what a Worker is told.
type workerConfig struct {
	consumeConfig
	concurrency  int
	maxRecords   int
	wholeBatches bool
	order        keyOrder
	rack         *string
	drainTimeout time.Duration
	hooks        WorkerHooks
}

type keyOrder int8

const (
	orderOfGroup keyOrder = iota // as share.delivery.mode says
	orderKept
	orderIgnored
)

func defaultWorkerConfig() workerConfig {
	return workerConfig{consumeConfig: defaultConsumeConfig(), concurrency: 16, maxRecords: 1000, drainTimeout: 30 * time.Second}
}

// Concurrency is how many handlers run at the same time. The default is 16.
func Concurrency(n int) WorkerOpt {
	return workerOpt(func(cfg *workerConfig) { cfg.concurrency = n })
}

// MaxRecords bounds the records that a Worker holds: those with handlers, those that wait
// for one, and those that a fetch on its way may bring. Within it a Worker holds what its
// handlers are at and about a tenth of a second of work more, so that others do not wait for
// what it cannot begin yet. The default is 1000, or [Concurrency] if that is more.
func MaxRecords(n int) WorkerOpt { return workerOpt(func(cfg *workerConfig) { cfg.maxRecords = n }) }

// WholeBatches asks for records by the batches that they were produced in
// (batch-optimized, KIP-1206), which may bring more of them than the Worker has room for.
// The default is to acquire no more than was asked for.
func WholeBatches() WorkerOpt {
	return workerOpt(func(cfg *workerConfig) { cfg.wholeBatches = true })
}

// KeyOrder says whether records with the same key of one partition are handled one after
// the other, in offset order. By default they are if the group's share.delivery.mode is
// key-ordered or key-range; the Worker asks for that when it opens, and again at every
// [RefreshInterval].
func KeyOrder(keep bool) WorkerOpt {
	return workerOpt(func(cfg *workerConfig) {
		cfg.order = orderIgnored
		if keep {
			cfg.order = orderKept
		}
	})
}

// Rack tells the broker where the Worker is.
func Rack(name string) WorkerOpt { return workerOpt(func(cfg *workerConfig) { cfg.rack = &name }) }

// DrainTimeout is how long [Worker.Run] lets handlers finish once its context has ended.
// The default is 30 s.
func DrainTimeout(d time.Duration) WorkerOpt {
	return workerOpt(func(cfg *workerConfig) { cfg.drainTimeout = d })
}

// Hooks tells what happens inside a Worker. It may be given several times.
func Hooks(h WorkerHooks) WorkerOpt {
	return workerOpt(func(cfg *workerConfig) { cfg.hooks = cfg.hooks.and(h) })
}

func (cfg *workerConfig) validate() error {
	switch {
	case cfg.group == "":
		return errors.New("no group: name one with client.Group")
	case len(cfg.topics) == 0:
		return errors.New("nothing to work on: name topics with client.Topics")
	case cfg.concurrency <= 0:
		return fmt.Errorf("concurrency %d is not positive", cfg.concurrency)
	case cfg.maxRecords <= 0:
		return fmt.Errorf("max records %d is not positive", cfg.maxRecords)
	case cfg.drainTimeout < 0:
		return fmt.Errorf("drain timeout %v is negative", cfg.drainTimeout)
	}
	cfg.maxRecords = max(cfg.maxRecords, cfg.concurrency)
	if err := cfg.validateFilter(); err != nil {
		return err
	}
	return cfg.validateLimits()
}
