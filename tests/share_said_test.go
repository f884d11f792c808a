package tests

import (
	"errors"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

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
	count int       // of the delivery
	sure  bool      // the worker had it when it sent the request
	until time.Time // the worker has it for sure
	// with is what comes back with the record, which is not in the request.
	with []*shareRecord
}

// asking takes in what a worker is about to say of records that it has.
func (a *shareAccount) asking(w *shareWorker, r *shareRecord, kind int8) said {
	a.mu.Lock()
	defer a.mu.Unlock()
	s := said{r: r, kind: kind, count: r.count, sure: r.holder == w}
	if r.holder != w {
		return s // somebody else has it already
	}
	s.until = a.sureUntil(r)
	switch kind {
	case ackRelease:
		a.withLater(w, r, func(other *shareRecord) {
			if r.count >= a.limit { // it is archived, and the others stay
				other.until = earlier(other.until, s.until)
				return
			}
			// It does not count, unless its own lock runs out first.
			if other.doubt = a.sureUntil(other); a.mixed { // without an order it does
				other.doubt = time.Now()
			}
			other.holder, other.kept = nil, w
			s.with = append(s.with, other)
		})
		a.end(r, false)
		r.kept = w
	case ackAccept, ackReject:
		// If that comes too late, others are lost with it.
		a.withLater(w, r, func(other *shareRecord) { other.until = earlier(other.until, s.until) })
		if time.Now().After(s.until) {
			r.high = max(r.high, r.count)
		}
		r.holder, r.kept, r.asked = nil, w, kind
	}
	return s
}

// withLater calls f with what a worker has of the key of a record after it, the last one
// first, in the ordered modes.
func (a *shareAccount) withLater(w *shareWorker, r *shareRecord, f func(*shareRecord)) {
	if !a.ordered || r.key == "" {
		return
	}
	for _, other := range slices.Backward(a.mu.keys[shareKey{r.partition, r.key}]) {
		if other.offset <= r.offset {
			return
		}
		if other.holder == w {
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
	a.checkRefused(w, all, refused, now)
	for i := range all {
		s := &all[i]
		r := s.r
		if err := refused[r.partition]; err != nil {
			if errors.Is(err, kerr.InvalidRecordState) { // else the broker did not wait for the disk, since the worker is gone
				a.refused(w, s, now.Before(sent.Add(a.lock)))
			}
			continue
		}
		if r.kept == w && r.count == s.count {
			r.kept = nil
		}
		for _, other := range s.with {
			a.resolve(w, other)
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
			if r.holder != nil || r.asked == 0 {
				a.fault("%v was %s for %s, and dealt again before that was answered", r.shareOffset, ackNames[s.kind], w.m.ID)
			}
			r.done = ackNames[s.kind]
			if s.kind == ackReject || !a.letters {
				a.mu.more--
				if a.mu.more == 0 {
					close(a.mu.due)
				}
			}
		}
	}
}

// checkRefused looks whether what was refused may be. What is said of the records of one
// partition is carried out or refused together: one that the worker does not have any more
// is enough.
func (a *shareAccount) checkRefused(w *shareWorker, all []said, refused map[int32]error, now time.Time) {
	unsure := make(map[int32]bool)
	for i := range all {
		s := &all[i]
		moved := s.kind == ackRenew && a.ordered // what others wait for may not be renewed
		if !s.sure || !now.Before(s.until) || moved || w.dead {
			unsure[s.r.partition] = true
		}
	}
	for i := range all {
		if p := all[i].r.partition; refused[p] != nil && !unsure[p] {
			a.fault("%v: %s may not say %d of what it has: %v", all[i].r.shareOffset, w.m.ID, all[i].kind, refused[p])
		}
	}
}

// refused takes in that nothing was done of what a worker said of the records of a
// partition. It has them still, but for one at least, which may be any. Soon: no lock
// that began with the request can have run out.
func (a *shareAccount) refused(w *shareWorker, s *said, soon bool) {
	r := s.r
	if s.kind != ackRenew && s.sure && r.count == s.count && r.kept == w {
		if soon {
			r.asked = 0
		}
		r.high = max(r.high, r.count)
	}
	for _, other := range s.with {
		if other.kept == w {
			other.high, other.doubt = max(other.high, other.count), time.Time{}
		}
	}
}
