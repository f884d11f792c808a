package client

// shareQueue decides which of the records that a worker holds goes to a handler next. Where
// keys have an order, the records of one key are a lane: one at a time, in offset order. It
// is a plain value: no lock, no clock.
//
// # When a record of a lane is not done
//
// A broker that keeps order releases, with a record that is released or whose acquisition
// is lost, the later records of its key that the same member holds. So the lane drops them.
// A fetch that was on its way may bring more of the kind: acquired before, and released
// since. Until the release is answered and that fetch too, the lane takes records only from
// the failed one on, in order; others are stale.
type shareQueue struct {
	ready   []*delivery // in the order in which they may be handled; some may be over
	lanes   map[laneKey]*lane
	broken  map[*lane]struct{} // lanes with a breach
	queued  int                // deliveries in state queued
	running int                // handlers at work, also on records that were lost meanwhile
}

type laneKey struct {
	at  sharePartition
	key string
}

type lane struct {
	key     laneKey
	busy    *delivery // is ready or with a handler
	waiting []*delivery
	breach  *breach
}

// breach is a place in a lane from which records have to come again.
type breach struct {
	offset  int64       // the lowest
	release *delivery   // its release is not answered yet; nil if there is none
	fetch   *shareFetch // was on its way; nil if there is none
}

func newShareQueue() shareQueue {
	return shareQueue{lanes: make(map[laneKey]*lane), broken: make(map[*lane]struct{})}
}

// push takes in a record that a fetch brought. False means that it is stale: it belongs
// behind one of its key that was not done. Then it is to be released, since it may be ours
// all the same, as when the one before it has just been archived.
func (q *shareQueue) push(d *delivery, ordered bool) bool {
	if !ordered || d.record.Key == nil {
		q.queued++
		q.ready = append(q.ready, d)
		return true
	}
	key := laneKey{d.at, string(d.record.Key)}
	l := q.lanes[key]
	if l == nil {
		l = &lane{key: key}
		q.lanes[key] = l
	}
	if l.breach != nil {
		if d.offset() > l.breach.offset {
			d.lane, d.stale, d.state, d.outcome = l, true, deliveryDone, ackRelease
			l.breach.release = d
			return false
		}
		q.heal(l)
	}
	d.lane = l
	q.queued++
	if l.busy != nil {
		l.waiting = append(l.waiting, d)
		return true
	}
	l.busy = d
	q.ready = append(q.ready, d)
	return true
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
	if len(l.waiting) > 0 {
		l.busy = l.waiting[0]
		l.waiting = l.waiting[1:]
		q.ready = append(q.ready, l.busy)
		return
	}
	q.tidy(l)
}

// drop ends a delivery. The lane of its key, if it has one, breaks there: what follows is
// appended to dropped.
func (q *shareQueue) drop(d *delivery, fetch *shareFetch, why error, dropped []lost) []lost {
	if d.state == deliveryOver {
		return dropped
	}
	dropped = append(dropped, q.end(d, why))
	if d.lane != nil {
		dropped = q.fall(d, nil, fetch, why, dropped)
	}
	return dropped
}

// fall breaks the lane of d at d, whose release, if any, is not answered.
func (q *shareQueue) fall(d, release *delivery, fetch *shareFetch, why error, dropped []lost) []lost {
	l := d.lane
	if b := l.breach; b != nil {
		b.offset, b.fetch = min(b.offset, d.offset()), fetch
		if release != nil {
			b.release = release
		}
	} else {
		l.breach = &breach{offset: d.offset(), release: release, fetch: fetch}
		q.broken[l] = struct{}{}
	}
	later := l.waiting
	if l.busy != nil && l.busy != d {
		later = append([]*delivery{l.busy}, later...)
	}
	l.busy, l.waiting = nil, nil
	for _, d := range later {
		if d.state != deliveryOver {
			dropped = append(dropped, q.end(d, why))
		}
	}
	q.mend(l)
	return dropped
}

// end makes a delivery over.
func (q *shareQueue) end(d *delivery, why error) lost {
	was := d.state
	if was == deliveryQueued {
		q.queued--
	}
	d.state = deliveryOver
	return lost{delivery: d, was: was, err: why}
}

// answered takes in that the acknowledgement of d is answered, while a fetch, or none, is
// on its way.
func (q *shareQueue) answered(d *delivery, fetch *shareFetch) {
	if l := d.lane; l != nil && l.breach != nil && l.breach.release == d {
		l.breach.release, l.breach.fetch = nil, fetch
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

// mend ends a breach of which nothing stale can come any more.
func (q *shareQueue) mend(l *lane) {
	if b := l.breach; b != nil && b.release == nil && b.fetch == nil {
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
