package client

import (
	"errors"
	"maps"
	"slices"
)

// ticket is the wait for one commit, of any number of partitions.
type ticket struct {
	waits int // partitions not settled yet
	errs  []error
	done  chan struct{} // closed when waits reaches 0
}

func newTicket(waits int) *ticket {
	t := &ticket{waits: waits, done: make(chan struct{})}
	if waits == 0 {
		close(t.done)
	}
	return t
}

// settle notes the outcome for one of the partitions.
func (t *ticket) settle(err error) {
	if err != nil {
		t.errs = append(t.errs, err)
	}
	if t.waits--; t.waits == 0 {
		close(t.done)
	}
}

// err is the outcome; it may be asked for once done is closed.
func (t *ticket) err() error { return errors.Join(t.errs...) }

// ask is what one call wants committed of one partition. Its ticket is nil if nobody
// waits for it.
type ask struct {
	runs   []Run
	ticket *ticket
}

// commitQueue collects commits until they are sent, so that many calls share a request.
// It is a plain value: its owner locks it and sends what it gives.
type commitQueue struct {
	asks    map[TopicPartition][]ask
	markers []*ticket // of flushes: settled after all asks of this batch
	runs    int       // runs in asks
}

// add queues runs, which it keeps. Commits that nobody waits for share one ask.
func (q *commitQueue) add(tp TopicPartition, runs []Run, t *ticket) {
	if q.asks == nil {
		q.asks = make(map[TopicPartition][]ask)
	}
	asks := q.asks[tp]
	before := 0
	if i := slices.IndexFunc(asks, func(a ask) bool { return a.ticket == nil }); t == nil && i >= 0 {
		before = len(asks[i].runs)
		asks[i].runs = appendRuns(asks[i].runs, runs)
		q.runs += len(asks[i].runs) - before
		return
	}
	q.asks[tp] = append(asks, ask{runs: runs, ticket: t})
	q.runs += len(runs)
}

// appendRuns appends runs to dst, growing its last run where that does: a consumer that
// commits in order needs one run however far it gets.
func appendRuns(dst, runs []Run) []Run {
	for _, r := range runs {
		if n := len(dst); n > 0 && dst[n-1].End == r.Start {
			dst[n-1].End = r.End
			continue
		}
		dst = append(dst, r)
	}
	return dst
}

// take empties the queue and returns what was in it.
func (q *commitQueue) take() commitQueue {
	taken := *q
	*q = commitQueue{}
	return taken
}

// empty tells that there is nothing to send, nor a flush to answer.
func (q *commitQueue) empty() bool { return q.runs == 0 && len(q.markers) == 0 }

// part is a commit of one partition that belongs into one request: the runs of its asks,
// normal, or as many of them as fit.
type part struct {
	tp   TopicPartition
	runs []Run
}

// requests splits all asks into requests of at most maxRuns runs each. A partition with
// more runs than that is spread over several.
func (q *commitQueue) requests(maxRuns int) (requests [][]part) {
	var now []part
	room := maxRuns
	for _, tp := range slices.SortedFunc(maps.Keys(q.asks), compareTopicPartitions) {
		for runs := joinAsks(q.asks[tp]); len(runs) > 0; {
			n := min(len(runs), room)
			now = append(now, part{tp: tp, runs: runs[:n:n]})
			runs = runs[n:]
			if room -= n; room == 0 {
				requests, now, room = append(requests, now), nil, maxRuns
			}
		}
	}
	if len(now) > 0 {
		requests = append(requests, now)
	}
	return requests
}

// joinAsks is the normal form of all runs of asks, in a new slice.
func joinAsks(asks []ask) []Run {
	n := 0
	for i := range asks {
		n += len(asks[i].runs)
	}
	runs := make([]Run, 0, n)
	for i := range asks {
		runs = append(runs, asks[i].runs...)
	}
	return join(runs)
}
