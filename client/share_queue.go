package client

import (
	"maps"
	"slices"
)

// shareQueue decides which of the records that a worker holds goes to a handler next. Where
// keys have an order, the records of one key are a lane: one at a time, in offset order. It
// is a plain value: no lock, no clock.
//
// # When a record of a lane is not done
//
// Where the broker does not keep the order, the lane goes on without it. A broker that keeps order releases, with a record that is released or whose acquisition
// ends, the later records of its key that the same member holds. So they are taken out of
// the lane, and if it is not sure that the broker did so, they are released. A fetch that
// was on its way may bring more of the kind: acquired before, and released since. Until all
// that is answered the lane has a breach: it takes records only from the failed one on, in
// order; others are stale and released too.
type shareQueue struct {
	ready   []*delivery // in the order in which they may be handled; some may be over
	lanes   map[laneKey]*lane
	broken  map[*lane]struct{} // lanes with a breach
	blocked map[laneKey]int    // by how many records that only a transaction has
	queued  int                // deliveries in state queued
	running int                // handlers at work, also on records that were lost meanwhile
}

// keepOrder says who sees to it that records with the same key are handled in order.
type keepOrder int8

const (
	orderNone     keepOrder = iota // nobody
	orderHere                      // the worker, as far as it gets them in order
	orderByBroker                  // both
)

type laneKey struct {
	at  sharePartition
	key string
}

type lane struct {
	key     laneKey
	strict  bool      // the broker keeps the order too
	busy    *delivery // is ready or with a handler
	waiting []*delivery
	breach  *breach
}

// breach is a place in a lane from which records have to come again.
type breach struct {
	offset int64                  // the lowest
	waits  map[*delivery]struct{} // their releases are not answered yet
	fetch  *shareFetch            // was on its way; nil if there is none
}

func newShareQueue() shareQueue {
	return shareQueue{lanes: make(map[laneKey]*lane), broken: make(map[*lane]struct{}), blocked: make(map[laneKey]int)}
}

// push takes in a record that a fetch brought. False means that it is stale: it belongs
// behind one of its key that was not done. Then it is to be released, since it may be ours
// all the same, as when the one before it has just been archived.
func (q *shareQueue) push(d *delivery, order keepOrder) bool {
	if order == orderNone || d.record.Key == nil {
		q.queued++
		q.ready = append(q.ready, d)
		return true
	}
	l := q.laneFor(d, order)
	if l.breach != nil {
		if d.offset() > l.breach.offset {
			d.lane = l
			d.makeStale()
			l.breach.release(d)
			return false
		}
		q.heal(l)
	}
	d.lane = l
	q.queued++
	if l.busy != nil || q.blocked[l.key] > 0 {
		l.waiting = append(l.waiting, d)
		return true
	}
	l.busy = d
	q.ready = append(q.ready, d)
	return true
}

// refuse takes in a record that a fetch brought and that may not be ours. It is released, and
// what comes behind it is stale.
func (q *shareQueue) refuse(d *delivery, order keepOrder) {
	d.makeStale()
	if order == orderByBroker && d.record.Key != nil {
		d.lane = q.laneFor(d, order)
		q.breach(d, nil).breach.release(d)
		return
	}
	d.session.releases.addDelivery(d, ackRelease)
}

// laneFor is the lane for a record that comes.
func (q *shareQueue) laneFor(d *delivery, order keepOrder) *lane {
	key := laneKey{d.at, string(d.record.Key)}
	l := q.lanes[key]
	if l == nil {
		l = &lane{key: key, strict: order == orderByBroker}
		q.lanes[key] = l
	}
	return l
}

// pop hands out the next record, nil if there is none.
func (q *shareQueue) pop() *delivery {
	if q.idle() {
		return nil
	}
	d := q.ready[0]
	q.ready[0] = nil
	q.ready = q.ready[1:]
	d.state = deliveryRunning
	q.queued--
	q.running++
	return d
}

// idle tells that no record can be handed out.
func (q *shareQueue) idle() bool {
	for len(q.ready) > 0 && q.ready[0].state != deliveryQueued {
		q.ready[0] = nil
		q.ready = q.ready[1:]
	}
	return len(q.ready) == 0
}

