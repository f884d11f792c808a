package dealer

import (
	"context"
	"errors"
	"fmt"

	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"go.uber.org/zap"
)

// partition is a share partition that somebody fetches from, or has records of.
type partition struct {
	key
	d      *Dealer
	opened chan struct{} // closed when it can be used, or openErr is set
	// openErr is why it cannot be used.
	openErr error
	log     Log
	ledger  *ledgers.Share
	// wake holds a signal when there may be something to do for the partition's goroutine.
	wake    chan struct{}
	ctx     context.Context // ends with the partition
	cancel  context.CancelFunc
	ended   chan struct{} // closed when its goroutine has ended
	reader  reader        // of the goroutine
	letters letters

	// What follows belongs to who holds the ledger's lock, but for locked.gone.
	locked struct {
		gone     bool // there is another partition in its place, or none
		dealing  *cooperative.Dispatcher
		limits   cooperative.Limits
		view     *share.View
		changes  cooperative.Changes
		waiting  map[string]waiter // by member
		ready    []string
		outcomes []cooperative.Outcome
		batches  batchEnds
		// recordBytes is what a record takes in the log, on average of those read last.
		recordBytes int
	}
}

// waiter is a fetch that waits for records of a partition.
type waiter struct {
	fetch *fetch
	index int // of the partition in the fetch
}

