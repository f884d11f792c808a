package transaction

import (
	"math"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// reference is one transactional id as Kafka's rules have it, without regard to how it is
// logged: it remembers what a producer left, where the State has to infer it.
type reference struct {
	exists     bool
	p          Producer // as of now
	left       Producer // the one before, which may come again; or None
	old        []Producer
	after      Producer // while ending: the one that follows
	status     Status
	version    int8
	partitions []TopicPartition
	expected   []TopicPartition
	startMs    int64
	updateMs   int64
	timeoutMs  int32
}

// answer is what a request gets.
type answer struct {
	p       Producer
	err     *kerr.Error
	missing bool // Verify misses a partition
	ends    bool // a transaction is decided
}

func fails(err *kerr.Error) (answer, bool) { return answer{p: None, err: err}, false }

// who a request comes from, compared to the producer of now.
type who int

const (
	current  who = iota
	retrying     // the one before, which may not have heard
	fenced       // another epoch
	stranger     // another producer id
)

func (r *reference) who(p Producer) who {
	switch {
	case p == r.p:
		return current
	case r.left != None && p == r.left:
		return retrying
	case p.ID == r.p.ID:
		return fenced
	}
	return stranger
}

// stage is a Status, but for how it came to be.
type stage int

const (
	fresh stage = iota // Empty
	open               // Ongoing
	busy               // PrepareCommit, PrepareAbort
	committed
	aborted
)

var stages = map[Status]stage{
	Empty: fresh, Ongoing: open, PrepareCommit: busy, PrepareAbort: busy, CompleteCommit: committed, CompleteAbort: aborted,
}

// What is done for EndTxn.
const (
	ct   = "CONCURRENT_TRANSACTIONS"
	its  = "INVALID_TXN_STATE"
	pf   = "PRODUCER_FENCED"
	ipm  = "INVALID_PRODUCER_ID_MAPPING"
	end  = "decide"
	same = "answer as before"
)

// endings say what EndTxn does: by version, stage, who, and whether it aborts or commits.
var endings = map[int8]map[stage]map[who][2]string{
	0: {
		fresh:     {current: {its, its}, retrying: {pf, pf}, fenced: {pf, pf}, stranger: {ipm, ipm}},
		open:      {current: {end, end}, retrying: {pf, pf}, fenced: {pf, pf}, stranger: {ipm, ipm}},
		busy:      {current: {ct, ct}, retrying: {pf, pf}, fenced: {pf, pf}, stranger: {ipm, ipm}},
		committed: {current: {its, same}, retrying: {pf, pf}, fenced: {pf, pf}, stranger: {ipm, ipm}},
		aborted:   {current: {same, its}, retrying: {pf, pf}, fenced: {pf, pf}, stranger: {ipm, ipm}},
	},
	2: {
		fresh:     {current: {end, its}, retrying: {pf, pf}, fenced: {pf, pf}, stranger: {ipm, ipm}},
		open:      {current: {end, end}, retrying: {pf, pf}, fenced: {pf, pf}, stranger: {ipm, ipm}},
		busy:      {current: {ct, ct}, retrying: {ct, ct}, fenced: {ct, ct}, stranger: {ct, ct}},
		committed: {current: {end, its}, retrying: {its, same}, fenced: {pf, pf}, stranger: {ipm, ipm}},
		aborted:   {current: {end, its}, retrying: {same, its}, fenced: {pf, pf}, stranger: {ipm, ipm}},
	},
}

// answer also tells whether the producer answered was never given before.
func (r *reference) answer(now time.Time, req request) (a answer, first bool) {
	switch {
	case req.kind == initProducer:
		return r.init(now, req)
	case !r.exists:
		return fails(kerr.InvalidProducerIDMapping)
	case req.kind == endTransaction:
		return r.end(now, req)
	case req.kind == addPartitions && r.status.ending():
		return fails(kerr.ConcurrentTransactions)
	}
	switch w := r.who(req.p); {
	case req.p.ID != r.p.ID:
		return fails(kerr.InvalidProducerIDMapping)
	case w != current || !r.usable():
		return fails(kerr.ProducerFenced)
	case r.status.ending():
		return fails(kerr.ConcurrentTransactions)
	}
	missing := slices.ContainsFunc(req.partitions, func(tp TopicPartition) bool { return !slices.Contains(r.partitions, tp) })
	if req.kind == verifyPartitions {
		return answer{p: None, missing: missing}, false
	}
	if r.status != Ongoing {
		r.startMs = now.UnixMilli()
	}
	if missing || r.status != Ongoing {
		list := req.partitions
		if r.status != Ongoing && req.version == 2 {
			list, r.expected = slices.Concat(list, r.expected), nil
		}
		for _, tp := range list {
			if !slices.Contains(r.partitions, tp) {
				r.partitions = append(slices.Clone(r.partitions), tp)
			}
		}
		slices.SortFunc(r.partitions, comparePartitions)
		r.status, r.version, r.updateMs, r.left = Ongoing, req.version, now.UnixMilli(), None
	}
	return answer{p: None}, false
}

// usable tells whether anybody was given the producer of now.
func (r *reference) usable() bool { return r.p.Epoch < math.MaxInt16 }

func (r *reference) end(now time.Time, req request) (answer, bool) {
	w := r.who(req.p)
	if w == retrying && req.p.ID != r.p.ID && (req.version == 0 || r.status == Empty) {
		w = stranger // it lost its producer id, and does not retry the end of a transaction
	}
	if w == current && !r.usable() {
		w = fenced
	}
	i := 0
	if req.commit {
		i = 1
	}
	switch do := endings[req.version][stages[r.status]][w][i]; do {
	case end:
		return r.decide(now, req)
	case same:
		if req.version == 0 {
			return answer{p: None}, false
		}
		if !r.usable() {
			r.become(Producer{ID: req.newID})
			r.updateMs = now.UnixMilli()
			return answer{p: r.p}, true
		}
		return answer{p: r.p}, false
	default:
		return fails(map[string]*kerr.Error{
			ct: kerr.ConcurrentTransactions, its: kerr.InvalidTxnState,
			pf: kerr.ProducerFenced, ipm: kerr.InvalidProducerIDMapping,
		}[do])
	}
}

func (r *reference) decide(now time.Time, req request) (answer, bool) {
	if r.status != Ongoing {
		r.startMs = now.UnixMilli()
	}
	r.updateMs, r.version, r.status = now.UnixMilli(), req.version, PrepareAbort
	if req.commit {
		r.status = PrepareCommit
	}
	r.after, r.left = r.p, None
	if req.version == 0 {
		return answer{p: None, ends: true}, false
	}
	r.left = r.p
	r.become(Producer{ID: r.p.ID, Epoch: r.p.Epoch + 1})
	r.after = r.p
	if !r.usable() {
		r.after = Producer{ID: req.newID}
	}
	return answer{p: r.after, ends: true}, true
}

// become has another producer, and keeps the one before for retries.
func (r *reference) become(p Producer) {
	r.old = append(slices.Clone(r.old), r.p)
	r.p = p
}

func (r *reference) complete(now time.Time) {
	r.status += CompleteCommit - PrepareCommit
	r.updateMs, r.partitions = now.UnixMilli(), nil
	if r.after != r.p {
		r.become(r.after)
	}
}

// abort is what the coordinator does by itself.
func (r *reference) abort(now time.Time) {
	r.status, r.version, r.updateMs = PrepareAbort, 2, now.UnixMilli()
	r.left = r.p
	r.become(Producer{ID: r.p.ID, Epoch: r.p.Epoch + 1})
	r.after = r.p
}

func (r *reference) init(now time.Time, req request) (answer, bool) {
	if !r.exists {
		*r = reference{exists: true, p: Producer{ID: req.newID}, left: None, old: r.old}
		return r.initialised(now, true)
	}
	w := r.who(req.p)
	if req.p == None {
		w = current
	}
	switch {
	case r.status.ending():
		return fails(kerr.ConcurrentTransactions)
	case r.status == Ongoing && w == current:
		r.abort(now)
		return answer{p: None, err: kerr.ConcurrentTransactions, ends: true}, false
	case w != current && w != retrying || r.status == Ongoing:
		return fails(kerr.ProducerFenced)
	case w == retrying && r.usable():
		return r.initialised(now, false)
	}
	r.left = req.p
	if r.p.Epoch >= math.MaxInt16-1 {
		r.become(Producer{ID: req.newID})
	} else {
		r.become(Producer{ID: r.p.ID, Epoch: r.p.Epoch + 1})
	}
	return r.initialised(now, true)
}

func (r *reference) initialised(now time.Time, first bool) (answer, bool) {
	r.status, r.partitions, r.startMs, r.updateMs, r.timeoutMs = Empty, nil, -1, now.UnixMilli(), 30_000
	return answer{p: r.p}, first
}

func (r *reference) due(c Config) (int64, bool) {
	switch {
	case !r.exists || r.status.ending():
		return 0, false
	case r.status == Ongoing:
		return r.startMs + int64(r.timeoutMs), true
	}
	return r.updateMs + c.IDExpiration.Milliseconds(), true
}

func (r *reference) tick(now time.Time, c Config) {
	switch at, ok := r.due(c); {
	case !ok || at > now.UnixMilli():
	case r.status == Ongoing:
		r.abort(now)
	default:
		*r = reference{old: append(slices.Clone(r.old), r.p), left: None}
	}
}

// producers are those that were, or might come.
func (r *reference) producers() []Producer {
	list := []Producer{
		None, r.p, r.left, r.after, {ID: r.p.ID, Epoch: r.p.Epoch - 1}, {ID: r.p.ID, Epoch: r.p.Epoch - 2},
		{ID: 7, Epoch: r.p.Epoch}, {ID: 7, Epoch: math.MaxInt16 - 1}, {ID: r.p.ID, Epoch: math.MaxInt16 - 1},
	}
	if r.usable() {
		list = append(list, Producer{ID: r.p.ID, Epoch: r.p.Epoch + 1})
	}
	list = append(list, r.old[max(0, len(r.old)-3):]...)
	seen := make(map[Producer]bool)
	return slices.DeleteFunc(list, func(p Producer) bool {
		twice := seen[p]
		seen[p] = true
		return twice
	})
}