// finish takes in that a handler has returned. False means that its record was lost.
func (q *shareQueue) finish(d *delivery, outcome ackKind) bool {
	q.running--
	if d.state != deliveryRunning {
		return false
	}
	d.state, d.outcome, d.cancel = deliveryDone, outcome, nil
	if d.lane != nil {
		q.advance(d.lane)
	}
	return true
}

// advance lets the next record of a lane come up.
func (q *shareQueue) advance(l *lane) {
	l.busy = nil
	if q.blocked[l.key] > 0 {
		return
	}
	if len(l.waiting) > 0 {
		l.busy = l.waiting[0]
		l.waiting = l.waiting[1:]
		q.ready = append(q.ready, l.busy)
		return
	}
	q.tidy(l)
}

// release notes that the release of d, which is stale, is asked for.
func (b *breach) release(d *delivery) {
	d.session.releases.addDelivery(d, ackRelease)
	b.waits[d] = struct{}{}
}

// awaits notes that a fetch, or none, is on its way. One before it counts until all that it
// brought was pushed: its own answer may say what became of acknowledgements.
func (b *breach) awaits(fetch *shareFetch) {
	if fetch != nil {
		b.fetch = fetch
	}
}

// makeStale makes of a record that no handler has one to be released.
func (d *delivery) makeStale() { d.stale, d.state, d.outcome = true, deliveryDone, ackRelease }

// standIn is a stale delivery in the place of d, which is over for its handler while the broker
// may hold its record for us.
func (d *delivery) standIn() *delivery {
	other := &delivery{record: d.record, at: d.at, session: d.session, lane: d.lane}
	other.makeStale()
	d.session.held[d.place()] = other
	return other
}

// drop ends a delivery that is not ours any more, and appends it to dropped. If its key has
// an order, what follows is appended or released.
func (q *shareQueue) drop(d *delivery, fetch *shareFetch, why error, dropped []lost) []lost {
	if d.state == deliveryOver {
		return dropped
	}
	dropped = append(dropped, q.end(d, why))
	if d.lane == nil {
		return dropped
	}
	if !d.lane.strict {
		q.leave(d)
		return dropped
	}
	l := q.breach(d, fetch)
	later, dropped := q.later(l, d, why, dropped)
	for _, d := range later {
		l.breach.release(d)
	}
	q.mend(l)
	return dropped
}

// failed takes in that a handler wants its record to be released. The broker releases the
// later ones of its key with it.
func (q *shareQueue) failed(d *delivery, fetch *shareFetch) {
	if d.lane == nil || !d.lane.strict {
		return
	}
	l := q.breach(d, fetch)
	l.breach.waits[d] = struct{}{}
	d.followers, _ = q.later(l, d, nil, nil)
}

// giveBack releases a record that is over and may be ours all the same: if it stayed acquired,
// others would wait for it, and the later ones of its key would overtake it.
func (q *shareQueue) giveBack(d *delivery, fetch *shareFetch) {
	if d.lane != nil && d.lane.strict {
		q.breach(d, fetch).breach.release(d.standIn())
		return
	}
	d.session.releases.addDelivery(d.standIn(), ackRelease)
}

// leave takes a delivery that is over out of its lane, and nothing else.
func (q *shareQueue) leave(d *delivery) {
	l := q.laneOf(d)
	l.waiting = slices.DeleteFunc(l.waiting, func(other *delivery) bool { return other == d })
	if l.busy == d {
		q.advance(l)
	}
	q.tidy(l)
}

// breach makes or widens the breach in the lane of d.
func (q *shareQueue) breach(d *delivery, fetch *shareFetch) *lane {
	l := q.laneOf(d)
	if l.breach == nil {
		l.breach = &breach{offset: d.offset(), waits: make(map[*delivery]struct{})}
		q.broken[l] = struct{}{}
	}
	l.breach.offset = min(l.breach.offset, d.offset())
	l.breach.awaits(fetch)
	return l
}

