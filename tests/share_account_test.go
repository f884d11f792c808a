package tests

import (
	"fmt"
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
	ordered bool // per key
	limit   int  // of deliveries
	lock    time.Duration

	mu struct {
		sync.Mutex
		life    int // of the broker; what comes from an earlier one counts for nothing
		records map[shareOffset]*shareRecord
		keys    map[shareKey][]*shareRecord // by offset
		faults  []string
		seen    int // deliveries
		late    int // that were seen too late to say who has what
		// due is closed when so many more records have ended; then it is time for a crash.
		due  chan struct{}
		more int
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
	maybe      bool   // what would end it was asked for, and may have been done
	holder     *shareWorker
	until      time.Time // the holder has it for sure; before the worker's own patience
	count      int       // of the delivery that the holder has
	// low to high is how many deliveries have ended and were counted; durable is how many
	// of them a crash cannot take back.
	low, high, durable int
	// loose: somebody may have it who got it too late to be sure.
	loose bool
}

func newShareAccount(ordered bool, limit int, lock time.Duration) *shareAccount {
	a := &shareAccount{ordered: ordered, limit: limit, lock: lock}
	a.mu.records = make(map[shareOffset]*shareRecord)
	a.mu.keys = make(map[shareKey][]*shareRecord)
	return a
}

// fault notes what is wrong. Once a delivery was seen late it is not known who has which
// records of its key.
func (a *shareAccount) fault(format string, args ...any) {
	if a.ordered && a.mu.late > 0 {
		return
	}
	a.mu.faults = append(a.mu.faults, fmt.Sprintf(format, args...))
}

func (a *shareAccount) faults() []string {
	a.mu.Lock()
	defer a.mu.Unlock()
	return slices.Clone(a.mu.faults)
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
	for _, r := range a.mu.records {
		if r.holder != nil && time.Now().After(a.sureUntil(r)) {
			r.high = max(r.high, r.count)
		}
		r.holder = nil
		r.low = max(r.low-1, r.durable)
	}
}

// afterMore is closed when so many more records have ended.
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
		r = &shareRecord{shareOffset: at, key: key, value: value}
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
// loses it with any earlier record of the key.
func (a *shareAccount) sureUntil(r *shareRecord) time.Time {
	until := earlier(r.until, r.holder.patience())
	if a.ordered && r.key != "" {
		for _, other := range a.mu.keys[shareKey{r.partition, r.key}] {
			if other.offset >= r.offset {
				break
			}
			if other.holder == r.holder {
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

// delivered takes in what a worker was dealt by a fetch that it sent at that time, and
// gives what it has now. It tells whether the broker is still the same.
func (a *shareAccount) delivered(w *shareWorker, sent time.Time, dealt []wire.Shared) (got []*shareRecord, same bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.life != a.mu.life || w.dead {
		return nil, false
	}
	now := time.Now()
	late := now.After(earlier(sent.Add(a.lock), w.patience()))
	for i := range dealt {
		d := &dealt[i]
		r := a.record(shareOffset{d.Partition, d.Offset}, string(d.Key), string(d.Value))
		a.mu.seen++
		if late { // others may have had it since
			r.high, r.loose = max(r.high, int(d.Count)), true
			a.mu.late++
			continue
		}
		a.check(w, r, int(d.Count), now)
		r.holder, r.until, r.count = w, sent.Add(a.lock), int(d.Count)
		r.low, r.high = r.count-1, r.count-1
		r.maybe, r.loose = false, false
		got = append(got, r)
	}
	return got, true
}

// check looks whether a record may be delivered to a worker.
func (a *shareAccount) check(w *shareWorker, r *shareRecord, count int, now time.Time) {
	if r.done != "" {
		a.fault("%v comes again, to %s, though it was %s", r.shareOffset, w.m.ID, r.done)
	}
	if h := r.holder; h != nil {
		if until := a.sureUntil(r); now.Before(until) {
			a.fault("%v is dealt to %s and %s has it for another %v", r.shareOffset, w.m.ID, h.m.ID, until.Sub(now))
		}
		a.withLater(r, a.released)
		a.end(r, !a.ordered) // its lock ran out
	}
	if r.maybe { // it was asked for too late
		r.high = max(r.high, r.count)
	}
	if !r.loose && (count < r.low+1 || count > r.high+1) || count > a.limit {
		a.fault("%v: delivery %d to %s, expected %d to %d", r.shareOffset, count, w.m.ID, r.low+1, min(r.high+1, a.limit))
	}
	if !a.ordered || r.key == "" {
		return
	}
	for _, other := range a.mu.keys[shareKey{r.partition, r.key}] {
		if other.offset >= r.offset {
			break
		}
		if other.done == "" && !other.maybe && !other.loose && other.high < a.limit && other.holder != w {
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

// lost ends all that a worker has, since it is about to go, or is not heard any more.
func (a *shareAccount) lost(w *shareWorker, counted, inFlight bool) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.life != a.mu.life || w.dead {
		return
	}
	w.dead = counted
	for _, r := range a.mu.records {
		wasHeld := r.holder == w
		expired := wasHeld && time.Now().Add(a.lock/4).After(a.sureUntil(r))
		switch {
		case r.holder == w && counted:
			a.end(r, !a.ordered)
		case r.holder == w:
			if time.Now().After(a.sureUntil(r)) {
				r.high = max(r.high, r.count)
			}
			r.holder = nil
		}
		if inFlight && (expired || !wasHeld && (r.holder == nil || time.Now().Add(a.lock/4).After(a.sureUntil(r)))) {
			r.high = max(r.high, r.count) + 1 // it may have been dealt to the worker
		}
	}
}

// ackTypes are Kafka's.
const (
	ackAccept  = 1
	ackRelease = 2
	ackReject  = 3
	ackRenew   = 4
)

var ackNames = map[int8]string{ackAccept: "accepted", ackReject: "rejected"}

// said is one record of an acknowledgement under way.
type said struct {
	r     *shareRecord
	kind  int8
	count int  // of the delivery
	alone bool // no other of its partition is in the request
	sure  bool // the worker had it when it sent the request
}

// asking takes in what a worker is about to say of records that it has.
func (a *shareAccount) asking(w *shareWorker, r *shareRecord, kind int8) said {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := said{r: r, kind: kind, count: r.count, sure: r.holder == w}
	if r.holder != w {
		return s // somebody else has it already
	}
	until := a.sureUntil(r)
	switch kind {
	case ackRelease:
		a.withLater(r, func(other *shareRecord) {
			if r.count >= a.limit { // it is archived, and the others stay
				other.until = earlier(other.until, until)
				return
			}
			a.released(other)
		})
		a.end(r, false)
	case ackAccept, ackReject:
		// If that comes too late, others are lost with it.
		a.withLater(r, func(other *shareRecord) { other.until = earlier(other.until, until) })
		if time.Now().After(until) {
			r.high = max(r.high, r.count)
		}
		r.holder, r.maybe = nil, true
	}
	return s
}

// released ends a delivery of a record that came back with an earlier one of its key,
// which does not count, unless its own lock ran out first.
func (a *shareAccount) released(r *shareRecord) {
	if time.Now().Add(a.lock / 4).After(a.sureUntil(r)) {
		r.high = max(r.high, r.count)
	}
	r.holder = nil
}

// withLater calls f with what the holder of a record has of its key after it, the last one
// first, in the ordered modes.
func (a *shareAccount) withLater(r *shareRecord, f func(*shareRecord)) {
	if !a.ordered || r.key == "" {
		return
	}
	for _, other := range slices.Backward(a.mu.keys[shareKey{r.partition, r.key}]) {
		if other.offset <= r.offset {
			return
		}
		if other.holder == r.holder {
			f(other)
		}
	}
}

// answered takes in the answer to what a worker said at that time.
func (a *shareAccount) answered(w *shareWorker, sent time.Time, all []said, refused map[int32]error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if w.life != a.mu.life {
		return
	}
	now := time.Now()
	for _, s := range all {
		r := s.r
		if err := refused[r.partition]; err != nil {
			mine := now.Before(sent.Add(a.lock)) && r.count == s.count && s.sure
			switch {
			case s.kind == ackRenew && r.holder == w && !a.ordered && now.Before(a.sureUntil(r)):
				a.fault("%v: %s may not renew what it has: %v", r.shareOffset, w.m.ID, err)
			case s.alone && mine && r.holder == nil && r.maybe:
				r.maybe = false // it was certainly not done; its lock had run out
				r.high = max(r.high, r.count)
			}
			continue
		}
		switch s.kind {
		case ackRelease:
			r.low, r.durable = max(r.low, s.count), max(r.durable, s.count)
			r.high = max(r.high, r.low)
		case ackRenew:
			if r.holder == w && r.count == s.count {
				r.until = sent.Add(a.lock)
			}
		default:
			if r.holder != nil || !r.maybe {
				a.fault("%v was %s for %s, and dealt again before that was answered", r.shareOffset, ackNames[s.kind], w.m.ID)
			}
			r.done = ackNames[s.kind]
			if a.mu.more--; a.mu.more == 0 {
				close(a.mu.due)
			}
		}
	}
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
	for p, end := range ends {
		for offset := range end {
			r := a.mu.records[shareOffset{int32(p), offset}]
			switch {
			case r == nil || r.done == "" && !r.maybe && !r.loose && r.high < a.limit:
				a.mu.faults = append(a.mu.faults, fmt.Sprintf("partition %d, offset %d is lost: %+v", p, offset, r))
			case r.done != "":
				accepted++
			case r.high >= a.limit:
				archived++
			}
		}
	}
	return archived, accepted
}
