package ledgers

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/zap"
)

// shard is one partition of the internal log with its ledgers.
type shard struct {
	c     *Coordinator
	index int32

	// founding is held while a ledger is founded, and shared while plain commits are
	// routed: whether a partition has a ledger does not change under them.
	founding sync.RWMutex
	// following is held while the primary topic is written, so that an older offset never
	// overwrites a newer.
	following sync.Mutex
	// loading is held while the shard is loaded. Only it is, since that asks the group
	// coordinator, which may be waiting for mu.
	loading sync.Mutex

	mu struct {
		sync.Mutex
		closed bool
		loaded *loaded // nil: not loaded
		memory int64   // that is accounted for
	}
}

// loaded is what a shard knows of its log. It belongs to who holds the shard's lock.
type loaded struct {
	s        *shard
	state    *individualcommit.State
	journal  extension.JournalPartition
	last     journal.Receipt // of the last append
	records  individualcommit.Records
	batch    []journal.Record
	dirty    map[string][]byte // by key: what the view has not seen; nil: a tombstone
	followed map[individualcommit.ID]extension.CommittedOffset
	read     []byte // for batches that may hold absent offsets
}

func newShard(c *Coordinator, index int32) *shard { return &shard{c: c, index: index} }

// Reset is part of journal.State.
func (l *loaded) Reset() {
	epoch, _ := l.s.c.opts.Owner.Epoch(l.s.index)
	l.state = individualcommit.NewState(epoch)
	l.dirty = make(map[string][]byte)
}

// Load is part of journal.State. The view holds the newest record of each key.
func (l *loaded) Load(key, value []byte) error { return l.state.Apply(key, value) }

// Apply is part of journal.State. A record that cannot be read puts its own ledger in
// trouble, and no other.
func (l *loaded) Apply(offset int64, record journal.Record) error {
	if err := l.state.Apply(record.Key, record.Value); err != nil {
		l.s.c.opts.Logger.Error("a record of "+individualcommit.TopicName+" cannot be read",
			zap.Int32("partition", l.s.index), zap.Int64("offset", offset), zap.Error(err))
	}
	l.dirty[string(record.Key)] = slices.Clone(record.Value)
	return nil
}

// Lost is part of journal.Tolerant: ledgers of which records are missing are founded
// anew at the offset that the primary topic has.
func (l *loaded) Lost(e *journal.CorruptError) error {
	l.s.c.opts.Logger.Error("records of "+individualcommit.TopicName+" are lost", zap.Int32("partition", l.s.index), zap.Error(e))
	return nil
}

// Checkpoint is part of journal.State.
func (l *loaded) Checkpoint(w journal.Writer) error {
	for key, value := range l.dirty {
		if value == nil {
			w.Delete([]byte(key))
		} else {
			w.Set([]byte(key), value)
		}
	}
	clear(l.dirty)
	return nil
}

// load reads the shard's ledgers from the internal log, unless they are there.
func (s *shard) load(ctx context.Context, unclean bool) error {
	s.loading.Lock()
	defer s.loading.Unlock()
	if there, err := s.isLoaded(); there || err != nil {
		return err
	}
	epoch, owned := s.c.opts.Owner.Epoch(s.index)
	if !owned {
		return kerr.NotCoordinator
	}
	l := &loaded{s: s, followed: make(map[individualcommit.ID]extension.CommittedOffset)}
	var err error
	if l.journal, err = s.c.opts.Journal.Recover(ctx, s.index, epoch, l); err != nil {
		return fmt.Errorf("load the ledgers of partition %d: %w", s.index, err)
	}
	if err := l.mend(ctx, unclean); err != nil {
		return fmt.Errorf("mend the ledgers of partition %d: %w", s.index, err)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return ErrStopped
	}
	s.mu.loaded = l
	s.accountLocked()
	return nil
}

func (s *shard) isLoaded() (bool, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.mu.closed {
		return false, ErrStopped
	}
	return s.mu.loaded != nil, nil
}

// lock takes the shard's lock and gives its ledgers, loading them if need be. With an
// error the lock is not taken. A shard that was never written may have no ledgers, unless
// they are to be made.
func (s *shard) lock(ctx context.Context, create bool) (*loaded, error) {
	for {
		s.mu.Lock()
		if s.mu.closed {
			s.mu.Unlock()
			return nil, ErrStopped
		}
		if s.mu.loaded != nil || !create && !s.c.opts.Journal.Written(s.index) {
			return s.mu.loaded, nil
		}
		s.mu.Unlock()
		if err := s.load(ctx, false); err != nil {
			return nil, err
		}
	}
}

