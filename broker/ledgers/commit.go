package ledgers

import (
	"context"
	"fmt"
	"math"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// PartitionCommit is what is committed of one partition.
type PartitionCommit struct {
	extension.TopicPartition
	individualcommit.Request
	Individual bool    // the request carries the extension's field, and may found a ledger
	Origin     int64   // where a ledger starts that is founded without a committed offset; below 0: at the log start
	Metadata   *string // of a cumulative commit; nil keeps what there is
}

// pureReopen tells that nothing is committed.
func (p *PartitionCommit) pureReopen() bool {
	return p.Offset == individualcommit.NoOffset && len(p.Commit) == 0 && len(p.Reopen) > 0
}

// Result is what became of one partition of a commit.
type Result struct {
	Err               error
	Stable, MaxCommit int64 // after the commit
}

// Commit is a commit that has been carried out and is to become durable.
type Commit struct {
	s       *shard
	group   string
	txn     *individualcommit.Producer // of the transaction that it belongs to; nil: none
	parts   []PartitionCommit
	results []Result
	receipt journal.Receipt
	changed []individualcommit.ID // ledgers whose stable offset may now stand on an absent offset
	urgent  []individualcommit.ID // ledgers that the primary topic follows before the answer
}

// Route keeps ledgers of a group from being founded until release is called, and tells
// which of its partitions have one. Between, the caller begins plain commits of the
// others; it must not wait for anything else.
func (c *Coordinator) Route(ctx context.Context, group string) (has func(extension.TopicPartition) bool, release func(), err error) {
	s := c.shardOf(group)
	s.founding.RLock()
	if _, err := s.lock(ctx, false); err != nil {
		s.founding.RUnlock()
		return nil, nil, err
	}
	s.mu.Unlock()
	return func(tp extension.TopicPartition) bool { return s.has(idOf(group, tp)) }, s.founding.RUnlock, nil
}

// has tells whether there is a ledger, trusted or not. While the shard is to be loaded
// anew there may be one: a commit that finds none then is to be tried again.
func (s *shard) has(id individualcommit.ID) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.loaded == nil {
		return s.c.opts.Journal.Written(s.index)
	}
	return s.mu.loaded.state.Get(id) != nil
}

// Begin carries out a commit, in the order of the calls; each partition is done whole or
// not at all. Partitions without a ledger get one if their commit is individual. It
// waits for the group, not for the disk.
func (c *Coordinator) Begin(ctx context.Context, m *extension.Member, parts []PartitionCommit) *Commit {
	return c.begin(ctx, m, nil, parts)
}

// BeginInTransaction is Begin for what is to be committed with the transaction of p: it is
// pending until BeginEnd, and the results tell of the ledgers without it. Offsets to
// commit must be open, or pending in the same transaction; Reopen must be empty. A ledger
// that is founded stays, whatever becomes of the transaction.
func (c *Coordinator) BeginInTransaction(ctx context.Context, m *extension.Member, p individualcommit.Producer, parts []PartitionCommit) *Commit {
	return c.begin(ctx, m, &p, parts)
}

func (c *Coordinator) begin(ctx context.Context, m *extension.Member, txn *individualcommit.Producer, parts []PartitionCommit) *Commit {
	commit := &Commit{s: c.shardOf(m.Group), group: m.Group, txn: txn, parts: parts, results: make([]Result, len(parts))}
	if err := commit.begin(ctx, m); err != nil {
		commit.failAll(err)
	}
	return commit
}

func (t *Commit) failAll(err error) {
	for i := range t.results {
		t.results[i] = Result{Err: err}
	}
	t.receipt, t.changed, t.urgent = journal.Receipt{}, nil, nil
}

func (t *Commit) begin(ctx context.Context, m *extension.Member) error {
	if len(t.group) > math.MaxInt16 {
		return fmt.Errorf("a group's name of %d bytes does not fit into a record: %w", len(t.group), kerr.InvalidGroupID)
	}
	missing, err := t.missing(ctx)
	if err != nil {
		return err
	}
	var committed map[extension.TopicPartition]extension.CommittedOffset
	if len(missing) > 0 {
		t.s.founding.Lock()
		defer t.s.founding.Unlock()
		offsets, err := t.s.c.opts.Committed.Get(ctx, t.group, missing)
		if err != nil {
			return fmt.Errorf("read the committed offsets of group %s: %w", t.group, err)
		}
		committed = make(map[extension.TopicPartition]extension.CommittedOffset, len(offsets))
		for _, o := range offsets {
			committed[o.TopicPartition] = o
		}
	}
	operator := m.Anonymous() && t.pureReopen()
	if err := t.keepAbsentClosed(ctx, committed); err != nil {
		return err
	}
	if operator {
		return t.carryOut(committed)
	}
	var failed error
	if err := t.s.c.opts.Members.Check(ctx, m, func() { failed = t.carryOut(committed) }); err != nil {
		return err
	}
	return failed
}

