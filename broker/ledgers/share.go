package ledgers

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"math"

	"github.com/lacunamq/lacuna/broker/journal"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
)

// ErrShareGone is returned for what is done with a Share that is of no use any more.
var ErrShareGone = errors.New("the ledger was deleted, set by an operator, opened by another, or is to be loaded anew")

// Share is the ledger of a share partition for the one who deals its records. All that is
// done with it, and with the owner's dispatcher, is done under the lock of the ledger's
// shard.
type Share struct {
	l     *loaded // to which e belongs
	e     *individualcommit.Entry
	owner ShareOwner
	gone  bool // guarded by the shard's lock
}

// ShareOwner hears of what happens to a ledger otherwise than through its Share. Its
// methods are called under the lock; they must not wait, nor take locks that are held
// around calls into ledgers. The ledger has changed already when it hears of it, and what
// it leaves in out (but for dead letters) is logged together with that change.
type ShareOwner interface {
	// Committed tells of offsets that an operator has committed, or that hold no record.
	Committed(runs []individualcommit.Run, out *cooperative.Changes)
	// Reopened tells of offsets that an operator has reopened.
	Reopened(runs []individualcommit.Run, out *cooperative.Changes)
	// Ended tells of offsets that a transaction had pending, when it ends: they are committed,
	// or open again.
	Ended(runs []individualcommit.Run, committed bool, out *cooperative.Changes)
	// Advanced tells that the log starts at logStart now.
	Advanced(logStart int64, out *cooperative.Changes)
	// Gone tells that the Share is of no use any more: its ledger was deleted, rewound or set
	// by an operator, opened by another, or is to be loaded anew since an append failed. It
	// is the last call.
	Gone()
	// AppendCounts appends the counts of a block, as cooperative.Dispatcher.AppendCounts does.
	AppendCounts(dst []byte, block int64) []byte
}

// ShareReceipt is for what one Do has changed and seen.
type ShareReceipt struct {
	l       *loaded
	receipt journal.Receipt
}

// Done is closed when that is durable, or never will be; Share.Wait tells which.
func (r ShareReceipt) Done() <-chan struct{} { return r.receipt.Done() }

// Do calls f under the lock with the ledger, which f may look at and must not change. The
// Commit and Counts that f leaves in out are applied to the ledger and logged in one
// append; out is otherwise left as it is. The receipt says when that is durable, and what
// f has seen: without changes it is that of the last append of the shard.
//
// The error is ErrShareGone, and f was not called, when the owner was told Gone, or would
// be. With any other error f was called, and the owner was told Gone.
func (s *Share) Do(out *cooperative.Changes, f func(l *individualcommit.Ledger)) (ShareReceipt, error) {
	return s.do(out, func() { f(s.e.Ledger) })
}

// do is Do for an f that may also leave records with s.l.
func (s *Share) do(out *cooperative.Changes, f func()) (ShareReceipt, error) {
	shard := s.l.s
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if s.gone {
		return ShareReceipt{}, ErrShareGone
	}
	f()
	if len(out.Commit) > 0 || len(out.Counts) > 0 || s.l.records.Len() > 0 {
		nowMs := shard.c.nowMs()
		if err := s.l.take(s, out, nowMs); err != nil {
			s.l.end(s.e.ID)
			return ShareReceipt{}, err
		}
		if err := shard.appendAtLocked(nowMs); err != nil {
			return ShareReceipt{}, err
		}
	}
	return ShareReceipt{s.l, s.l.last}, nil
}

// take applies to a ledger what its owner has changed, and leaves the records that say so
// with l. With an error, what owner and ledger know is no longer the same.
func (l *loaded) take(s *Share, out *cooperative.Changes, nowMs int64) error {
	if len(out.Commit) > 0 {
		if err := l.takeCommit(s.e, out.Commit, nowMs); err != nil {
			return fmt.Errorf("%s: commit for its share group: %w", s.e.ID, err)
		}
	}
	for _, block := range out.Counts {
		l.counts = s.owner.AppendCounts(l.counts[:0], block)
		l.state.LogCounts(&l.records, s.e, block, l.counts)
	}
	return nil
}

func (l *loaded) takeCommit(e *individualcommit.Entry, runs []individualcommit.Run, nowMs int64) error {
	delta, err := e.Ledger.Decide(individualcommit.Request{Offset: individualcommit.NoOffset, Commit: runs}, math.MaxInt64)
	if err != nil || delta.Empty() {
		return err
	}
	l.state.Log(&l.records, e, delta, nil, nowMs)
	l.moved[e.ID] = struct{}{}
	return nil
}

