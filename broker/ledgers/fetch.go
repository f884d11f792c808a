package ledgers

import (
	"context"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/lacunamq/lacuna/protocol"
)

// maxGapRuns is how many runs an answer lists over all its partitions. Who wants more asks
// again, from where it was cut.
const maxGapRuns = 100_000

// GapsQuery says which gaps are wanted.
type GapsQuery struct {
	From    int64
	MaxRuns int32 // of each partition; 0: as many as fit
	// MaxPending is how many runs that are pending are wanted of each partition; 0: none.
	MaxPending int32
}

// View is what a ledger says to those who fetch committed offsets.
type View struct {
	extension.CommittedOffset
	Founded   bool // there is a ledger; nothing else is set if not
	MaxCommit int64
	Open      int64 // offsets below MaxCommit that are not committed
	Pending   bool  // the end of a transaction may change it
	Gaps      []protocol.Run
	// CompleteTo is where to go on for more gaps, protocol.GapsComplete if those are all.
	CompleteTo int64
	// InTransactions is what is pending, nil if it was not asked for.
	InTransactions *protocol.Pending
}

// Fetch gives the ledgers of partitions, in their order; with gaps nil, without gaps.
func (c *Coordinator) Fetch(ctx context.Context, group string, partitions []extension.TopicPartition, gaps *GapsQuery) ([]View, error) {
	s := c.shardOf(group)
	views := make([]View, len(partitions))
	founded, err := s.foundedOf(ctx, group, partitions)
	if err != nil || len(founded) == 0 {
		return views, err
	}
	s.settle(founded)
	receipt, err := s.look(ctx, group, partitions, gaps, views)
	if err != nil {
		return nil, err
	}
	return views, s.await(ctx, receipt)
}

// foundedOf are the ledgers that a group has of partitions.
func (s *shard) foundedOf(ctx context.Context, group string, partitions []extension.TopicPartition) ([]individualcommit.ID, error) {
	l, err := s.lock(ctx, false)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if l == nil {
		return nil, nil
	}
	var founded []individualcommit.ID
	for _, tp := range partitions {
		if id := idOf(group, tp); s.trustedLocked(id) != nil {
			founded = append(founded, id)
		}
	}
	return founded, nil
}

// look fills in the views, and returns what they wait for.
func (s *shard) look(ctx context.Context, group string, partitions []extension.TopicPartition, gaps *GapsQuery, views []View) (journal.Receipt, error) {
	l, err := s.lock(ctx, true)
	if err != nil {
		return journal.Receipt{}, err
	}
	defer s.mu.Unlock()
	left, leftPending := maxGapRuns, maxGapRuns
	for i, tp := range partitions {
		e := s.trustedLocked(idOf(group, tp))
		if e == nil {
			continue
		}
		v := &views[i]
		if v.CommittedOffset, v.Founded = l.committed(e); !v.Founded {
			continue
		}
		v.MaxCommit, v.Pending, v.CompleteTo = e.Ledger.MaxCommit(), e.HasPending(), protocol.GapsComplete
		v.Open = e.Ledger.OpenCount()
		if gaps != nil {
			v.addGaps(e.Ledger, gaps, left)
			left -= len(v.Gaps)
			if gaps.MaxPending > 0 {
				leftPending -= v.addPending(e, gaps, leftPending)
			}
		}
	}
	if err := s.appendLocked(); err != nil {
		return journal.Receipt{}, err
	}
	return l.last, nil
}

func (v *View) addGaps(l *individualcommit.Ledger, q *GapsQuery, limit int) {
	if q.MaxRuns > 0 {
		limit = min(limit, int(q.MaxRuns))
	}
	var next int64
	if v.Gaps, next = l.AppendGaps(nil, q.From, limit); next >= 0 {
		v.CompleteTo = next
	}
}

// addPending adds what is pending, and tells how much that is of the limit.
func (v *View) addPending(e *individualcommit.Entry, q *GapsQuery, limit int) (n int) {
	list, next := e.Pending(q.From, min(limit, int(q.MaxPending)))
	v.InTransactions = &protocol.Pending{CompleteTo: protocol.GapsComplete}
	if next >= 0 {
		v.InTransactions.CompleteTo = next
	}
	for _, t := range list {
		n += len(t.Runs) + 1
		v.InTransactions.Transactions = append(v.InTransactions.Transactions,
			protocol.PendingCommit{ProducerID: t.ID, ProducerEpoch: t.Epoch, Offset: t.Offset, Runs: t.Runs})
	}
	return n
}

// Partitions are those of which a group has a ledger.
func (c *Coordinator) Partitions(ctx context.Context, group string) ([]extension.TopicPartition, error) {
	s := c.shardOf(group)
	l, err := s.lock(ctx, false)
	if err != nil {
		return nil, err
	}
	defer s.mu.Unlock()
	if l == nil {
		return nil, nil
	}
	var partitions []extension.TopicPartition
	for e := range l.state.Group(group) {
		partitions = append(partitions, partitionOf(e.ID))
	}
	return partitions, nil
}
