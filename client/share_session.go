package client

import (
	"errors"
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// shareSession is a member's share session on one broker (KIP-932): what it asks for, what
// it has acquired, and what it has to say about that. It is a plain value: the time and the
// answers go in, requests come out.
//
// # Epochs
//
// Each request of a session carries the next epoch, and the broker takes it when the request
// arrives, in that order and no other. A fetch may wait long for records, so
// acknowledgements have to overtake its answer, and travel over another connection. To keep
// the order, a fetch is sent only when nothing else of the session is on its way, and one
// acknowledgement at a time; an acknowledgement that arrives before the fetch that was sent
// first is refused without harm and sent again.
//
// # Breaking
//
// When a request fails as a whole, nobody knows what the broker has taken in. Then the
// session is broken: what is held is lost, and when nothing is on its way any more the
// session is closed and begun anew.
type shareSession struct {
	node int32

	epoch     int32 // of the next request; 0 begins a session
	wanted    map[sharePartition]struct{}
	inSession map[sharePartition]struct{} // that the broker fetches for
	fetching  *shareFetch                 // on its way
	acking    *shareAck                   // on its way

	acks     ackQueue
	renewals ackQueue
	// releases are of records that no handler is to have. Often the broker has released them
	// by itself, so they are in requests of their own, where a refusal concerns no other.
	releases ackQueue
	leases   []*lease
	held     map[sharePlace]*delivery // all that is not over

	canRenew bool
	full     bool // the last fetch brought about what it asked for: there is more
	broken   bool
	ended    bool      // for good
	tries    int       // times that it broke in a row
	retryAt  time.Time // no request before
}

// shareFetch is one ShareFetch.
type shareFetch struct {
	epoch       int32
	records     int // at most
	add, forget []sharePartition
	acks        []ackPart
	// beside are the records that the worker has given up or finished while the fetch was on
	// its way.
	beside []sharePlace
}

// shareAck is one ShareAcknowledge.
type shareAck struct {
	epoch  int32
	final  bool // ends the session
	renews bool
	stale  bool // releases what is stale
	beside bool // while a fetch is on its way
	parts  []ackPart
}

// outcomes are those that the fetch, which may be nil, tells the broker.
func (f *shareFetch) outcomes() []ackPart {
	if f == nil {
		return nil
	}
	return f.acks
}

// noteBeside takes in that an acknowledgement is sent while the fetch, if there is one, is on
// its way. A release that a handler asks for is not noted: its record is expected to come
// again.
func (f *shareFetch) noteBeside(a *shareAck) {
	if f == nil || a.renews {
		return
	}
	for _, p := range a.parts {
		for _, item := range p.items {
			if item.delivery != nil && (a.stale || item.kind != ackRelease) {
				f.beside = append(f.beside, item.delivery.place())
			}
		}
	}
}

// doubtful are the places of which nobody knows what the fetch brings. An acknowledgement
// names an offset and no acquisition: if the broker had ended the one that was meant and
// dealt the record anew to the fetch, that is what the acknowledgement has ended.
func (f *shareFetch) doubtful() map[sharePlace]struct{} {
	if len(f.beside) == 0 {
		return nil
	}
	places := make(map[sharePlace]struct{}, len(f.beside))
	for _, at := range f.beside {
		places[at] = struct{}{}
	}
	return places
}

// outcomes are those that the acknowledgement, which may be nil, tells the broker.
func (a *shareAck) outcomes() []ackPart {
	if a == nil || a.renews {
		return nil
	}
	return slices.Clone(a.parts)
}

func newShareSession(node int32, canRenew bool) *shareSession {
	return &shareSession{node: node, canRenew: canRenew, held: make(map[sharePlace]*delivery),
		wanted: make(map[sharePartition]struct{}), inSession: make(map[sharePartition]struct{})}
}

// finalEpoch ends a session.
const finalEpoch = -1

// nextEpoch is the epoch of the request to be sent now.
func (s *shareSession) nextEpoch() int32 {
	e := s.epoch
	if s.epoch++; s.epoch < 0 || e == math.MaxInt32 {
		s.epoch = 1
	}
	return e
}

// mayFetch tells whether a fetch may be sent. It could bring again what is stale for as long
// as the releases of that are not answered.
func (s *shareSession) mayFetch(now time.Time) bool {
	return !s.broken && s.fetching == nil && s.acking == nil && len(s.wanted) > 0 && !s.retryAt.After(now) &&
		s.releases.count == 0 && !s.renewalDue(now)
}

// takesAlong tells whether the next fetch says all that is to be acknowledged, before it brings
// more.
func (s *shareSession) takesAlong() bool { return s.full && s.epoch > 0 && len(s.acks.apart) == 0 }

// fetch is the next fetch, of so many records at most. It takes the acknowledgements with
// it if its answer is likely to come at once.
func (s *shareSession) fetch(records int) *shareFetch {
	f := &shareFetch{records: records}
	for at := range s.wanted {
		if _, ok := s.inSession[at]; !ok {
			f.add = append(f.add, at)
		}
	}
	for at := range s.inSession {
		if _, ok := s.wanted[at]; !ok {
			f.forget = append(f.forget, at)
		}
	}
	if s.full && s.epoch > 0 {
		f.acks = s.acks.take()
		for _, p := range f.acks { // the broker would take it for one to fetch
			_, wanted := s.wanted[p.at]
			if _, in := s.inSession[p.at]; !in && !wanted {
				f.forget = append(f.forget, p.at)
			}
		}
	}
	f.epoch = s.nextEpoch()
	s.fetching = f
	return f
}

// acknowledge is the next acknowledgement, nil if there is none to send now: it ends the
// session if that is broken, renews locks that are due, or says what became of records.
func (s *shareSession) acknowledge(now time.Time) *shareAck {
	if s.acking != nil || s.ended {
		return nil
	}
	if s.broken {
		if s.fetching != nil {
			return nil
		}
		s.acking = &shareAck{epoch: finalEpoch, final: true}
		return s.acking
	}
	if s.epoch == 0 || s.retryAt.After(now) {
		return nil
	}
	a := &shareAck{beside: s.fetching != nil}
	s.renewDue(now)
	if a.parts = stillUnfinished(s.renewals.take()); len(a.parts) > 0 {
		a.renews = true
	} else if a.parts = s.releases.take(); len(a.parts) > 0 {
		a.stale = true
	} else if a.parts = s.acks.take(); len(a.parts) == 0 {
		return nil
	}
	a.epoch = s.nextEpoch()
	s.acking = a
	s.fetching.noteBeside(a)
	return a
}

// stillUnfinished leaves out, in place, the renewals of what was finished since, or is in a
// transaction.
func stillUnfinished(parts []ackPart) []ackPart {
	kept := parts[:0]
	for _, p := range parts {
		items := p.items[:0]
		for _, item := range p.items {
			if item.delivery.unfinished() && item.delivery.inTxn == txnNone {
				items = append(items, item)
			} else {
				item.delivery.renewing = false
			}
		}
		if p.items = items; len(items) > 0 {
			kept = append(kept, p)
		}
	}
	return kept
}

// last is the acknowledgement that ends the session for good, with what is left to say; nil
// if there is no session. Nothing is sent after it.
func (s *shareSession) last() *shareAck {
	s.ended = true
	if s.epoch == 0 || s.broken {
		return nil
	}
	return &shareAck{epoch: finalEpoch, final: true, parts: s.acks.take()}
}

// hold notes records that were acquired until the deadline.
func (s *shareSession) hold(now, deadline time.Time, deliveries []*delivery) {
	if len(deliveries) == 0 {
		return
	}
	l := &lease{deadline: deadline, held: deliveries}
	if s.canRenew {
		l.renewAt = now.Add(deadline.Sub(now) / 2)
	}
	s.dropLeases()
	s.leases = append(s.leases, l)
}

// renewalDue tells whether a lock has to be renewed.
func (s *shareSession) renewalDue(now time.Time) bool {
	if s.renewals.count > 0 {
		return true
	}
	for _, l := range s.leases {
		if !l.renewAt.IsZero() && !l.renewAt.After(now) && l.prune() {
			return true
		}
	}
	return false
}

// renewDue queues the renewals that are due.
func (s *shareSession) renewDue(now time.Time) {
	for _, l := range s.leases {
		if l.renewAt.IsZero() || l.renewAt.After(now) {
			continue
		}
		l.renewAt = time.Time{}
		l.prune()
		for _, d := range l.held {
			if d.inTxn == txnNone {
				d.renewing = true
				s.renewals.addDelivery(d, ackRenew)
			}
		}
	}
}

// renewed takes in that locks were renewed: they leave their old lease for a new one.
func (s *shareSession) renewed(now, deadline time.Time, items []ackItem) {
	again := make(map[*delivery]bool, len(items))
	for _, item := range items {
		again[item.delivery], item.delivery.renewing = true, false
	}
	var held []*delivery
	for _, l := range s.leases {
		kept := l.held[:0]
		for _, d := range l.held {
			if again[d] {
				held = append(held, d)
			} else {
				kept = append(kept, d)
			}
		}
		clear(l.held[len(kept):])
		l.held = kept
	}
	s.hold(now, deadline, held)
}

// dropLeases forgets those that hold nothing.
func (s *shareSession) dropLeases() {
	kept := s.leases[:0]
	for _, l := range s.leases {
		if l.prune() {
			kept = append(kept, l)
		}
	}
	clear(s.leases[len(kept):])
	s.leases = kept
}

// nextTime is when the session has something to do without anything happening; zero for
// never. What was due until now waits for something else.
func (s *shareSession) nextTime(now time.Time) (at time.Time) {
	sooner := func(t time.Time) {
		if t.After(now) && (at.IsZero() || t.Before(at)) {
			at = t
		}
	}
	sooner(s.retryAt)
	for _, l := range s.leases {
		sooner(l.deadline)
		sooner(l.renewAt)
	}
	return at
}

// ackFate is what an answer to the acknowledgements of one partition means for them.
type ackFate int8

const (
	ackTaken   ackFate = iota // done
	ackApart                  // find out which of them is to blame
	ackAgain                  // the same later
	ackRefused                // for good: what was acquired is not ours any more
	ackUnsure                 // for good, and it may be ours all the same
)

func fateOf(p ackPart, err error) ackFate {
	switch {
	case err == nil:
		return ackTaken
	case errors.Is(err, kerr.NotLeaderForPartition), errors.Is(err, kerr.FencedLeaderEpoch),
		errors.Is(err, kerr.UnknownTopicOrPartition), errors.Is(err, kerr.UnknownTopicID):
		return ackRefused // the locks went with the leader, or the topic
	case kerr.IsRetriable(err):
		return ackAgain
	case errors.Is(err, kerr.InvalidRecordState) && len(p.items) > 1:
		return ackApart
	case errors.Is(err, kerr.InvalidRecordState):
		return ackRefused
	}
	return ackUnsure
}