// later takes out of a lane d, and what is behind it. The stale deliveries that it returns are to
// be released, if the broker has not done so. What a handler has is dropped; if it is in a
// transaction it stays, since that decides about it, and the broker keeps it too.
func (q *shareQueue) later(l *lane, d *delivery, why error, dropped []lost) (stale []*delivery, _ []lost) {
	takeOut := func(d *delivery) {
		switch d.state {
		case deliveryQueued:
			q.queued--
			d.makeStale()
			stale = append(stale, d)
		case deliveryRunning:
			dropped = append(dropped, q.end(d, why))
			stale = append(stale, d.standIn())
		}
	}
	kept := l.waiting[:0]
	for _, other := range l.waiting {
		if other.offset() > d.offset() {
			takeOut(other)
		} else if other != d {
			kept = append(kept, other)
		}
	}
	l.waiting = kept
	if busy := l.busy; busy == nil || busy == d {
		q.advance(l)
	} else if busy.offset() > d.offset() && busy.inTxn == txnNone {
		takeOut(busy)
		q.advance(l)
	}
	return stale, dropped
}

// clear takes the records of a session out of the lane of a key. Who does so ends them.
func (q *shareQueue) clear(key laneKey, ss *shareSession) {
	l := q.lanes[key]
	if l == nil {
		return
	}
	l.waiting = slices.DeleteFunc(l.waiting, func(d *delivery) bool { return d.session == ss })
	if l.breach != nil {
		maps.DeleteFunc(l.breach.waits, func(d *delivery, _ struct{}) bool { return d.session == ss })
		q.mend(l)
	}
	if l.busy != nil && l.busy.session == ss {
		q.advance(l)
	}
	q.tidy(l)
}

// laneOf is the lane of the key of d: another than d was in if that was empty for a while.
func (q *shareQueue) laneOf(d *delivery) *lane {
	l := q.lanes[d.lane.key]
	if l == nil {
		l = d.lane
		q.lanes[l.key] = l
	}
	return l
}

// end makes a delivery over.
func (q *shareQueue) end(d *delivery, why error) lost {
	was := d.state
	if was == deliveryQueued {
		q.queued--
	}
	d.over()
	return lost{delivery: d, was: was, err: why}
}

// answered takes in that the acknowledgement of d is answered, and whether it was taken,
// while a fetch, or none, is on its way.
func (q *shareQueue) answered(d *delivery, taken bool, fetch *shareFetch) {
	if d.lane == nil {
		return
	}
	l := q.lanes[d.lane.key]
	if l == nil || l.breach == nil {
		l = nil
	}
	// One that was delivered before may have been archived, which releases nothing with it.
	released := taken && d.record.DeliveryCount < fewestDeliveries
	for _, follower := range d.followers {
		switch {
		case follower.state == deliveryOver:
		case released || l == nil:
			follower.over()
		default:
			l.breach.release(follower)
		}
	}
	d.followers = nil
	if l == nil {
		return
	}
	if _, ok := l.breach.waits[d]; ok {
		delete(l.breach.waits, d)
		l.breach.awaits(fetch)
		q.mend(l)
	}
}

// fetched takes in that all that a fetch brought was pushed.
func (q *shareQueue) fetched(fetch *shareFetch) {
	for l := range q.broken {
		if l.breach.fetch == fetch {
			l.breach.fetch = nil
			q.mend(l)
		}
	}
}

// fewestDeliveries is the lowest share.delivery.count.limit that brokers admit.
const fewestDeliveries = 2

// mend ends a breach of which nothing stale can come any more.
func (q *shareQueue) mend(l *lane) {
	if b := l.breach; b != nil && len(b.waits) == 0 && b.fetch == nil {
		q.heal(l)
		q.tidy(l)
	}
}

func (q *shareQueue) heal(l *lane) {
	l.breach = nil
	delete(q.broken, l)
}

// tidy forgets a lane that holds nothing.
func (q *shareQueue) tidy(l *lane) {
	if l.busy == nil && len(l.waiting) == 0 && l.breach == nil {
		delete(q.lanes, l.key)
	}
}
