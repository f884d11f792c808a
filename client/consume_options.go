package client

import (
	"errors"
	"fmt"
	"time"

	"github.com/lacunamq/lacuna/protocol"
	"github.com/twmb/franz-go/pkg/kgo"
)

// ConsumeOpt is an option of both [OpenReader] and [OpenWorker].
type ConsumeOpt interface {
	ReaderOpt
	WorkerOpt
}

type consumeOpt func(*consumeConfig)

func (o consumeOpt) applyReader(cfg *readerConfig) { o(&cfg.consumeConfig) }
func (o consumeOpt) applyWorker(cfg *workerConfig) { o(&cfg.consumeConfig) }

// consumeConfig is what a Reader and a Worker are told alike.
type consumeConfig struct {
	kafka  []kgo.Opt
	group  string
	topics []string
	filter protocol.KeyFilter

	refreshInterval time.Duration
	backoff         func(tries int) time.Duration

	fetchMaxWait           time.Duration
	fetchMinBytes          int32
	fetchMaxBytes          int32
	fetchMaxPartitionBytes int32
}

func defaultConsumeConfig() consumeConfig {
	return consumeConfig{
		refreshInterval:        10 * time.Second,
		backoff:                defaultBackoff,
		fetchMaxWait:           500 * time.Millisecond,
		fetchMinBytes:          1,
		fetchMaxBytes:          50 << 20,
		fetchMaxPartitionBytes: 1 << 20,
	}
}

// filtered tells that a part of the keys is wanted only.
func (cfg *consumeConfig) filtered() bool { return len(cfg.filter.Ranges)+len(cfg.filter.Keys) > 0 }

func (cfg *consumeConfig) validateFilter() error {
	for _, r := range cfg.filter.Ranges {
		if r.Lo > r.Hi {
			return fmt.Errorf("slot range %d-%d is inverted", r.Lo, r.Hi)
		}
	}
	for _, key := range cfg.filter.Keys {
		if len(key) > protocol.MaxKeyBytes {
			return fmt.Errorf("a key of %d bytes is longer than the %d that a filter takes", len(key), protocol.MaxKeyBytes)
		}
	}
	if n := len(cfg.filter.Ranges) + len(cfg.filter.Keys); n > protocol.MaxKeysAndRanges {
		return fmt.Errorf("%d slot ranges and keys are more than the %d that a fetch takes", n, protocol.MaxKeysAndRanges)
	}
	return nil
}

func (cfg *consumeConfig) validateLimits() error {
	switch {
	case cfg.refreshInterval <= 0:
		return fmt.Errorf("refresh interval %v is not positive", cfg.refreshInterval)
	case cfg.fetchMaxWait < 0 || cfg.fetchMaxWait > time.Hour:
		return fmt.Errorf("fetch max wait %v is not between 0 and an hour", cfg.fetchMaxWait)
	case cfg.fetchMinBytes < 0 || cfg.fetchMaxBytes <= 0 || cfg.fetchMaxPartitionBytes <= 0:
		return errors.New("a fetch's byte limit is not positive")
	}
	return nil
}
