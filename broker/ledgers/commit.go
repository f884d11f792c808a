package ledgers

import (
	"context"
	"errors"
	"fmt"

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
	l, err := s.lock(ctx, false)
	if err != nil {
		s.founding.RUnlock()
		return nil, nil, err
	}
	defer s.mu.Unlock()
	founded := make(map[extension.TopicPartition]bool)
	if l != nil {
		for e := range l.state.Group(group) {
			founded[partitionOf(e.ID)] = true
		}
	}
	return func(tp extension.TopicPartition) bool { return founded[tp] }, s.founding.RUnlock, nil
}

// Begin carries out a commit, in the order of the calls; each partition is done whole or
// not at all. Partitions without a ledger get one if their commit is individual. It
// waits for the group, not for the disk.
func (c *Coordinator) Begin(ctx context.Context, m *extension.Member, parts []PartitionCommit) *Commit {
	commit := &Commit{s: c.shardOf(m.Group), group: m.Group, parts: parts, results: make([]Result, len(parts))}
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
	if m.Anonymous() && t.pureReopen() {
		return t.carryOut(committed)
	}
	var failed error
	if err := t.s.c.opts.Members.Check(ctx, m, func() { failed = t.carryOut(committed) }); err != nil {
		return err
	}
	return failed
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

func (t *Commit) one(l *loaded, p *PartitionCommit, committed map[extension.TopicPartition]extension.CommittedOffset) Result {
	bounds, err := t.s.c.opts.Log.Bounds(p.TopicPartition)
	if err != nil {
		return Result{Err: fmt.Errorf("%w: %w", kerr.UnknownTopicOrPartition, err)}
	}
	e := l.state.Get(idOf(t.group, p.TopicPartition))
	if e == nil {
		return t.found(l, p, committed, bounds)
	}
	if err := e.Trouble(); err != nil {
		return Result{Err: fmt.Errorf("%s: %w: %w", e.ID, kerr.UnsupportedVersion, err)}
	}
	l.advance(e, bounds.Start)
	delta, err := t.decide(e.Ledger, e.ID, p, bounds, 0)
	if err != nil {
		return Result{Err: err}
	}
	if !delta.Empty() {
		stable, offset := e.Ledger.Stable(), e.Ledger.Committed()
		l.state.Log(&l.records, e, delta, p.Metadata, t.s.c.nowMs())
		t.note(l, e.ID, e.Ledger.Stable() != stable, e.Ledger.Committed() < offset)
	}
	return Result{Stable: e.Ledger.Committed(), MaxCommit: e.Ledger.MaxCommit()}
}

// found makes the ledger of a partition that had none, where its group stands.
func (t *Commit) found(l *loaded, p *PartitionCommit, committed map[extension.TopicPartition]extension.CommittedOffset, bounds extension.Bounds) Result {
	id := idOf(t.group, p.TopicPartition)
	at, known := committed[p.TopicPartition]
	if !known {
		// Its ledger was deleted since it was routed or looked for.
		return Result{Err: fmt.Errorf("%s: the ledger was deleted: %w", id, kerr.CoordinatorLoadInProgress)}
	}
	ledger, err := newLedger(p, at, bounds)
	if err != nil {
		return Result{Err: fmt.Errorf("%s: %w", id, wireError(err))}
	}
	delta, err := t.decide(ledger, id, p, bounds, ledgerBytes)
	if err != nil {
		return Result{Err: err}
	}
	metadata := p.Metadata
	if metadata == nil {
		metadata = &at.Metadata
	}
	e := l.state.Found(&l.records, id, ledger, delta, metadata, t.s.c.nowMs())
	t.note(l, id, true, true)
	return Result{Stable: e.Ledger.Committed(), MaxCommit: e.Ledger.MaxCommit()}
}

// decide judges what is asked of a ledger; bytes is what it will take in memory besides.
func (t *Commit) decide(ledger *individualcommit.Ledger, id individualcommit.ID, p *PartitionCommit, bounds extension.Bounds, bytes int64) (individualcommit.Delta, error) {
	delta, err := ledger.Decide(p.Request, bounds.HighWatermark)
	if err != nil {
		return delta, fmt.Errorf("%s: %w", id, wireError(err))
	}
	if err := t.s.c.room(bytes + runBytes*int64(ledger.Growth(delta))); err != nil {
		return delta, fmt.Errorf("%s: %w", id, err)
	}
	return delta, nil
}

// note remembers what is to be done about a ledger that was changed.
func (t *Commit) note(l *loaded, id individualcommit.ID, stableMoved, urgent bool) {
	l.moved[id] = struct{}{}
	if stableMoved {
		t.changed = append(t.changed, id)
	}
	if urgent {
		t.urgent = append(t.urgent, id)
	}
}

// newLedger is the ledger that a partition gets which had none.
func newLedger(p *PartitionCommit, committed extension.CommittedOffset, bounds extension.Bounds) (*individualcommit.Ledger, error) {
	at := bounds.Start
	switch {
	case committed.Offset >= 0:
		at = committed.Offset
	case p.Origin > bounds.HighWatermark:
		return nil, fmt.Errorf("%w: origin %d, the high watermark is %d", individualcommit.ErrOutOfRange, p.Origin, bounds.HighWatermark)
	case p.Origin >= 0:
		at = p.Origin
	}
	return individualcommit.NewLedger(at, bounds.Start, bounds.HighWatermark), nil
}

// About what a run of its own takes in a ledger, and a ledger without any.
const (
	runBytes    = 64
	ledgerBytes = 1024
)

// room refuses what would take the ledgers past their memory.
func (c *Coordinator) room(bytes int64) error {
	if bytes == 0 {
		return nil
	}
	if taken, limit := c.memory.Load(), c.opts.MaxMemoryBytes(); taken+bytes > limit {
		return fmt.Errorf("the ledgers take %d bytes of individual.commit.max.memory.bytes=%d, and %d more are too many: "+
			"commit what is open, or raise the limit: %w", taken, limit, bytes, kerr.PolicyViolation)
	}
	return nil
}

// wireError is Kafka's error for one of the ledger's.
func wireError(err error) error {
	for _, e := range []struct {
		err  error
		kind *kerr.Error
	}{
		{individualcommit.ErrInvalidRuns, kerr.InvalidRequest},
		{individualcommit.ErrOutOfRange, kerr.OffsetOutOfRange},
		{individualcommit.ErrPending, kerr.InvalidRecordState},
	} {
		if errors.Is(err, e.err) {
			return fmt.Errorf("%w: %w", e.kind, err)
		}
	}
	return err
}

// Wait waits until the commit is durable and, where a ledger was founded or a committed
// offset fell, until the primary topic has followed. The results are in the order of the
// partitions.
func (t *Commit) Wait(ctx context.Context) []Result {
	if err := t.s.await(ctx, t.receipt); err != nil {
		t.failAll(err)
		return t.results
	}
	if t.s.settle(t.changed) {
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
