package client

import (
	"context"
	"fmt"
	"iter"

	"github.com/lacunamq/lacuna/protocol"
)

// PendingCommit is what an open transaction has acknowledged of one topic partition: Runs
// of offsets, and Offset, a stock consumer's plain commit, or -1. They are committed if it
// commits. A producer id has one transaction at a time; kadm's ListTransactions tells the
// transactional id to it.
type PendingCommit = protocol.PendingCommit

// Pending iterates over what open transactions have acknowledged of one topic partition
// for a group, of a share group too, from an offset on. It turns pages, so that a million
// offsets need little memory: a transaction may come more than once, each time with
// higher offsets, and every page is of its own moment. The error of a broker that cannot
// tell is [ErrNoEcho].
func (a *Admin) Pending(ctx context.Context, group, topic string, partition int32, from int64) iter.Seq2[PendingCommit, error] {
	return func(yield func(PendingCommit, error) bool) {
		tp := TopicPartition{topic, partition}
		for from >= 0 {
			pending, err := a.pendingPage(ctx, group, tp, from, gapsPerPage)
			if err != nil {
				yield(PendingCommit{}, err)
				return
			}
			for _, t := range pending.Transactions {
				if !yield(t, nil) {
					return
				}
			}
			if next := pending.CompleteTo; next >= 0 && next <= from {
				yield(PendingCommit{}, ledgerError(group, &ledgerPage{tp: tp, err: fmt.Errorf("the broker does not get past offset %d", next)}))
				return
			}
			from = pending.CompleteTo
		}
	}
}

func (a *Admin) pendingPage(ctx context.Context, group string, tp TopicPartition, from int64, maxRuns int32) (*protocol.Pending, error) {
	page, err := a.firstPage(ctx, group, tp, protocol.GapsRequest{From: from, MaxRuns: 1, MaxPending: maxRuns})
	if err != nil {
		return nil, err
	}
	if page.pending == nil {
		page.err = ErrNoEcho
		return nil, ledgerError(group, &page)
	}
	return page.pending, nil
}

// PendingIn returns the open transaction that has acknowledged one offset for a group, if
// there is one, with nothing but that offset.
func (a *Admin) PendingIn(ctx context.Context, group, topic string, partition int32, offset int64) (PendingCommit, bool, error) {
	pending, err := a.pendingPage(ctx, group, TopicPartition{topic, partition}, offset, 1)
	if err != nil {
		return PendingCommit{}, false, err
	}
	for _, t := range pending.Transactions {
		if len(t.Runs) > 0 && t.Runs[0].Start == offset { // what begins below is cut off there
			t.Offset, t.Runs = protocol.NoOffset, []Run{{Start: offset, End: offset + 1}}
			return t, true, nil
		}
	}
	return PendingCommit{}, false, nil
}
