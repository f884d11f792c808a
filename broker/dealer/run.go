package dealer

import (
	"errors"
	"slices"
	"time"

	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"go.uber.org/zap"
)

// readRetry is how long a partition rests whose log could not be read.
const readRetry = time.Second

// roomRetry is how long a fetch waits that there was no room for before it is tried again.
const roomRetry = time.Second

// errEnded says that a partition is of no use any more.
var errEnded = errors.New("the share partition has ended")

// run reads ahead and ends what comes to its time, until the partition ends.
func (p *partition) run() {
	defer p.quit()
	defer p.log.Watch(p.wake)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for p.ctx.Err() == nil {
		wait, err := p.turn()
		switch {
		case errors.Is(err, ledgers.ErrShareGone) || errors.Is(err, errEnded):
			return
		case err != nil && p.ctx.Err() == nil:
			p.d.opts.Logger.Error("a share partition cannot be read", zap.Stringer("partition", p.key), zap.Error(err))
			wait = readRetry
		}
		timer.Reset(wait)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-p.ctx.Done():
		}
	}
}

// quit ends the partition's hold of the ledger. Its fetches begin again.
func (p *partition) quit() {
	p.d.forget(p)
	_, _ = p.ledger.Do(&p.locked.changes, func(*individualcommit.Ledger) { // if it is gone, so are the fetches
		p.locked.changes.Reset()
		p.againAll()
	})
	p.ledger.Close()
	p.cancel()
}

// idleWait is how long the goroutine rests when there is no deadline.
const idleWait = 24 * time.Hour

// turn does what is to be done now, and says how long there will be nothing to do if
// nothing changes.
func (p *partition) turn() (time.Duration, error) {
	for {
		if start := p.log.Bounds().Start; start > p.started {
			if err := p.ledger.Advance(); err != nil {
				return 0, err
			}
			p.started = start
		}
		var next plan
		if _, err := p.do(func(l *individualcommit.Ledger) { next = p.plan(l) }); err != nil {
			return 0, err
		}
		var err error
		feeds := next.wants && (next.refeeds() || next.from < p.readable())
		switch {
		case next.end:
			return 0, errEnded
		case next.reload:
			err = p.readAgain(next.again)
		case next.by != nil && !(p.searched && feeds):
			p.searched = true
			err = p.search(next.search, next.by)
		case feeds && next.refeeds():
			p.searched = false
			err = p.readReopened(&next)
		case feeds:
			p.searched = false
			err = p.readOn(&next)
		default:
			return next.wait, nil
		}
		if err != nil {
			return 0, err
		}
	}
}

// plan is what the goroutine is to do next.
type plan struct {
	end      bool                 // nothing more: nobody works on the partition, or another is to take its place
	wants    bool                 // the records that were reopened, or those from offset from on
	reopened individualcommit.Run // ...
	from     int64                // ...
	keyed    bool                 // with their keys
	reload   bool                 // the stretch again
	again    cooperative.Again
	by       *Filter       // for which the log is to be searched, nil: for none
	search   int64         // from there
	wait     time.Duration // until the next deadline
}

// refeeds tells whether what comes next was reopened.
func (n *plan) refeeds() bool { return n.reopened.Start < n.reopened.End }

// plan ends what has come to its time. The ledger's lock is held.
func (p *partition) plan(l *individualcommit.Ledger) (next plan) {
	s := &p.locked
	nowMs := p.d.nowMs()
	settings := p.current()
	if settings.Limits != s.limits {
		s.limits = settings.Limits
		s.dealing.SetLimits(settings.Limits)
	}
	s.dealing.Expire(nowMs, &s.changes)
	next.wait, s.held = idleWait, false
	if s.ending = settings.ReadCommitted != p.committed; s.ending {
		next.end = s.dealing.Count(cooperative.Acquired) == 0
	} else {
		p.serve()
		next.end = p.idle()
		next.again, next.reload = s.dealing.NextAgain()
		if next.wants = s.dealing.WantsRecords(); next.wants {
			p.skipCommitted(l)
			next.reopened = p.nextReopened()
		}
		next.search, next.by = p.nextSift(l)
	}
	next.from, next.keyed = s.dealing.FeedFrom(), p.keyed()
	if at, ok := s.dealing.NextDeadline(); ok {
		next.wait = time.Duration(max(at-nowMs, 0)) * time.Millisecond
	}
	if s.held {
		next.wait = min(next.wait, roomRetry)
	}
	return next
}

// keyed tells whether the dispatcher wants keys now. The ledger's lock is held.
func (p *partition) keyed() bool { return p.locked.dealing.Mode() != cooperative.RoundRobin }