// keepAbsentClosed leaves out of what is to be reopened the offsets that hold no record,
// and those above all that is committed, which are open anyway.
func (t *Commit) keepAbsentClosed(ctx context.Context, committed map[extension.TopicPartition]extension.CommittedOffset) error {
	for i := range t.parts {
		p := &t.parts[i]
		if len(p.Reopen) == 0 {
			continue
		}
		bounds, err := t.s.c.opts.Log.Bounds(p.TopicPartition)
		if err != nil {
			continue // who carries it out says what is wrong
		}
		top := max(p.Offset, p.Origin, committed[p.TopicPartition].Offset, t.s.maxCommit(idOf(t.group, p.TopicPartition)))
		if p.Reopen, err = t.s.c.present(ctx, p.TopicPartition, within(p.Reopen, bounds.Start, top), bounds.LSO); err != nil {
			return err
		}
	}
	return nil
}

// within is what of runs lies in [start, end).
func within(runs []individualcommit.Run, start, end int64) (kept []individualcommit.Run) {
	for _, r := range runs {
		if r = (individualcommit.Run{Start: max(r.Start, start), End: min(r.End, end)}); r.Start < r.End {
			kept = append(kept, r)
		}
	}
	return kept
}

// maxCommit is that of a ledger, 0 without one.
func (s *shard) maxCommit(id individualcommit.ID) int64 {
	s.mu.Lock()
	defer s.mu.Unlock()
	if e := s.trustedLocked(id); e != nil {
		return e.Ledger.MaxCommit()
	}
	return 0
}

func (t *Commit) pureReopen() bool {
	for i := range t.parts {
		if !t.parts[i].pureReopen() {
			return false
		}
	}
	return true
}

// missing are the partitions for which a ledger has to be founded.
func (t *Commit) missing(ctx context.Context) ([]extension.TopicPartition, error) {
	l, err := t.s.lock(ctx, true)
	if err != nil {
		return nil, err
	}
	defer t.s.mu.Unlock()
	var missing []extension.TopicPartition
	for i := range t.parts {
		if p := &t.parts[i]; p.Individual && l.state.Get(idOf(t.group, p.TopicPartition)) == nil {
			missing = append(missing, p.TopicPartition)
		}
	}
	return missing, nil
}

// carryOut changes the ledgers and appends the records that say so. It may hold up the
// group coordinator, so it does not load a shard that was dropped meanwhile.
func (t *Commit) carryOut(committed map[extension.TopicPartition]extension.CommittedOffset) error {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	l := t.s.mu.loaded
	if l == nil {
		return fmt.Errorf("the ledgers of group %s are being loaded: %w", t.group, kerr.CoordinatorLoadInProgress)
	}
	for i := range t.parts {
		t.results[i] = t.one(l, &t.parts[i], committed)
	}
	if err := t.s.appendLocked(); err != nil {
		return err
	}
	t.receipt = l.last
	return nil
}

// Wait waits until the commit is durable and, where a ledger was founded or a committed
// offset fell, until the primary topic has followed. The results are in the order of the
// partitions.
func (t *Commit) Wait(ctx context.Context) []Result {
	if err := t.s.await(ctx, t.receipt); err != nil {
		t.failAll(err)
		return t.results
	}
	if len(t.changed) > 0 {
		t.s.settle(t.changed)
		t.lookAgain()
	}
	if len(t.urgent) > 0 {
		if err := t.s.follow(ctx, t.urgent); err != nil {
			t.failAll(err)
		}
	}
	return t.results
}

// lookAgain answers with what the ledgers are after absent offsets were closed.
func (t *Commit) lookAgain() {
	t.s.mu.Lock()
	defer t.s.mu.Unlock()
	for i := range t.parts {
		if t.results[i].Err != nil {
			continue
		}
		if e := t.s.trustedLocked(idOf(t.group, t.parts[i].TopicPartition)); e != nil {
			t.results[i] = Result{Stable: e.Ledger.Committed(), MaxCommit: e.Ledger.MaxCommit()}
		}
	}
}
