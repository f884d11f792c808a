package tests

import (
	"slices"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/tests/wire"
)

// shareAccount is what the workers of a share group have seen, and what that allows a
// broker to do next. It holds for what was seen in whatever order, so workers may be as
// slow as they like: a member has a record for sure from the moment that it sees it until
// it says or does something that may end that, or until the lock may have run out that
// began no earlier than its fetch.
type shareAccount struct {
	ordered bool // there is an order per key, or may be
	mixed   bool // and may not be: the delivery mode changes
	letters bool // what is rejected gets a dead letter
	limit   int  // of deliveries
	lock    time.Duration

	mu struct {
		sync.Mutex
		life    int // of the broker; what comes from an earlier one counts for nothing
		records map[shareOffset]*shareRecord
		keys    map[shareKey][]*shareRecord // by offset
		faults  []shareFault
		seen    int // deliveries
		late    int // that were seen too late to say who has what
		// due is closed when so many more records have ended, or were rejected where they get
		// dead letters; then it is time for a crash.
		due  chan struct{}
		more int
		// departing are workers that are gone with a fetch under way, of which the broker may
		// not know yet: each may be dealt what nobody else has, unseen. departed is how many
		// there were that it does know of.
		departing map[*shareWorker]struct{}
		departed  int
		// departedBefore is how many of these there were before anything was appended that is
		// not in the account; unanswered: it is not known whether the last records that were
		// produced were appended.
		departedBefore int
		unanswered     bool
		modes          []modeChange
		effective      map[int32]int // by partition: which of the modes it dealt by for sure, at last
	}
}

type shareOffset struct {
	partition int32
	offset    int64
}

type shareKey struct {
	partition int32
	key       string
}

// shareRecord is the account of one record.
type shareRecord struct {
	shareOffset
	key, value string
	done       string // what it was acknowledged with, answered: it must not come again
	asked      int8   // to end it, in which way, which may have been done; else 0
	holder     *shareWorker
	seen       time.Time // when the holder saw it first
	until      time.Time // the holder has it for sure; before the worker's own patience
	count      int       // of the delivery that the holder has
	// kept may have it still, until then for sure if so: what it said of it, or of an earlier
	// one of the key, was not answered yet, or was refused.
	kept *shareWorker
	// doubt: after it, the delivery that ended without being counted may have been counted
	// all the same, since its lock ran out first.
	doubt time.Time
	// taken is who lost it when, unasked, to somebody else.
	taken map[*shareWorker]time.Time
	// low to high is how many deliveries have ended and were counted; durable is how many
	// of them a crash cannot take back.
	low, high, durable int
	// loose: somebody may have it who got it too late to be sure.
	loose bool
}

func newShareAccount(plan sharePlan, limit int, lock time.Duration) *shareAccount {
	a := &shareAccount{ordered: plan.switches || hasOrder(plan.mode), mixed: plan.switches, letters: plan.letters, limit: limit, lock: lock}
	a.mu.modes, a.mu.effective = []modeChange{{mode: plan.mode}}, make(map[int32]int)
	a.mu.records = make(map[shareOffset]*shareRecord)
	a.mu.keys = make(map[shareKey][]*shareRecord)
	a.mu.departing = make(map[*shareWorker]struct{})
	return a
}

// life is which life of the broker this is.
func (a *shareAccount) life() int {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.mu.life
}

// crash lets the broker crash, which die does. What has been answered by then has to hold;
// nobody has acquired anything after it.
func (a *shareAccount) crash(die func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	die()
	a.mu.life++
	now := time.Now()
	for _, r := range a.mu.records {
		r.high = a.highest(r, now)
	}
	for _, r := range a.mu.records {
		r.holder, r.kept, r.doubt = nil, nil, time.Time{}
		r.low = max(r.low-1, r.durable)
	}
	a.mu.departed += len(a.mu.departing)
	clear(a.mu.departing)
}

// highest is how many deliveries of a record may have ended and been counted by now.
func (a *shareAccount) highest(r *shareRecord, now time.Time) int {
	if a.surelyHeld(r, now) {
		return r.high
	}
	high := r.high
	if r.holder != nil || !r.doubt.IsZero() && now.After(r.doubt) {
		high = max(high, r.count)
	}
	return high + len(a.mu.departing)
}

func (a *shareAccount) surelyHeld(r *shareRecord, now time.Time) bool {
	return r.holder != nil && now.Before(a.sureUntil(r))
}

// producing takes in that records are about to be produced. Only one producer at a time
// does.
func (a *shareAccount) producing() {
	a.mu.Lock()
	defer a.mu.Unlock()
	if !a.mu.unanswered {
		a.mu.departedBefore = a.mu.departed
	}
	a.mu.unanswered = true
}

// afterMore is closed when so many more records have ended, or were rejected.
func (a *shareAccount) afterMore(n int) <-chan struct{} {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.mu.due, a.mu.more = make(chan struct{}), n
	return a.mu.due
}

