package client

import "time"

// shareState is what a worker knows and decides: how much to ask for and of whom, what is
// handled next, and what is said of it. It is a plain value; requests and handlers are the
// Worker's.
type shareState struct {
	concurrency int // handlers
	maxRecords  int // held at most
	order       keepOrder
	stopping    bool // nothing more is fetched or handled

	queue    shareQueue
	sessions map[int32]*shareSession // by the node id of the broker
	pace     time.Duration           // of a handler, on average; 0: not known yet
	// inTransactions counts the records whose transactions have not ended.
	inTransactions int
}

// shareEvents is what came of a step, to be told to whoever listens.
type shareEvents struct {
	lost    []lost
	acked   []*delivery // their outcome is recorded
	renewed []*delivery
}

// prefetch is how much work a worker holds beyond what its handlers are at: enough to keep
// them busy while a fetch is on its way, and little for others to wait for.
const prefetch = 100 * time.Millisecond

func newShareState(concurrency, maxRecords int) shareState {
	return shareState{concurrency: concurrency, maxRecords: maxRecords, queue: newShareQueue(), sessions: make(map[int32]*shareSession)}
}

// limit is how many records the worker wants to hold.
func (s *shareState) limit() int {
	if s.pace == 0 {
		return s.concurrency
	}
	ahead := int64(s.concurrency) * int64(prefetch/s.pace)
	if s.pace > prefetch {
		ahead = int64(s.concurrency) * int64(prefetch) / int64(s.pace)
	}
	return s.concurrency + int(min(ahead, int64(s.maxRecords-s.concurrency)))
}

// fetchSize is how many records a session may ask for now; 0: it may not fetch.
func (s *shareState) fetchSize(ss *shareSession, now time.Time) int {
	if s.stopping || !ss.mayFetch(now) {
		return 0
	}
	if len(s.queue.broken) > 0 && ss.acks.count > 0 && !ss.takesAlong() {
		// What is behind an unreleased record would come, be given back as stale, and come again,
		// until its deliveries are used up.
		return 0
	}
	limit := s.limit()
	room := limit - s.queue.queued - s.queue.running
	brokers := 0
	for _, other := range s.sessions {
		if len(other.wanted) > 0 {
			brokers++
		}
		if other.fetching != nil {
			room -= other.fetching.records
		}
	}
	if room <= 0 || 2*room < limit && !s.queue.idle() {
		return 0 // wait until a fetch is worth while, unless a handler could do with it
	}
	return min(room, (limit+brokers-1)/brokers)
}

// nextFetch is the fetch that a session is to send now, nil for none.
func (s *shareState) nextFetch(ss *shareSession, now time.Time) *shareFetch {
	size := s.fetchSize(ss, now)
	if size == 0 {
		return nil
	}
	return ss.fetch(size)
}

// shareFetched is a decoded answer to a fetch.
type shareFetched struct {
	deliveries []*delivery
	gaps       []ackPart // offsets that are acquired and hold nothing to handle
	deadline   time.Time // when the acquisition locks end
	acks       map[sharePartition]error
}

// fetched takes in the answer to a fetch.
func (s *shareState) fetched(ss *shareSession, f *shareFetch, now time.Time, got shareFetched) (e shareEvents) {
	ss.fetching = nil
	s.settle(ss, &ss.acks, f.acks, now, got.acks, &e)
	defer s.queue.fetched(f)
	if ss.broken || s.stopping {
		return e // what came is given back with the session
	}
	for _, at := range f.add {
		ss.inSession[at] = struct{}{}
	}
	for _, at := range f.forget {
		delete(ss.inSession, at)
	}
	for _, p := range got.gaps {
		ss.acks.add(p.at, p.items...)
	}
	doubtful := f.doubtful()
	kept := got.deliveries[:0]
	for _, d := range got.deliveries {
		if old := ss.held[d.place()]; old != nil { // it comes again, so it was not ours any more
			s.queue.block(old)
			e.lost = s.queue.drop(old, nil, ErrLockLost, e.lost)
			s.queue.answered(old, false, nil)
		}
		ss.held[d.place()] = d
		if _, ok := doubtful[d.place()]; ok {
			s.queue.refuse(d, s.order)
			continue
		}
		if s.queue.push(d, s.order) {
			kept = append(kept, d)
		}
	}
	ss.full = 2*len(got.deliveries) >= f.records
	ss.hold(now, got.deadline, kept)
	ss.tries = 0
	return e
}

