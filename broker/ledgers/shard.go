package ledgers

import (
	"context"
	"fmt"
	"sync"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
)

// shard is one partition of the internal log with its ledgers.
type shard struct {
	c     *Coordinator
	index int32

	// founding is held while a ledger is founded, and shared while plain commits are
	// routed: whether a partition has a ledger does not change under them.
	founding sync.RWMutex
	// following is filled while the primary topic is written, so that an older offset never
	// overwrites a newer, nor one a deletion.
	following chan struct{}
	// loading is held while the shard is loaded.
	loading sync.Mutex

	// mu is the innermost lock. Who holds it reads no log of data.
	mu struct {
		sync.Mutex
		closed bool
		loaded *loaded // nil: not loaded
		memory int64   // that is accounted for
	}
}

// loaded is what a shard knows of its log. It belongs to who holds the shard's lock.
type loaded struct {
	s       *shard
	state   *individualcommit.State
	journal extension.JournalPartition
	last    journal.Receipt // of the last append
	records individualcommit.Records
	batch   []journal.Record
	dirty   map[string]*unseen // by key: what the view has not seen
	lost    []error            // what recovery could not read

	// moved are the ledgers whose committed offset the primary topic may not have.
	moved map[individualcommit.ID]struct{}
	// followed is what the primary topic has, as far as that is known.
	followed map[individualcommit.ID]extension.CommittedOffset
	solid    map[individualcommit.ID]solid // where stable offsets were found to stand

	shares map[individualcommit.ID]*Share // those that are open
	out    cooperative.Changes            // what an owner has to say
	counts []byte
}

// unseen is the newest value of a key, which the view has not seen.
type unseen struct {
	value     []byte
	tombstone bool
}

func newShard(c *Coordinator, index int32) *shard {
	return &shard{c: c, index: index, following: make(chan struct{}, 1)}
}

// lockFollowing keeps others from writing the primary topic until unlock is called.
func (s *shard) lockFollowing(ctx context.Context) (unlock func(), err error) {
	select {
	case s.following <- struct{}{}:
		return func() { <-s.following }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
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

// trustedLocked is the entry of a ledger that is there and sound, else nil.
func (s *shard) trustedLocked(id individualcommit.ID) *individualcommit.Entry {
	if s.mu.loaded == nil {
		return nil
	}
	if e := s.mu.loaded.state.Get(id); e != nil && e.Trouble() == nil {
		return e
	}
	return nil
}

// advance tells a ledger, and its owner, where its log starts.
func (l *loaded) advance(e *individualcommit.Entry, logStart int64) {
	if e.Ledger.AdvanceStart(logStart) {
		l.moved[e.ID] = struct{}{}
		l.tellAdvanced(e, logStart)
	}
}

// forget drops a ledger, with the records that say so.
func (l *loaded) forget(e *individualcommit.Entry) {
	l.state.Delete(&l.records, e)
	delete(l.moved, e.ID)
	delete(l.followed, e.ID)
	delete(l.solid, e.ID)
	l.end(e.ID)
}

// append appends what is collected in records, if anything.
func (l *loaded) append(nowMs int64) error {
	records := l.records.All()
	if len(records) == 0 {
		return nil
	}
	l.batch = l.batch[:0]
	for _, r := range records {
		l.batch = append(l.batch, journal.Record{Key: r.Key, Value: r.Value, TimestampMs: nowMs})
	}
	receipt, err := l.journal.Append(l.batch)
	clear(l.batch)
	if err != nil {
		return fmt.Errorf("log changes of ledgers: %w", err)
	}
	for _, r := range records {
		l.note(r.Key, r.Value)
	}
	l.last = receipt
	l.records.Reset()
	return nil
}

// note keeps a record for the view.
func (l *loaded) note(key, value []byte) {
	u := l.dirty[string(key)]
	if u == nil {
		u = new(unseen)
		l.dirty[string(key)] = u
	}
	u.value, u.tombstone = append(u.value[:0], value...), value == nil
}

// appendLocked appends what is collected. When that fails the shard is to be loaded anew.
func (s *shard) appendLocked() error { return s.appendAtLocked(s.c.nowMs()) }

func (s *shard) appendAtLocked(nowMs int64) error {
	if err := s.mu.loaded.append(nowMs); err != nil {
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
	if l := s.mu.loaded; l != nil {
		l.endAll()
	}
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