// record is the account of a record, made if there is none.
func (a *shareAccount) record(at shareOffset, key, value string) *shareRecord {
	r := a.mu.records[at]
	if r == nil {
		r = &shareRecord{shareOffset: at, key: key, value: value, high: a.mu.departed - a.mu.departedBefore}
		a.mu.records[at] = r
		if key != "" {
			k := shareKey{at.partition, key}
			i, _ := slices.BinarySearchFunc(a.mu.keys[k], at.offset, func(r *shareRecord, offset int64) int { return int(r.offset - offset) })
			a.mu.keys[k] = slices.Insert(a.mu.keys[k], i, r)
		}
	}
	if r.key != key || r.value != value {
		a.fault("%v: it was %s=%s and now is %s=%s", at, r.key, r.value, key, value)
	}
	return r
}

// sureUntil is how long the holder of a record has it for sure. In the ordered modes it
// loses it with any earlier record of the key that it has, or may have.
func (a *shareAccount) sureUntil(r *shareRecord) time.Time {
	until := earlier(r.until, r.holder.patience())
	if a.ordered && r.key != "" {
		for _, other := range a.mu.keys[shareKey{r.partition, r.key}] {
			if other.offset >= r.offset {
				break
			}
			if other.holder == r.holder || other.kept == r.holder {
				until = earlier(until, other.until)
			}
		}
	}
	return until
}

func earlier(a, b time.Time) time.Time {
	if a.Before(b) {
		return a
	}
	return b
}

// delivered takes in what a worker was dealt by a fetch that it sent at that time, not
// before since, which is zero where that is not known, and gives what it has now. It tells
// whether the broker is still the same.
func (a *shareAccount) delivered(w *shareWorker, sent, since time.Time, dealt []wire.Shared) (got []*shareRecord, same bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.life != a.mu.life || w.dead {
		return nil, false
	}
	now := time.Now()
	until := now
	if !since.IsZero() {
		until = since.Add(a.lock)
	}
	late := now.After(earlier(until, w.patience()))
	for i := range dealt {
		d := &dealt[i]
		r := a.record(shareOffset{d.Partition, d.Offset}, string(d.Key), string(d.Value))
		a.mu.seen++
		if late {
			a.mu.late++
		}
		if late || a.lostMeanwhile(w, r, sent) {
			a.leaveOpen(w, r, int(d.Count), now)
			continue
		}
		a.checkMode(r, sent, now)
		a.check(w, r, int(d.Count), sent, now)
		r.holder, r.seen, r.until, r.count, r.kept = w, now, until, int(d.Count), nil
		r.low, r.high = r.count-1, r.count-1
		r.asked, r.loose, r.doubt = 0, false, time.Time{}
		got = append(got, r)
	}
	return got, true
}

// lostMeanwhile tells whether a worker that fetched at that time lost an earlier record of
// the key before it saw the answer. With it, it may have lost the record, which others may
// have had since.
func (a *shareAccount) lostMeanwhile(w *shareWorker, r *shareRecord, sent time.Time) bool {
	if !a.ordered || r.key == "" {
		return false
	}
	for _, other := range a.mu.keys[shareKey{r.partition, r.key}] {
		if other.offset > r.offset {
			break
		}
		if other.taken[w].After(sent) {
			return true
		}
	}
	return false
}

// leaveOpen takes in a delivery of a record that its worker may have lost before it saw it. It
// has been lost if another has the record for sure; else either of them may have it.
func (a *shareAccount) leaveOpen(w *shareWorker, r *shareRecord, count int, now time.Time) {
	if r.holder != w && a.surelyHeld(r, now) {
		return
	}
	r.high, r.loose = max(r.high, count), true
	if h := r.holder; h != nil {
		a.withLater(h, r, func(other *shareRecord) { other.until = earlier(other.until, now) })
		r.high, r.until = max(r.high, r.count), earlier(r.until, now)
	}
	r.holder, r.kept = nil, w
}

// takeLater takes from h, which lost a record to w, what it has of the key after it.
func (a *shareAccount) takeLater(w, h *shareWorker, r *shareRecord, now time.Time) {
	a.withLater(h, r, func(other *shareRecord) {
		// Or its own lock ran out first, which counts, or runs out later, without an order.
		if a.mixed || now.Add(a.lock/4).After(a.sureUntil(other)) {
			other.high = max(other.high, other.count)
		}
		if h != w {
			other.takenFrom(h, now)
		}
		other.holder = nil
	})
}

func (r *shareRecord) takenFrom(w *shareWorker, now time.Time) {
	if r.taken == nil {
		r.taken = make(map[*shareWorker]time.Time)
	}
	r.taken[w] = now
}