// acknowledged takes in the answer to an acknowledgement: the error of each partition, and
// until when renewed locks last.
func (s *shareState) acknowledged(ss *shareSession, a *shareAck, now, deadline time.Time, errs map[sharePartition]error) (e shareEvents) {
	ss.acking = nil
	if a.final {
		s.settle(ss, &ss.acks, a.parts, now, errs, &e)
		s.begin(ss)
		return e
	}
	if !a.renews {
		queue := &ss.acks
		if a.stale {
			queue = &ss.releases
		}
		s.settle(ss, queue, a.parts, now, errs, &e)
		return e
	}
	if ss.broken {
		return e
	}
	for _, p := range a.parts {
		switch fateOf(p, errs[p.at]) {
		case ackTaken:
			ss.renewed(now, deadline, p.items)
			for _, item := range p.items {
				e.renewed = append(e.renewed, item.delivery)
			}
		case ackApart:
			ss.renewals.halve(p)
		case ackAgain:
			ss.renewals.put(p)
			ss.retryAt = now.Add(retryAcks)
		case ackRefused, ackUnsure: // its handler has until the deadline
			for _, item := range p.items {
				item.delivery.renewing = false
			}
		}
	}
	return e
}

// retryAcks is when acknowledgements are sent again that a broker could not take now.
const retryAcks = 100 * time.Millisecond

// settle takes in what a broker said of acknowledgements, which are queued again where it
// did not say enough. A broker may have taken some of a part that it refused: what was taken
// is refused when it comes again alone, and counts as lost, since nobody knows.
func (s *shareState) settle(ss *shareSession, queue *ackQueue, parts []ackPart, now time.Time, errs map[sharePartition]error, e *shareEvents) {
	for _, p := range parts {
		err := errs[p.at]
		fate := fateOf(p, err)
		if ss.broken && fate != ackTaken {
			fate = ackRefused // there is nobody to send it to
		}
		switch fate {
		case ackApart:
			queue.halve(p)
			continue
		case ackAgain:
			queue.put(p)
			ss.retryAt = now.Add(retryAcks)
			continue
		}
		for _, item := range p.items {
			d := item.delivery
			if d == nil || d.state == deliveryOver {
				continue
			}
			if fate == ackTaken || d.stale {
				d.over()
				if !d.stale {
					e.acked = append(e.acked, d)
				}
			} else if d.outcome == ackRelease {
				e.lost = append(e.lost, s.queue.end(d, err))
			} else {
				e.lost = s.queue.drop(d, ss.fetching, err, e.lost)
			}
			if fate == ackUnsure && !d.stale {
				s.queue.giveBack(d, ss.fetching)
			}
			s.queue.answered(d, fate == ackTaken, ss.fetching)
		}
	}
}

// failed takes in that a request got no answer, or one that refused it whole: the session
// is broken. It may begin anew after a while, which backoff tells from the number of times
// that it broke.
func (s *shareState) failed(ss *shareSession, f *shareFetch, a *shareAck, now time.Time, backoff func(int) time.Duration, err error) (e shareEvents) {
	if f != nil {
		ss.fetching = nil
		defer s.queue.fetched(f)
	}
	if a != nil {
		ss.acking = nil
	}
	s.breakUp(ss, now, backoff, err, &e)
	if a != nil && a.final {
		s.begin(ss)
	}
	return e
}

