package dealer

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/broker/extension"
	"github.com/lacunamq/lacuna/broker/ledgers"
	"github.com/lacunamq/lacuna/broker/share"
	"github.com/lacunamq/lacuna/cooperative"
	"github.com/lacunamq/lacuna/individualcommit"
	"github.com/twmb/franz-go/pkg/kerr"
)

// Query is what a member asks for with one fetch.
type Query struct {
	Group, Member string
	Partitions    []extension.TopicPartition // looked at in this order
	MaxRecords    int                        // of all partitions; 0 or less: none
	MaxBytes      int                        // about, of all partitions; one record comes in any case. See AppendRecords
	BatchSize     int                        // the most records of a delivery; 0: any number
	// WholeBatches deals the stored batch that reaches the limit to its end (KIP-1206, the
	// acquire mode batch_optimized).
	WholeBatches bool
	Filter       *Filter // nil: records of any key; else of WholeBatches nothing is heeded
	MaxWait      time.Duration
}

// Dealt is what a fetch got of one partition. Its member has acquired it: who does not
// hand it on gives it back (GiveBack).
type Dealt struct {
	Deliveries []cooperative.Delivery // by offset
	Err        error

	held        error      // why nothing was dealt although there may have been something
	p           *partition // nil: it could not be had
	member      string
	recordBytes int // what a record takes in the log, at most about
}

// fetch is a Query on its way.
type fetch struct {
	q    *Query
	view *share.View
	// done holds a signal when there is something to answer, or the fetch is to begin
	// again.
	done chan struct{}

	mu      sync.Mutex
	records int // that it may still get
	bytes   int // that it may still get
	got     int
	over    bool // nothing is dealt to it any more
	repeat  bool // partitions have changed hands
	dealt   []Dealt
}

// Fetch deals records to a member, and waits until there are some, the time is over or ctx
// ends. The results are in the order of the partitions.
func (d *Dealer) Fetch(ctx context.Context, q *Query) ([]Dealt, error) {
	waiting, cancel := context.WithTimeout(ctx, q.MaxWait)
	defer cancel()
	for {
		view, err := d.opts.Groups.Share(ctx, q.Group)
		if err != nil {
			return nil, err
		}
		if view == nil || !view.Member(q.Member) {
			return nil, fmt.Errorf("%q is no member of share group %q: %w", q.Member, q.Group, kerr.UnknownMemberID)
		}
		f := &fetch{q: q, view: view, done: make(chan struct{}, 1), records: q.MaxRecords, bytes: q.MaxBytes, dealt: make([]Dealt, len(q.Partitions))}
		if !f.run(ctx, waiting, d) {
			return f.dealt, nil
		}
	}
}

// run tells whether the fetch is to begin again.
func (f *fetch) run(ctx, waiting context.Context, d *Dealer) (again bool) {
	parts := make([]*partition, len(f.dealt))
	for i, tp := range f.q.Partitions {
		p, err := d.partition(ctx, key{f.q.Group, tp})
		switch {
		case err == nil:
			parts[i] = p
		case errors.Is(err, ledgers.ErrShareGone):
			f.again()
		default:
			f.dealt[i].Err = err
		}
	}
	for i, p := range parts {
		if p != nil {
			f.dealt[i].p, f.dealt[i].member = p, f.q.Member
			p.begin(f, i)
		}
	}
	defer func() { again = f.end(ctx, parts) && waiting.Err() == nil && d.ctx.Err() == nil }()
	var retry <-chan time.Time
	switch failed, missing := f.failed(); {
	case f.q.MaxRecords <= 0 || missing:
		return false
	case failed:
		timer := time.NewTimer(fetchRetry)
		defer timer.Stop()
		retry = timer.C
	}
	select {
	case <-f.done:
	case <-retry:
		f.again()
	case <-waiting.Done():
	case <-d.ctx.Done():
	}
	return false
}

// fetchRetry is how long a fetch waits whose partitions all fail before it tries them again.
const fetchRetry = time.Second

// end takes the fetch out of all partitions, and tells whether it is to begin again.
func (f *fetch) end(ctx context.Context, parts []*partition) (again bool) {
	f.mu.Lock()
	f.over = true
	again = f.repeat && f.got == 0
	for i := range f.dealt {
		if d := &f.dealt[i]; d.Err == nil && len(d.Deliveries) == 0 {
			d.Err = d.held
		}
	}
	f.mu.Unlock()
	for i, p := range parts {
		if p != nil {
			seen, err := p.leave(f)
			f.dealt[i].vouch(ctx, seen, err)
		}
	}
	return again
}

// vouch waits, where records were dealt again, until the deliveries that they had before
// are durable, so that a crash takes back no more than one of a record. seen is what the
// fetch has seen of the ledger.
func (d *Dealt) vouch(ctx context.Context, seen ledgers.ShareReceipt, err error) {
	if !slices.ContainsFunc(d.Deliveries, func(g cooperative.Delivery) bool { return g.Count > 1 }) {
		return
	}
	if err == nil {
		err = d.p.ledger.Wait(ctx, seen)
	}
	switch {
	case errors.Is(err, ledgers.ErrShareGone):
		d.Deliveries = nil // nobody has them any more
	case err != nil && ctx.Err() == nil:
		d.Err = fmt.Errorf("%s: %w", d.p.key, err)
	}
}

