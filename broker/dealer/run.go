package dealer

import (
	"errors"
	"time"

	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"go.uber.org/zap"
)

// readRetry is how long a partition rests whose log could not be read.
const readRetry = time.Second

// run reads ahead and ends what comes to its time, until the partition ends.
func (p *partition) run() {
	defer close(p.ended)
	defer p.quit()
	defer p.log.Watch(p.wake)()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		wait, err := p.turn()
		if errors.Is(err, ledgers.ErrShareGone) {
			return
		}
		if err != nil {
			if p.ctx.Err() != nil {
				return
			}
			p.d.opts.Logger.Error("a share partition cannot be read", zap.Stringer("partition", p.key), zap.Error(err))
			wait = readRetry
		}
		timer.Reset(wait)
		select {
		case <-p.wake:
		case <-timer.C:
		case <-p.ctx.Done():
			return
		}
	}
}

// quit ends the partition's fetches, and its hold of the ledger.
func (p *partition) quit() {
	p.d.forget(p)
	_, _ = p.ledger.Do(&p.locked.changes, func(*individualcommit.Ledger) { // if it is gone, so are the fetches
		p.locked.changes.Reset()
		for member, w := range p.locked.waiting {
			delete(p.locked.waiting, member)
			w.fetch.again()
		}
	})
	p.ledger.Close()
}

// idleWait is how long the goroutine rests when there is no deadline.
const idleWait = 24 * time.Hour

// turn does what is to be done now, and says how long there will be nothing to do if
// nothing changes.
func (p *partition) turn() (time.Duration, error) {
	for {
		var next plan
		if _, err := p.do(func(l *individualcommit.Ledger) { next = p.plan(l) }); err != nil {
			return 0, err
		}
		switch {
		case next.reload:
			if err := p.readAgain(next.again); err != nil {
				return 0, err
			}
		case next.wants && next.from < p.readable():
			if err := p.readOn(&next); err != nil {
				return 0, err
			}
		default:
			return next.wait, nil
		}
	}
}

// plan is what the goroutine is to do next.
type plan struct {
	wants  bool  // records from offset from on
	from   int64 // ...
	keyed  bool  // with their keys
	reload bool  // the stretch again
	again  cooperative.Again
	wait   time.Duration // until the next deadline
}

// plan ends what has come to its time. The ledger's lock is held.
func (p *partition) plan(l *individualcommit.Ledger) (next plan) {
	s := &p.locked
	nowMs := p.d.nowMs()
	if limits := p.current().Limits; limits != s.limits {
		s.limits = limits
		s.dealing.SetLimits(limits)
	}
	s.dealing.Expire(nowMs, &s.changes)
	p.serve()
	next.again, next.reload = s.dealing.NextAgain()
	if next.wants = s.dealing.WantsRecords(); next.wants {
		p.skipCommitted(l)
	}
	next.from, next.keyed = s.dealing.FeedFrom(), s.dealing.Mode() != cooperative.RoundRobin
	next.wait = idleWait
	if at, ok := s.dealing.NextDeadline(); ok {
		next.wait = time.Duration(max(at-nowMs, 0)) * time.Millisecond
	}
	return next
}

// skipCommitted feeds what is committed without reading it, if that comes next.
func (p *partition) skipCommitted(l *individualcommit.Ledger) {
	from := p.locked.dealing.FeedFrom()
	to := l.MaxCommit()
	if gap, ok := l.NextGap(from); ok {
		to = gap.Start
	}
	if to > from {
		p.locked.dealing.Feed(cooperative.Records{Start: from, End: to}, &p.locked.changes)
	}
}

// readable is one past the last offset that may be dealt.
func (p *partition) readable() int64 {
	b := p.log.Bounds()
	if p.current().ReadCommitted {
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
	_, err = p.do(func(l *individualcommit.Ledger) {
		s := &p.locked
		if next.keyed != (s.dealing.Mode() != cooperative.RoundRobin) {
			return // the mode has changed meanwhile
		}
		s.batches.add(p.reader.batches)
		if n := p.reader.count; n > 0 {
			s.recordBytes = max(p.reader.bytes/n, 1)
		}
		s.dealing.Feed(got, &s.changes)
		p.closeAbsent(l, &got)
	})
	return err
}

func (p *partition) stretch(end int64, keyed bool) stretch {
	return stretch{end: end, committed: p.current().ReadCommitted, keyed: keyed, maxBatch: p.d.opts.MaxDecodedBytes}
}

// readAgain feeds the dispatcher once more with records that it did not keep.
func (p *partition) readAgain(a cooperative.Again) error {
	got, err := p.reader.read(p.log, a.Start, p.stretch(min(a.End, p.readable()), true))
	if errors.Is(err, commitlog.ErrOffsetOutOfRange) {
		got = cooperative.Records{Start: a.Start, End: a.Start} // it is asked for again behind the log start
		err = p.ledger.Advance()
	}
	if err != nil {
		got = cooperative.Records{Start: a.Start, End: a.Start}
	}
	_, failed := p.do(func(*individualcommit.Ledger) { p.locked.dealing.FeedAgain(a, got) })
	return errors.Join(err, failed)
}

// closeAbsent commits what was read and holds no record that is to be dealt: markers, what
// compaction took, and under read_committed what was aborted.
func (p *partition) closeAbsent(l *individualcommit.Ledger, got *cooperative.Records) {
	out := &p.locked.changes
	at := max(got.Start, l.Stable())
	for _, r := range got.Runs {
		if r.Start > at {
			out.Commit = l.AppendOpen(out.Commit, individualcommit.Run{Start: at, End: r.Start})
		}
		at = max(at, r.End)
	}
	if at < got.End {
		out.Commit = l.AppendOpen(out.Commit, individualcommit.Run{Start: at, End: got.End})
	}
}
