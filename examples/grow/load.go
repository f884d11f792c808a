package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// load is what comes in.
type load struct {
	cancel context.CancelFunc
	done   chan struct{}
	err    error // once done is closed
}

func startLoad(ctx context.Context, kafka *kgo.Client) *load {
	ctx, cancel := context.WithCancel(ctx)
	l := &load{cancel: cancel, done: make(chan struct{})}
	go func() {
		defer close(l.done)
		l.err = produce(ctx, kafka)
	}()
	return l
}

// end ends the load when what is being written has been.
func (l *load) end() {
	l.cancel()
	<-l.done
}

func (l *load) ended() bool {
	select {
	case <-l.done:
		return true
	default:
		return false
	}
}

// produce writes records of all keys in turn, until ctx ends.
func produce(ctx context.Context, kafka *kgo.Client) error {
	tick := time.NewTicker(10 * time.Millisecond)
	defer tick.Stop()
	for key := 0; ; {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
		}
		records := make([]*kgo.Record, max(*rate/100, 1))
		for i := range records {
			records[i] = &kgo.Record{Topic: topic, Partition: int32(key % partitions), Key: keyOf(key)}
			key = (key + 1) % keys
		}
		produced.Add(int64(len(records)))
		if err := kafka.ProduceSync(context.WithoutCancel(ctx), records...).FirstErr(); err != nil {
			return fmt.Errorf("produce: %w", err)
		}
	}
}

func keyOf(n int) []byte { return fmt.Appendf(nil, "key-%d", n) }