// Wait waits until what the receipt is for is durable. When ctx ends first it may still
// become so. Any other error says that it never will be; the shard is then loaded anew,
// and the owner was told Gone.
func (s *Share) Wait(ctx context.Context, r ShareReceipt) error {
	select {
	case <-r.receipt.Done():
	default:
		select {
		case <-r.receipt.Done():
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	err := r.receipt.Err()
	if err == nil {
		return nil
	}
	shard := s.l.s
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if shard.mu.loaded == r.l {
		shard.dropLocked()
	}
	return fmt.Errorf("changes of ledgers are not durable: %w", err)
}

// Counts yields the delivery counts that are logged, by block, rising. It is called, and
// used up, within Do; the values belong to the ledger.
func (s *Share) Counts() iter.Seq2[int64, []byte] { return s.e.Counts() }

// Room refuses, with kerr.PolicyViolation, what would add so many runs to the ledger when
// all ledgers together would come to take more than individual.commit.max.memory.bytes.
// It takes no lock.
func (s *Share) Room(runs int) error { return s.l.s.c.room(runBytes * int64(runs)) }

// Advance tells the ledger where its log starts now, and if that has moved the owner.
// That is also done about once a second.
func (s *Share) Advance() error {
	shard := s.l.s
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if s.gone {
		return ErrShareGone
	}
	bounds, err := shard.c.opts.Log.Bounds(partitionOf(s.e.ID))
	if err != nil {
		return fmt.Errorf("%s: %w", s.e.ID, err)
	}
	s.l.advance(s.e, bounds.Start)
	return shard.appendLocked()
}

// Close says that the owner stops. Nothing of it is called any more.
func (s *Share) Close() {
	shard := s.l.s
	shard.mu.Lock()
	defer shard.mu.Unlock()
	if !s.gone {
		s.gone = true
		delete(s.l.shares, s.e.ID)
	}
}

// end tells the owner of a ledger, if there is one, that its Share is gone.
func (l *loaded) end(id individualcommit.ID) {
	if s := l.shares[id]; s != nil {
		s.gone = true
		delete(l.shares, id)
		s.owner.Gone()
	}
}

func (l *loaded) endAll() {
	for id := range l.shares {
		l.end(id)
	}
}

// tell has the owner of a ledger, if there is one, hear of a change.
func (l *loaded) tell(e *individualcommit.Entry, hear func(ShareOwner, *cooperative.Changes)) {
	s := l.shares[e.ID]
	if s == nil {
		return
	}
	l.out.Reset()
	hear(s.owner, &l.out)
	if err := l.take(s, &l.out, l.s.c.nowMs()); err != nil {
		l.s.c.opts.Logger.Error("a share partition's dispatcher and its ledger disagree: " + err.Error())
		l.end(e.ID)
	}
}

// tellAdvanced has the owner hear where the log starts.
func (l *loaded) tellAdvanced(e *individualcommit.Entry, logStart int64) {
	l.tell(e, func(o ShareOwner, out *cooperative.Changes) { o.Advanced(logStart, out) })
}

// tellCommitted has the owner hear of offsets that became committed.
func (l *loaded) tellCommitted(e *individualcommit.Entry, runs []individualcommit.Run) {
	if len(runs) > 0 {
		l.tell(e, func(o ShareOwner, out *cooperative.Changes) { o.Committed(runs, out) })
	}
}

// tellReopened has the owner hear of offsets that were reopened; without one, the
// deliveries that are logged of them are forgotten.
func (l *loaded) tellReopened(e *individualcommit.Entry, runs []individualcommit.Run) {
	switch {
	case len(runs) == 0:
	case l.shares[e.ID] == nil:
		for _, r := range runs {
			l.cutCounts(e, r)
		}
	default:
		l.tell(e, func(o ShareOwner, out *cooperative.Changes) { o.Reopened(runs, out) })
	}
}

// cutCounts forgets the deliveries of the offsets of a run.
func (l *loaded) cutCounts(e *individualcommit.Entry, gone individualcommit.Run) {
	if !e.HasCounts() {
		return
	}
	var err error
	for block, value := range e.Counts() {
		if first := block * cooperative.BlockOffsets; first >= gone.End || first+cooperative.BlockOffsets <= gone.Start {
			continue
		}
		if l.counts, err = cooperative.CutCounts(l.counts[:0], block, value, gone); err != nil {
			l.s.c.opts.Logger.Error("delivery counts cannot be read and are forgotten: " + err.Error())
		}
		l.state.LogCounts(&l.records, e, block, l.counts)
	}
}

// dropDoneCounts forgets the deliveries of blocks of which all is committed.
func (l *loaded) dropDoneCounts(e *individualcommit.Entry) {
	var open []individualcommit.Run
	for block := range e.Counts() {
		first := block * cooperative.BlockOffsets
		open = e.Ledger.AppendOpen(open[:0], individualcommit.Run{Start: first, End: first + cooperative.BlockOffsets})
		if len(open) == 0 {
			l.state.LogCounts(&l.records, e, block, nil)
		}
	}
}