// nextReopened is the first run of what was reopened and is still to be fed, empty if there
// is none. What lies above FeedFrom comes by itself.
func (p *partition) nextReopened() individualcommit.Run {
	s := &p.locked
	for ; len(s.reopened) > 0; s.reopened = s.reopened[1:] {
		r := &s.reopened[0]
		if r.End = min(r.End, s.dealing.FeedFrom()); r.Start < r.End {
			return *r
		}
	}
	return individualcommit.Run{}
}

// skipCommitted feeds what is committed without reading it, if that comes next.
func (p *partition) skipCommitted(l *individualcommit.Ledger) {
	from := p.locked.dealing.FeedFrom()
	if to := l.FirstOpen(from); to > from {
		p.locked.dealing.Feed(cooperative.Records{Start: from, End: to}, &p.locked.changes)
	}
}

// readable is one past the last offset that may be dealt.
func (p *partition) readable() int64 {
	b := p.log.Bounds()
	if p.committed {
		return b.LSO
	}
	return b.HighWatermark
}

// readOn feeds the dispatcher with what follows in the log.
func (p *partition) readOn(next *plan) error {
	got, err := p.reader.read(p.log, next.from, p.stretch(p.readable(), next.keyed))
	if errors.Is(err, commitlog.ErrOffsetOutOfRange) {
		return p.ledger.Advance()
	}
	if err != nil {
		return err
	}
	return p.feed(next, got)
}

// readReopened feeds the dispatcher with what was reopened below what it was fed.
func (p *partition) readReopened(next *plan) error {
	r := next.reopened
	got, err := p.reader.read(p.log, r.Start, p.stretch(min(r.End, p.readable()), next.keyed))
	if errors.Is(err, commitlog.ErrOffsetOutOfRange) {
		got, err = p.deleted(r), p.ledger.Advance()
	}
	if err != nil {
		return err
	}
	return p.feed(next, got)
}

// feed feeds the dispatcher with what was read.
func (p *partition) feed(next *plan, got cooperative.Records) error {
	_, err := p.do(func(l *individualcommit.Ledger) {
		s := &p.locked
		if next.keyed != p.keyed() {
			return // the mode has changed meanwhile
		}
		if next.refeeds() && len(s.reopened) > 0 {
			s.reopened[0].Start = max(s.reopened[0].Start, got.End)
		}
		s.batches.add(p.reader.batches)
		s.dealing.Feed(got, &s.changes)
		p.closeAbsent(l, &got)
		s.fed = max(s.fed, got.End)
	})
	return err
}

func (p *partition) stretch(end int64, keyed bool) stretch {
	return stretch{end: end, committed: p.committed, keyed: keyed}
}

// deleted says of a run, whose beginning is not in the log any more, what is known then:
// there are no records before the log's start.
func (p *partition) deleted(r individualcommit.Run) cooperative.Records {
	return cooperative.Records{Start: r.Start, End: max(r.Start, min(r.End, p.log.Bounds().Start))}
}

// readAgain feeds the dispatcher once more with records that it did not keep.
func (p *partition) readAgain(a cooperative.Again) error {
	r := individualcommit.Run{Start: a.Start, End: a.End}
	got, err := p.reader.read(p.log, r.Start, p.stretch(min(r.End, p.readable()), true))
	switch {
	case errors.Is(err, commitlog.ErrOffsetOutOfRange):
		got, err = p.deleted(r), p.ledger.Advance()
	case err != nil:
		got = cooperative.Records{Start: r.Start, End: r.Start} // it is asked for again
	}
	_, failed := p.do(func(*individualcommit.Ledger) { p.locked.dealing.FeedAgain(a, got) })
	return errors.Join(err, failed)
}

// closeAbsent commits what was read and holds no record that is to be dealt: markers, what
// compaction took, and under read_committed what was aborted.
func (p *partition) closeAbsent(l *individualcommit.Ledger, got *cooperative.Records) {
	s := &p.locked
	before := len(s.changes.Commit)
	at := max(got.Start, l.Stable())
	for _, r := range got.Runs {
		if r.Start > at {
			s.changes.Commit = l.AppendOpen(s.changes.Commit, individualcommit.Run{Start: at, End: r.Start})
		}
		at = max(at, r.End)
	}
	if at < got.End {
		s.changes.Commit = l.AppendOpen(s.changes.Commit, individualcommit.Run{Start: at, End: got.End})
	}
	if absent := s.changes.Commit[before:]; got.Start < s.fed && len(absent) > 0 {
		s.dealing.Settle(slices.Clone(absent), &s.changes) // they were there when they were fed before
	}
}