func newPartition(d *Dealer, k key) *partition {
	p := &partition{key: k, d: d, opened: make(chan struct{}), wake: make(chan struct{}, 1), ended: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(d.ctx)
	p.locked.waiting = make(map[string]waiter)
	p.locked.recordBytes = 1
	return p
}

// open founds the ledger if there is none, restores the dispatcher and begins to deal.
func (p *partition) open(ctx context.Context) (err error) {
	if p.log, err = p.d.opts.Log(p.TopicPartition); err != nil {
		return err
	}
	origin, err := p.d.origin(ctx, p.key, p.log)
	if err != nil {
		return err
	}
	if p.ledger, err = p.d.opts.Ledgers.OpenShare(ctx, p.group, p.TopicPartition, origin, p); err != nil {
		return fmt.Errorf("%s: open the ledger: %w", p.key, err)
	}
	// The view is read now that the partition is to be found: what changes later is told.
	view, err := p.d.opts.Groups.Share(ctx, p.group)
	if err == nil {
		err = p.restore(view)
	}
	if err != nil {
		p.ledger.Close()
		return err
	}
	p.d.wg.Go(p.run)
	return nil
}

// origin is where a ledger is to begin that is not there, 0 if it is.
func (d *Dealer) origin(ctx context.Context, k key, log Log) (int64, error) {
	founded, err := d.opts.Ledgers.Founded(ctx, k.group, k.TopicPartition)
	if err != nil || founded {
		return 0, err
	}
	origin, err := d.opts.Settings(k.group).Origin(log)
	if err != nil {
		return 0, fmt.Errorf("%s: where to begin: %w", k, err)
	}
	return origin, nil
}

// restore makes the dispatcher from what is logged.
func (p *partition) restore(view *share.View) error {
	var corrupt error
	_, err := p.do(func(l *individualcommit.Ledger) {
		s := &p.locked
		s.view, s.limits = view, p.current().Limits
		s.dealing = cooperative.New(p.config(view), l)
		for block, value := range p.ledger.Counts() {
			if err := s.dealing.RestoreCounts(block, value, &s.changes); err != nil {
				corrupt = errors.Join(corrupt, fmt.Errorf("offsets %d to %d: %w", block*cooperative.BlockOffsets, (block+1)*cooperative.BlockOffsets-1, err))
			}
		}
		var pending []individualcommit.Run
		for r := range l.Pending(0) {
			pending = append(pending, r)
		}
		s.dealing.RestorePending(pending)
	})
	if corrupt != nil {
		p.d.opts.Logger.Error("delivery counts cannot be read: their records count as never delivered",
			zap.Stringer("partition", p.key), zap.Error(corrupt))
	}
	return err
}

// config is how a group's records are dealt.
func (p *partition) config(v *share.View) cooperative.Config {
	c := cooperative.Config{Limits: p.current().Limits, Partition: p.Partition}
	if v == nil {
		return c
	}
	switch v.Mode() {
	case share.KeyOrdered:
		c.Mode = cooperative.KeyOrdered
	case share.KeyRange:
		// Without buckets nobody may fetch; they come with the first member.
		if b := v.Buckets(p.Topic); b != nil {
			c.Mode, c.Line, c.Assignment = cooperative.KeyRange, b.Line, b
		} else {
			c.Mode = cooperative.KeyOrdered
		}
	case share.RoundRobin:
	}
	return c
}

// current are the group's settings.
func (p *partition) current() *Settings { return p.d.settingsOf(p.group) }

// do calls f under the ledger's lock, serves what became servable, and logs what was
// decided. Without an error the receipt says when that is durable.
func (p *partition) do(f func(l *individualcommit.Ledger)) (ledgers.ShareReceipt, error) {
	s := &p.locked
	return p.ledger.Do(&s.changes, func(l *individualcommit.Ledger) {
		s.changes.Reset()
		f(l)
		p.serve()
		s.changes.Tidy()
		p.letters.add(p, s.changes.DeadLetters)
	})
}

// adopt takes in who is in the group now. The ledger's lock is held.
func (p *partition) adopt(view *share.View, gone []string) {
	s := &p.locked
	nowMs := p.d.nowMs()
	for _, member := range gone {
		p.dismiss(member, nowMs)
	}
	if old := s.view; old != nil {
		for _, member := range old.Members() {
			if view == nil || !view.Member(member) {
				p.dismiss(member, nowMs)
			}
		}
	}
	s.view = view
	p.adoptMode(view)
}

// dismiss frees what a member has, and ends its fetch.
func (p *partition) dismiss(member string, nowMs int64) {
	s := &p.locked
	if w, ok := s.waiting[member]; ok {
		delete(s.waiting, member)
		w.fetch.signal()
	}
	s.dealing.MemberLeft(member, nowMs, &s.changes)
}

// adoptMode takes in how the group's records are dealt now.
func (p *partition) adoptMode(view *share.View) {
	s := &p.locked
	is, wanted := s.dealing.Config(), p.config(view)
	if wanted.Mode != is.Mode || wanted.Mode == cooperative.KeyRange && wanted.Line != is.Line {
		s.dealing.SetMode(wanted)
		return
	}
	if wanted.Mode == cooperative.KeyRange && !wanted.Assignment.(*share.Buckets).Equal(is.Assignment.(*share.Buckets)) {
		s.dealing.SetAssignment(wanted.Assignment)
	}
}

// rouse sees that the goroutine looks at everything anew.
func (p *partition) rouse() {
	select {
	case p.wake <- struct{}{}:
	default:
	}
}

// end ends the partition and waits until nothing of it runs any more.
func (p *partition) end() {
	<-p.opened
	if p.openErr != nil {
		return
	}
	p.cancel()
	<-p.ended
}

// Committed is part of ledgers.ShareOwner.
func (p *partition) Committed(runs []individualcommit.Run, out *cooperative.Changes) {
	if p.locked.dealing != nil {
		p.locked.dealing.Settle(runs, out)
		p.rouse()
	}
}

// Reopened is part of ledgers.ShareOwner.
func (p *partition) Reopened(runs []individualcommit.Run, out *cooperative.Changes) {
	if p.locked.dealing != nil {
		p.locked.dealing.Reopened(runs, out)
		p.rouse()
	}
}

// Advanced is part of ledgers.ShareOwner.
func (p *partition) Advanced(logStart int64, out *cooperative.Changes) {
	if p.locked.dealing != nil {
		p.locked.dealing.AdvanceStart(logStart, out)
		p.rouse()
	}
}

// AppendCounts is part of ledgers.ShareOwner.
func (p *partition) AppendCounts(dst []byte, block int64) []byte {
	return p.locked.dealing.AppendCounts(dst, block)
}

// Gone is part of ledgers.ShareOwner: fetches begin again with what is there instead.
func (p *partition) Gone() {
	p.locked.gone = true
	for member, w := range p.locked.waiting {
		delete(p.locked.waiting, member)
		w.fetch.again()
	}
	p.d.forget(p)
	p.cancel()
}
