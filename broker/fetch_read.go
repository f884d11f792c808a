package broker

import (
	"context"
	"sync"
	"time"

	"github.com/lacunamq/lacuna/commitlog"
	"github.com/lacunamq/lacuna/keyfilter"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// fetchRead reads what one fetch asks for, and waits until there is enough of it.
type fetchRead struct {
	b             *Broker
	fetch         *fetchContext
	filter        *keyfilter.Filter // nil: every record
	byID          bool
	readCommitted bool
	minBytes      int
	maxBytes      int
	wait          time.Duration

	results  []fetchResult
	buf      *[]byte // holds the record bytes of every result
	reserved int64   // bytes of the budget for fetched data
	served   int     // how many targets were read before the answer was full
}

// fetchResult is what was read of one partition.
type fetchResult struct {
	code      int16
	bounds    commitlog.Bounds // zero with an error
	at, end   int              // the records' place in the buffer
	aborted   []commitlog.AbortedTxn
	diverging *epochEnd
	// scannedTo is where a filtered fetch goes on, -1 when it was not filtered; full says
	// that the scan stopped at its bound and not at the end of the log.
	scannedTo int64
	full      bool
	// counted is how many of the bytes count for min_bytes.
	counted int
}

// passed is the offset up to which a filtered fetch found nothing to send, so that it
// does not look there again while it waits; 0 when that is not known.
func (r *fetchResult) passed() int64 {
	if r.code != 0 || r.size() > 0 {
		return 0
	}
	return max(r.scannedTo, 0)
}

// epochEnd is the last epoch that a client's log and this one share, and where it ends.
type epochEnd struct {
	epoch int32
	end   int64
}

func (r *fetchResult) size() int { return r.end - r.at }

const pooledFetchBytes = 8 << 20

var fetchPool = sync.Pool{New: func() any { return new([]byte) }}

func newFetchRead(b *Broker, f *fetchContext, req *kmsg.FetchRequest, filter *keyfilter.Filter) *fetchRead {
	return &fetchRead{
		b: b, fetch: f, filter: filter,
		byID:          req.Version >= 13,
		readCommitted: req.IsolationLevel == 1,
		minBytes:      int(req.MinBytes),
		maxBytes:      min(max(int(req.MaxBytes), 0), b.limits.fetchMaxBytes),
		wait:          time.Duration(max(req.MaxWaitMillis, 0)) * time.Millisecond,
		results:       make([]fetchResult, len(f.targets)),
		buf:           fetchPool.Get().(*[]byte),
	}
}

// release gives back the memory of the results, once they have been sent.
func (r *fetchRead) release() {
	r.drop()
	if cap(*r.buf) <= pooledFetchBytes {
		fetchPool.Put(r.buf)
	}
}

// drop forgets what was read.
func (r *fetchRead) drop() {
	*r.buf = (*r.buf)[:0]
	if r.reserved > 0 {
		r.b.fetchMemory.Release(r.reserved)
		r.reserved = 0
	}
}

// run reads until there is enough to answer, the fetch has waited as long as it may, or
// ctx ends.
func (r *fetchRead) run(ctx context.Context) {
	if r.readAll(ctx) || r.wait == 0 {
		return
	}
	changed := make(chan struct{}, 1)
	for _, stop := range r.watch(changed) {
		defer stop()
	}
	timer := time.NewTimer(r.wait)
	defer timer.Stop()
	for {
		// What changed before the watch began is read here.
		if r.readAll(ctx) {
			return
		}
		select {
		case <-changed:
		case <-timer.C:
			r.readAll(ctx)
			return
		case <-ctx.Done():
			return
		}
	}
}

// watch asks to be told of changes to every partition that can be read.
func (r *fetchRead) watch(changed chan<- struct{}) []func() {
	stops := make([]func(), 0, len(r.fetch.targets))
	for _, t := range r.fetch.targets {
		if log, err := r.open(t); err == nil {
			stops = append(stops, log.Watch(changed))
		}
	}
	return stops
}

// readAll reads every partition anew and tells whether that answers the fetch: enough
// bytes, an error, or a scan that stopped at its bound.
func (r *fetchRead) readAll(ctx context.Context) bool {
	r.drop()
	r.served = 0
	total, counted, urgent := 0, 0, false
	for i, t := range r.fetch.targets {
		res := &r.results[i]
		passed := res.passed()
		*res = fetchResult{scannedTo: -1}
		if r.filter != nil {
			res.scannedTo = max(t.offset, passed)
		}
		if err := r.read(ctx, t, res, r.maxBytes-total, total == 0); err != nil {
			res.code, _ = r.b.errorCode(err)
			res.bounds = commitlog.Bounds{}
		}
		total += res.size()
		counted += res.counted
		urgent = urgent || res.code != 0 || res.full || res.diverging != nil
		if total < r.maxBytes {
			r.served = i + 1
		}
	}
	return urgent || counted >= r.minBytes || len(r.fetch.targets) == 0
}

func (r *fetchRead) open(t *fetchTarget) (*commitlog.Log, error) {
	topic, refused := r.b.topics.find(t.name, t.id, r.byID)
	if refused != nil {
		return nil, refused
	}
	_, log, err := topic.open(t.partition)
	return log, err
}

// read reads at most room bytes of one partition; the first batch is read whole however
// large it is, when first is set.
func (r *fetchRead) read(ctx context.Context, t *fetchTarget, res *fetchResult, room int, first bool) error {
	log, err := r.open(t)
	if err != nil {
		return err
	}
	bounds := log.Bounds()
	if err := checkLeaderEpoch(t.leaderEpoch, bounds.LeaderEpoch); err != nil {
		return err
	}
	if t.offset < bounds.Start || t.offset > bounds.End {
		return kerr.OffsetOutOfRange
	}
	res.bounds = bounds
	if t.lastEpoch >= 0 {
		if epoch, end := log.EndOfEpoch(t.lastEpoch); epoch < t.lastEpoch || end < t.offset {
			res.diverging = &epochEnd{epoch, end}
			return nil
		}
	}
	upTo := bounds.HighWatermark
	if r.readCommitted {
		upTo = bounds.LSO
	}
	if t.offset >= upTo || (room <= 0 && !first) {
		return nil
	}
	want := min(int(max(t.maxBytes, 0)), max(room, 0))
	if ok, err := r.reserve(ctx, int64(want)); !ok {
		return err
	}
	err = r.readRecords(log, t, res, commitlog.ReadOptions{MaxBytes: want, UpTo: upTo, MinOne: first})
	r.unreserve(int64(want - res.size()))
	return err
}

// reserve takes bytes of the budget for fetched data. With something read already it
// does not wait: that is answered first.
func (r *fetchRead) reserve(ctx context.Context, bytes int64) (bool, error) {
	bytes = min(bytes, r.b.limits.fetchMemory)
	if !r.b.fetchMemory.TryAcquire(bytes) {
		if r.reserved > 0 {
			return false, nil
		}
		if err := r.b.fetchMemory.Acquire(ctx, bytes); err != nil {
			return false, nil // the fetch is over
		}
	}
	r.reserved += bytes
	return true, nil
}

// unreserve gives back what a read did not need.
func (r *fetchRead) unreserve(bytes int64) {
	if bytes = min(bytes, r.reserved); bytes > 0 {
		r.reserved -= bytes
		r.b.fetchMemory.Release(bytes)
	}
}

// readRecords appends the partition's records to the buffer.
func (r *fetchRead) readRecords(log *commitlog.Log, t *fetchTarget, res *fetchResult, o commitlog.ReadOptions) error {
	res.at = len(*r.buf)
	res.end = res.at
	if r.filter != nil {
		return r.readFiltered(log, t, res, o)
	}
	read, err := log.Read(*r.buf, t.offset, o)
	if err != nil {
		return err
	}
	*r.buf = read.Data
	res.end = len(read.Data)
	res.counted = res.size()
	return r.readAborted(log, t, res, read.Next)
}

// readAborted adds the aborted transactions among what was read up to next, for a
// consumer that is to leave them out.
func (r *fetchRead) readAborted(log *commitlog.Log, t *fetchTarget, res *fetchResult, next int64) (err error) {
	if r.readCommitted && next > t.offset {
		res.aborted, err = log.AbortedTxns(t.offset, next)
	}
	return err
}

// checkLeaderEpoch compares the epoch that a client believes in, -1 for none (KIP-320).
func checkLeaderEpoch(client, current int32) error {
	switch {
	case client < 0 || client == current:
		return nil
	case client < current:
		return kerr.FencedLeaderEpoch
	default:
		return kerr.UnknownLeaderEpoch
	}
}