// mend forgets ledgers of topics that are gone, clamps them to the end of their log after
// an unclean stop, and founds those that cannot be trusted anew, where the primary topic
// has their group.
func (l *loaded) mend(ctx context.Context, unclean bool) error {
	for _, e := range slices.Collect(l.state.All()) {
		bounds, err := l.s.c.opts.Log.Bounds(partitionOf(e.ID))
		if err != nil {
			l.state.Delete(&l.records, e)
			continue
		}
		if trouble := e.Trouble(); trouble != nil {
			if err := l.foundAnew(ctx, e, bounds, trouble); err != nil {
				return err
			}
			continue
		}
		e.Ledger.AdvanceStart(bounds.Start)
		if unclean {
			l.state.Clamp(&l.records, e, bounds.HighWatermark)
		}
	}
	return l.append()
}

func (l *loaded) foundAnew(ctx context.Context, e *individualcommit.Entry, bounds extension.Bounds, trouble error) error {
	committed, err := l.s.c.opts.Committed.Get(ctx, e.ID.Group, []extension.TopicPartition{partitionOf(e.ID)})
	if err != nil {
		return fmt.Errorf("found the ledger of %s anew: %w", e.ID, err)
	}
	at := max(committed[0].Offset, bounds.Start)
	l.s.c.opts.Logger.Error("a ledger cannot be trusted and begins anew at the committed offset: what was committed above it may be delivered again",
		zap.Stringer("ledger", e.ID), zap.Int64("offset", at), zap.Error(trouble))
	l.state.Found(&l.records, e.ID, individualcommit.NewLedger(at, bounds.Start, bounds.HighWatermark),
		individualcommit.Delta{}, &committed[0].Metadata, l.s.c.nowMs())
	return nil
}

// append appends what is collected in records.
func (l *loaded) append() error {
	records := l.records.All()
	if len(records) == 0 {
		return nil
	}
	nowMs := l.s.c.nowMs()
	l.batch = l.batch[:0]
	for _, r := range records {
		l.batch = append(l.batch, journal.Record{Key: r.Key, Value: r.Value, TimestampMs: nowMs})
	}
	receipt, err := l.journal.Append(l.batch)
	if err != nil {
		return fmt.Errorf("log changes of ledgers: %w", err)
	}
	for _, r := range records {
		l.dirty[string(r.Key)] = slices.Clone(r.Value)
	}
	l.last = receipt
	l.records.Reset()
	return nil
}

// appendLocked appends what is collected. When that fails the shard is to be loaded anew.
func (s *shard) appendLocked() error {
	if err := s.mu.loaded.append(); err != nil {
		s.dropLocked()
		return err
	}
	s.accountLocked()
	return nil
}

// accountLocked brings the memory of all ledgers up to date.
func (s *shard) accountLocked() {
	memory := int64(0)
	if s.mu.loaded != nil {
		memory = s.mu.loaded.state.MemoryBytes()
	}
	s.c.memory.Add(memory - s.mu.memory)
	s.mu.memory = memory
}

// dropLocked forgets all that is not in the log.
func (s *shard) dropLocked() {
	s.mu.loaded = nil
	s.accountLocked()
}

// await waits until what was appended is durable. If it never will be, the shard is to be
// loaded anew.
func (s *shard) await(ctx context.Context, receipt journal.Receipt) error {
	err := receipt.Wait(ctx)
	if err == nil || ctx.Err() != nil {
		return err
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if l := s.mu.loaded; l != nil && l.last == receipt {
		s.dropLocked()
	}
	return fmt.Errorf("changes of ledgers are not durable: %w", err)
}

func (s *shard) checkpoint(ctx context.Context) error {
	s.mu.Lock()
	l := s.mu.loaded
	if l == nil || len(l.dirty) == 0 {
		s.mu.Unlock()
		return nil
	}
	err := l.journal.Stage(l)
	s.mu.Unlock()
	if err != nil {
		return err
	}
	return l.journal.Commit(ctx)
}

func (s *shard) close() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.mu.closed = true
	s.dropLocked()
}

func partitionOf(id individualcommit.ID) extension.TopicPartition {
	return extension.TopicPartition{Topic: id.Topic, Partition: id.Partition}
}

func idOf(group string, tp extension.TopicPartition) individualcommit.ID {
	return individualcommit.ID{Group: group, Topic: tp.Topic, Partition: tp.Partition}
}
