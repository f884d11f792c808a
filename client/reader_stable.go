package client

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/protocol"
)

// txnEpoch tells one transaction from the next of the same producer, since each has an epoch
// of its own.
type txnEpoch struct {
	producerID int64
	epoch      int16
}

// awaitPending returns when the transactions have ended that now hold offsets of the
// partitions. Not when nothing is pending, as Kafka's clients wait: where many members share a
// partition there is always something.
func (r *Reader) awaitPending(ctx context.Context, partitions []*partition) error {
	held, err := r.pendingIn(ctx, partitions)
	for tries := 1; err == nil && len(held) > 0; tries++ {
		if !sleep(ctx, min(r.cfg.backoff(tries), time.Millisecond<<min(tries, 8))) {
			break
		}
		left := slices.DeleteFunc(slices.Clone(partitions), func(p *partition) bool { return held[p.tp] == nil })
		var now map[TopicPartition]map[txnEpoch]bool
		if now, err = r.pendingIn(ctx, left); err != nil {
			break
		}
		for tp, before := range held {
			for x := range before {
				if !now[tp][x] {
					delete(before, x)
				}
			}
			if len(before) == 0 {
				delete(held, tp)
			}
		}
	}
	if ctx.Err() != nil {
		return fmt.Errorf("wait for transactions that hold offsets of group %s: %w", r.cfg.group, context.Cause(ctx))
	}
	return err
}

// pendingIn finds the transactions that hold offsets, by partition.
func (r *Reader) pendingIn(ctx context.Context, partitions []*partition) (map[TopicPartition]map[txnEpoch]bool, error) {
	pages, err := fetchLedgers(ctx, r.cl, r.cfg.group, asked(partitions), protocol.GapsRequest{MaxRuns: 1, MaxPending: gapsPerPage})
	if err != nil {
		return nil, err
	}
	held := make(map[TopicPartition]map[txnEpoch]bool)
	for _, page := range pages {
		for {
			if page.err == nil && page.pending == nil {
				page.err = ErrNoEcho
			}
			if page.err != nil {
				return nil, ledgerError(r.cfg.group, &page)
			}
			for _, t := range page.pending.Transactions {
				if held[page.tp] == nil {
					held[page.tp] = make(map[txnEpoch]bool)
				}
				held[page.tp][txnEpoch{t.ProducerID, t.ProducerEpoch}] = true
			}
			from := page.pending.CompleteTo
			if from < 0 {
				break
			}
			page, err = fetchLedger(ctx, r.cl, r.cfg.group, page.tp, page.id, protocol.GapsRequest{From: from, MaxRuns: 1, MaxPending: gapsPerPage})
			if err != nil {
				return nil, err
			}
			if page.pending != nil && page.pending.CompleteTo >= 0 && page.pending.CompleteTo <= from {
				page.err = fmt.Errorf("the broker does not get past offset %d", from)
			}
		}
	}
	return held, nil
}

// asked names partitions as a request for their ledgers does.
func asked(partitions []*partition) map[string]topicPartitions {
	ask := make(map[string]topicPartitions)
	for _, p := range partitions {
		t := ask[p.tp.Topic]
		t.id, t.numbers = p.id, append(t.numbers, p.tp.Partition)
		ask[p.tp.Topic] = t
	}
	return ask
}

// readable are the partitions that are read at the moment.
func (r *Reader) readable() (partitions []*partition) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range r.mu.partitions {
		if p.broken == nil && p.leader >= 0 {
			partitions = append(partitions, p)
		}
	}
	return partitions
}