func (f *fetch) signal() { signal(f.done) }

// again ends a fetch that waits for a partition which is no more.
func (f *fetch) again() {
	f.mu.Lock()
	f.repeat = true
	f.mu.Unlock()
	f.signal()
}

// begin deals what there is to a fetch, or lets it wait.
func (p *partition) begin(f *fetch, i int) {
	_, err := p.act(func(*individualcommit.Ledger) {
		s := &p.locked
		p.dropWaiter(f.q.Member) // one fetch of a member waits at a time
		p.sift(f.q)
		if !p.mayFetch(f.q.Member) {
			s.dealing.Cancel(f.q.Member)
			switch {
			case s.view != nil && (s.view.Member(f.q.Member) || f.view.Epoch() > s.view.Epoch()):
				s.waiting[f.q.Member] = waiter{f, i} // until its assignment is heard of
			default:
				f.signal() // it is not a member any more
			}
			return
		}
		if p.deal(f, i) || !f.mayWait() {
			s.dealing.Cancel(f.q.Member)
			return
		}
		s.waiting[f.q.Member] = waiter{f, i}
		if f.q.Filter == nil {
			s.dealing.Wait(f.q.Member, f.q.MaxRecords)
		} else {
			s.dealing.Cancel(f.q.Member)
		}
	})
	switch {
	case errors.Is(err, ledgers.ErrShareGone):
		f.again()
	case err != nil:
		f.fail(i, err)
	}
}

// fail notes what is wrong with one of the fetch's partitions.
func (f *fetch) fail(i int, err error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.dealt[i].Err = err
}

// failed tells that something is wrong with every partition, and whether that is that none
// of them is there, which the client is to hear at once. Otherwise the fetch waits, as in
// Kafka: its client makes no pause between two fetches.
func (f *fetch) failed() (failed, missing bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	failed, missing = !f.repeat, !f.repeat
	for i := range f.dealt {
		failed = failed && f.dealt[i].Err != nil
		missing = missing && errors.Is(f.dealt[i].Err, extension.ErrUnknownPartition)
	}
	return failed, missing
}

// mayWait tells whether the fetch has nothing yet, so that it may wait.
func (f *fetch) mayWait() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.got == 0 && !f.over && f.q.MaxRecords > 0
}

// leave ends the wait of a fetch. If the ledger is gone so are those who wait for it.
func (p *partition) leave(f *fetch) (ledgers.ShareReceipt, error) {
	return p.act(func(*individualcommit.Ledger) {
		if w, ok := p.locked.waiting[f.q.Member]; ok && w.fetch == f {
			delete(p.locked.waiting, f.q.Member)
			p.locked.dealing.Cancel(f.q.Member)
		}
	})
}

// serve deals to the fetches that wait as long as that gives anybody anything. The
// ledger's lock is held.
func (p *partition) serve() {
	s := &p.locked
	if s.turn = !s.turn; s.turn {
		p.serveFiltered()
		p.serveAny()
		return
	}
	p.serveAny()
	p.serveFiltered()
}

// serveAny is serve for the fetches without a filter.
func (p *partition) serveAny() {
	s := &p.locked
	for served := true; served; {
		served = false
		s.ready = s.dealing.Ready(s.ready[:0])
		for _, member := range s.ready {
			w, ok := s.waiting[member]
			if !ok {
				s.dealing.Cancel(member)
				continue
			}
			if p.deal(w.fetch, w.index) {
				delete(s.waiting, member)
				served = true
			}
		}
	}
}

// deal acquires records for a fetch, and tells whether it need not wait here any more. The
// ledger's lock is held.
func (p *partition) deal(f *fetch, i int) bool {
	s := &p.locked
	if s.ending {
		return false
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	recordBytes := s.batches.recordBytes()
	most := min(f.records, f.bytes/recordBytes)
	if f.got == 0 {
		most = min(f.records, max(most, 1))
	}
	if f.over || most <= 0 {
		s.dealing.Cancel(f.q.Member)
		return true
	}
	if err := p.ledger.Room(most); err != nil {
		f.dealt[i].held, s.held = fmt.Errorf("%s: nothing is dealt: %w", p.key, err), true
		return false
	}
	want := cooperative.Want{MaxRecords: most, BatchSize: f.q.BatchSize}
	if f.q.WholeBatches {
		want.BatchEnd = s.batches.after
	}
	d := &f.dealt[i]
	before := len(d.Deliveries)
	d.Deliveries = p.acquire(d.Deliveries, f.q, want)
	n := recordsOf(d.Deliveries[before:])
	if n == 0 {
		return false
	}
	d.recordBytes = max(d.recordBytes, recordBytes)
	f.records, f.bytes, f.got = f.records-n, f.bytes-n*recordBytes, f.got+n
	f.signal()
	return true
}
