package dealer

import (
	"context"
	"errors"
	"fmt"
	"sync"

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
	wake   chan struct{}
	ctx    context.Context // ends with the partition
	cancel context.CancelFunc
	reader reader // of the goroutine
	// searched tells that the goroutine has just read for fetches with filters, so that next
	// it reads for the others.
	searched bool
	started  int64 // of the goroutine: where the log starts, as far as the ledger knows
	letters  letters
	news     news
	// committed tells that the group reads committed records only. When that changes the
	// partition gives way to another.
	committed bool

	// What follows belongs to who holds the ledger's lock.
	locked struct {
		dealing  *cooperative.Dispatcher
		book     *individualcommit.Ledger // that of ledger
		ending   bool                     // nothing is dealt any more, so that the partition can end
		limits   cooperative.Limits
		view     *share.View
		changes  cooperative.Changes
		waiting  map[string]waiter // by member
		sieves   map[string]*sieve // by member, of those that fetch with a filter
		turn     bool              // who is served first, with a filter or without
		held     bool              // a fetch waits for the ledgers to have room, which any group may make
		ready    []string
		outcomes []cooperative.Outcome
		batches  batches
		// reopened is what is to be fed although it lies below what was.
		reopened []individualcommit.Run
		// fed is one past the highest offset that was fed.
		fed int64
	}
}

// news are changes of the group that a partition has not heard of yet.
type news struct {
	sync.Mutex
	changes []change
}

func (n *news) add(c change) {
	n.Lock()
	defer n.Unlock()
	n.changes = append(n.changes, c)
}

func (n *news) take() []change {
	n.Lock()
	defer n.Unlock()
	changes := n.changes
	n.changes = nil
	return changes
}

// waiter is a fetch that waits for records of a partition.
type waiter struct {
	fetch *fetch
	index int // of the partition in the fetch
}

func newPartition(d *Dealer, k key) *partition {
	p := &partition{key: k, d: d, opened: make(chan struct{}), wake: make(chan struct{}, 1)}
	p.ctx, p.cancel = context.WithCancel(d.ctx)
	p.reader.decode = d.opts.Decode
	p.letters.retry = make(chan struct{}, 1)
	p.locked.waiting = make(map[string]waiter)
	p.locked.sieves = make(map[string]*sieve)
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
	// The view is read now that the partition is to be found: it is told of what changes
	// later, or has been told.
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

// restore makes the dispatcher from what is logged.
func (p *partition) restore(view *share.View) error {
	var corrupt error
	_, err := p.ledger.Do(&p.locked.changes, func(l *individualcommit.Ledger) {
		s, settings := &p.locked, p.current()
		s.view, s.limits, p.committed = view, settings.Limits, settings.ReadCommitted
		s.book = l
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
		s.fed = s.dealing.FeedFrom()
		p.settle()
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
	return p.ledger.Do(&p.locked.changes, func(l *individualcommit.Ledger) {
		p.locked.changes.Reset()
		p.hear()
		f(l)
		p.settle()
	})
}

// act is do for others than the partition's goroutine, which is to look at everything
// anew after it.
func (p *partition) act(f func(l *individualcommit.Ledger)) (ledgers.ShareReceipt, error) {
	receipt, err := p.do(f)
	p.rouse()
	return receipt, err
}

// settle is what each use of the dispatcher ends with. The ledger's lock is held.
func (p *partition) settle() {
	s := &p.locked
	p.serve()
	s.changes.Tidy()
	p.letters.add(p, s.changes.DeadLetters)
}

// hear takes in, in their order, the changes of the group that there were. The ledger's
// lock is held.
func (p *partition) hear() {
	for _, c := range p.news.take() {
		p.adopt(c.View, c.Gone)
	}
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
	for member, w := range s.waiting {
		if w.fetch.q.Filter == nil && p.mayFetch(member) {
			s.dealing.Wait(member, w.fetch.q.MaxRecords)
		} else {
			s.dealing.Cancel(member)
		}
	}
}

// mayFetch tells whether a member is dealt records.
func (p *partition) mayFetch(member string) bool {
	v := p.locked.view
	return v != nil && v.MayFetch(member, p.Topic, p.Partition)
}

// dismiss frees what a member has, and ends its fetch.
func (p *partition) dismiss(member string, nowMs int64) {
	p.dropWaiter(member)
	delete(p.locked.sieves, member)
	p.locked.dealing.MemberLeft(member, nowMs, &p.locked.changes)
}

// dropWaiter ends the fetch of a member that waits, if there is one.
func (p *partition) dropWaiter(member string) {
	if w, ok := p.locked.waiting[member]; ok {
		delete(p.locked.waiting, member)
		w.fetch.signal()
	}
}

// againAll lets all fetches that wait begin again, with what is there instead.
func (p *partition) againAll() {
	for member, w := range p.locked.waiting {
		delete(p.locked.waiting, member)
		w.fetch.again()
	}
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

// usable tells whether the partition was opened.
func (p *partition) usable() bool {
	select {
	case <-p.opened:
		return p.openErr == nil
	default:
		return false
	}
}

// rouse sees that the goroutine looks at everything anew.
func (p *partition) rouse() { signal(p.wake) }

// signal leaves a signal in a channel that holds one, for whoever looks there next.
func signal(ch chan<- struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
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
		p.locked.reopened = append(p.locked.reopened, runs...)
		for _, sieve := range p.locked.sieves { // what was passed over may be open again
			sieve.next, sieve.found = 0, nil
		}
		p.rouse()
	}
}

// Ended is part of ledgers.ShareOwner.
func (p *partition) Ended(runs []individualcommit.Run, committed bool, out *cooperative.Changes) {
	if p.locked.dealing != nil {
		p.locked.dealing.EndStage(runs, committed, p.d.nowMs(), out)
		p.letters.add(p, out.DeadLetters)
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
	p.againAll()
	p.d.forget(p)
	p.cancel()
}