// breakUp breaks a session: all that it holds is lost, but for what is on its way.
func (s *shareState) breakUp(ss *shareSession, now time.Time, backoff func(int) time.Duration, err error, e *shareEvents) {
	if !ss.broken {
		ss.broken = true
		ss.tries++
		ss.retryAt = now.Add(backoff(ss.tries))
	}
	onTheirWay := make(map[*delivery]bool) // their answers will tell
	for _, p := range append(ss.acking.outcomes(), ss.fetching.outcomes()...) {
		for _, item := range p.items {
			onTheirWay[item.delivery] = true
		}
	}
	for _, d := range ss.held {
		if d.lane != nil {
			s.queue.clear(d.lane.key, ss)
		}
		if d.inTxn != txnNone {
			s.queue.orphan(d)
			continue
		}
		if !onTheirWay[d] {
			e.lost = append(e.lost, s.queue.end(d, err))
		}
	}
	ss.leases, ss.acks, ss.renewals, ss.releases = nil, ackQueue{}, ackQueue{}, ackQueue{}
}

// begin makes a session a new one, which the next fetch opens.
func (s *shareState) begin(ss *shareSession) {
	ss.broken, ss.epoch, ss.full = false, 0, false
	clear(ss.inSession)
}

// expire ends the deliveries whose acquisition locks have run out: surely, since deadlines
// are counted from the answers, unless the broker has renewed one and said that it did not.
// Before the broker lets go of a record it deals us the next ones of its key.
func (s *shareState) expire(ss *shareSession, now time.Time) (e shareEvents) {
	over := false
	for _, l := range ss.leases {
		if l.deadline.After(now) {
			continue
		}
		over = true
		for _, d := range l.held {
			switch {
			case !d.unfinished() || d.renewing:
			case d.inTxn != txnNone:
				d.orphaned = true
			default:
				e.lost = s.queue.drop(d, ss.fetching, ErrLockLost, e.lost)
				s.queue.giveBack(d, ss.fetching)
			}
		}
	}
	if over {
		ss.dropLeases()
	}
	return e
}

// finish takes in what a handler that took so long made of its record.
func (s *shareState) finish(d *delivery, outcome ackKind, took time.Duration) (e shareEvents) {
	if took = max(took, 1); s.pace == 0 {
		s.pace = took
	} else {
		s.pace = max(s.pace+(took-s.pace)/8, 1)
	}
	if d.inTxn != txnNone {
		return s.finishInTxn(d)
	}
	if !s.queue.finish(d, outcome) {
		return e
	}
	d.session.acks.addDelivery(d, outcome)
	if outcome == ackRelease {
		s.queue.failed(d, d.session.fetching)
	}
	return e
}

// stop ends fetching and handling. What no handler has begun goes back with the session.
func (s *shareState) stop() {
	s.stopping = true
	for _, ss := range s.sessions {
		for _, l := range ss.leases {
			for _, d := range l.held {
				if d.state == deliveryQueued {
					s.queue.end(d, nil)
				}
			}
		}
		ss.dropLeases()
	}
}

// abandon gives up the records that handlers still have.
func (s *shareState) abandon(err error) (e shareEvents) {
	for _, ss := range s.sessions {
		for _, l := range ss.leases {
			for _, d := range l.held {
				if d.unfinished() && d.inTxn == txnNone {
					e.lost = append(e.lost, s.queue.end(d, err))
				}
			}
		}
		ss.dropLeases()
	}
	return e
}

// quiet tells that no handler is at work, nothing is left to acknowledge, and no transaction
// has records.
func (s *shareState) quiet() bool {
	for _, ss := range s.sessions {
		if ss.acking != nil || ss.acks.count > 0 || ss.fetching != nil && len(ss.fetching.acks) > 0 {
			return false
		}
	}
	return s.queue.running == 0 && s.inTransactions == 0
}