// check looks whether a record may be delivered to a worker, by a fetch that it sent then.
func (a *shareAccount) check(w *shareWorker, r *shareRecord, count int, sent, now time.Time) {
	if r.done != "" {
		a.fault("%v comes again, to %s, though it was %s", r.shareOffset, w.m.ID, r.done)
	}
	h := r.holder
	if h != nil {
		if until := a.sureUntil(r); now.Before(until) {
			a.fault("%v is dealt to %s and %s has it for another %v", r.shareOffset, w.m.ID, h.m.ID, until.Sub(now))
		}
		a.takeLater(w, h, r, now)
		a.end(r, !a.ordered) // its lock ran out
	} else if h = r.kept; h != nil {
		a.takeLater(w, h, r, now)
	}
	if h != nil && h != w {
		r.takenFrom(h, now)
	}
	if r.asked != 0 { // too late
		r.high = max(r.high, r.count)
	}
	if high := a.highest(r, now); !r.loose && (count < r.low+1 || count > high+1) || count > a.limit {
		a.miscount("%v: delivery %d to %s, expected %d to %d", r.shareOffset, count, w.m.ID, r.low+1, min(high+1, a.limit))
	}
	if r.key != "" && a.surelyOrdered(sent) {
		a.checkOrder(w, r, now)
	}
}

// checkOrder looks whether a worker may have a record while others of the key are not done.
func (a *shareAccount) checkOrder(w *shareWorker, r *shareRecord, now time.Time) {
	for _, other := range a.mu.keys[shareKey{r.partition, r.key}] {
		if other.offset >= r.offset {
			break
		}
		archived := a.highest(other, now) >= a.limit
		if other.done == "" && other.asked == 0 && !other.loose && !archived && other.holder != w && other.kept != w {
			a.fault("%v is dealt to %s before the one at %d of its key %s is done, which %s", r.shareOffset, w.m.ID, other.offset, r.key, other.whereabouts())
		}
	}
}

func (r *shareRecord) whereabouts() string {
	if r.holder == nil {
		return "nobody has"
	}
	return r.holder.m.ID + " has"
}

// end ends a delivery that was not acknowledged; certainly: it has been counted.
func (a *shareAccount) end(r *shareRecord, certainly bool) {
	r.holder = nil
	r.high = max(r.high, r.count)
	if certainly {
		r.low = max(r.low, r.count)
	}
}

// lost ends all that a worker has, since it is about to go, or is not heard any more. With
// a fetch in flight it is departing until the broker knows, too.
func (a *shareAccount) lost(w *shareWorker, counted, inFlight bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.life != a.mu.life || w.dead {
		return
	}
	w.dead = counted
	var had, kept []*shareRecord
	for _, r := range a.mu.records {
		switch w {
		case r.kept:
			kept = append(kept, r)
		case r.holder:
			r.doubt = a.sureUntil(r)
			had = append(had, r)
		}
	}
	for _, r := range kept {
		r.kept, r.high = nil, max(r.high, r.count)
	}
	for _, r := range had {
		if counted {
			expired := time.Now().After(r.doubt)
			a.end(r, !a.ordered)
			if r.doubt = (time.Time{}); inFlight && expired {
				r.high++ // it may have been dealt to the worker once more
			}
			continue
		}
		r.holder, r.kept = nil, w
	}
	if inFlight {
		a.mu.departing[w] = struct{}{}
	}
}

// closed takes in that the broker has ended the session of a worker without counting the
// deliveries that it had.
func (a *shareAccount) closed(w *shareWorker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.life != a.mu.life {
		return
	}
	for _, r := range a.mu.records {
		if r.kept == w {
			a.resolve(w, r)
		}
	}
}

// resolve takes in that the delivery of a record that a worker kept has ended by now.
func (a *shareAccount) resolve(w *shareWorker, r *shareRecord) {
	if r.kept != w {
		return
	}
	if time.Now().After(r.doubt) {
		r.high = max(r.high, r.count)
	}
	r.kept, r.doubt = nil, time.Time{}
}

// gone takes in that the broker has ended all that it did for a worker that was lost.
func (a *shareAccount) gone(w *shareWorker) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if _, ok := a.mu.departing[w]; !ok || w.life != a.mu.life {
		return
	}
	now := time.Now()
	for _, r := range a.mu.records {
		if a.surelyHeld(r, now) {
			continue
		}
		if r.holder != nil || !r.doubt.IsZero() {
			r.high = max(r.high, r.count)
		}
		r.high++
	}
	delete(a.mu.departing, w)
	a.mu.departed++
}

// has tells whether a worker may still have a record.
func (a *shareAccount) has(w *shareWorker, r *shareRecord) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return r.holder == w
}

// finish checks that every record of the log, which ends there, has ended.
func (a *shareAccount) finish(ends []int64) (archived, accepted int) {
	a.mu.Lock()
	defer a.mu.Unlock()
	now := time.Now()
	for p, end := range ends {
		for offset := range end {
			r := a.mu.records[shareOffset{int32(p), offset}]
			switch {
			case r == nil || r.done == "" && r.asked == 0 && !r.loose && a.highest(r, now) < a.limit:
				a.flaw("partition %d, offset %d is lost: %+v", p, offset, r)
			case r.done != "":
				accepted++
			case a.highest(r, now) >= a.limit:
				archived++
			}
		}
	}
	return archived, accepted
}
