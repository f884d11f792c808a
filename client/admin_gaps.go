package client

import (
	"context"
	"errors"
	"iter"

	"github.com/lacunamq/lacuna/protocol"
)

// GapsPage is a part of a ledger's gaps, all of one moment.
type GapsPage struct {
	// Stable and MaxCommit are the ledger's window at that moment, half-open; both -1 if
	// nothing is committed.
	Stable, MaxCommit int64
	// Gaps are the open runs from the asked offset on, in order.
	Gaps []Run
	// CompleteTo is where to go on: every gap below it, from the asked offset on, is in
	// Gaps. It is -1 if no gap is left out.
	CompleteTo int64
}

// GapsPage returns the gaps of one ledger from an offset on, at most maxRuns of them, of
// which the broker may send fewer.
func (a *Admin) GapsPage(ctx context.Context, group, topic string, partition int32, from int64, maxRuns int) (GapsPage, error) {
	page, err := a.firstPage(ctx, group, TopicPartition{topic, partition}, protocol.GapsRequest{From: from, MaxRuns: int32(min(max(maxRuns, 1), gapsPerPage))})
	if err != nil {
		return GapsPage{}, err
	}
	return GapsPage{Stable: page.stable, MaxCommit: page.maxCommit, Gaps: page.gaps, CompleteTo: page.completeTo}, nil
}

// Gaps iterates over the gaps of one ledger from an offset on, page by page, so that a
// million of them need little memory. While the group commits, every page is of its own
// moment; a gap that closes meanwhile may still be seen, or not.
func (a *Admin) Gaps(ctx context.Context, group, topic string, partition int32, from int64) iter.Seq2[Run, error] {
	return func(yield func(Run, error) bool) {
		page, err := a.firstPage(ctx, group, TopicPartition{topic, partition}, protocol.GapsRequest{From: from, MaxRuns: gapsPerPage})
		if err == nil {
			err = walkLedger(ctx, a.cl, group, page, func(page *ledgerPage) error {
				for _, gap := range page.gaps {
					if !yield(gap, nil) {
						return errEnough
					}
				}
				return nil
			})
		}
		if err != nil && !errors.Is(err, errEnough) {
			yield(Run{}, err)
		}
	}
}

// errEnough ends a walk whose caller has seen enough.
var errEnough = errors.New("enough")

func (a *Admin) firstPage(ctx context.Context, group string, tp TopicPartition, ask protocol.GapsRequest) (ledgerPage, error) {
	if err := a.ready(ctx); err != nil {
		return ledgerPage{}, err
	}
	t, err := a.find(ctx, tp)
	if err != nil {
		return ledgerPage{}, err
	}
	return fetchLedger(ctx, a.cl, group, tp, t.id, ask)
}
