package processor

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
)

// feedSpec is what a feed reads: a range of slots of some partitions.
type feedSpec struct {
	slots client.SlotRange
	// rebuild: the records are another member's to process. They are followed as far as they
	// are committed.
	rebuild bool
	// staged: they are read up to where their stage ends, and no further.
	staged bool
}

// feed reads for a task, and does for it what waits for the network. It hands over one batch
// at a time and goes on when the task says so.
type feed struct {
	spec   feedSpec
	tps    []client.TopicPartition
	area   assignor.Area                   // that it reads, with a changelog
	ends   map[client.TopicPartition]int64 // of the stage, if staged
	reader *client.Reader
	failed func(error)

	batches chan<- *batch
	held    held      // read and not handed over
	looked  time.Time // when the ledger was read last because of that
	// verdicts says of the batch that was handed over how many of its records were used: all,
	// or those before one that is not committed yet.
	verdicts chan int
	// began is where the state was in each partition when the feed was opened, and taken how far it
	// was last told to be since; the task's.
	began, taken map[client.TopicPartition]int64
	// ended: it is staged, and the state has all that it brings; the task's.
	ended bool

	promoted chan struct{} // closed when the records have become the task's own to process
	cancel   context.CancelFunc
	done     chan struct{} // closed when nothing of it runs any more

	mu struct {
		sync.Mutex
		lag   int64 // offsets behind the ledger
		known bool  // lag is
		// follows are the partitions in which the state is one of the past: the feed has not
		// come to where the ledger was, nor to a record that is not committed.
		follows map[client.TopicPartition]bool
		// interrupt ends a poll.
		interrupt context.CancelFunc
	}
}

// batch is some records of a feed.
type batch struct {
	feed *feed
	// own: they are the task's to process, as far as they are not committed.
	own     bool
	records []*kgo.Record
	next    map[client.TopicPartition]int64 // where the feed is when all were used
	used    int                             // by the task, so far
	// last: the feed has come to the end of its stage. There may be no records in it.
	last bool
}

// start begins to read.
func (f *feed) start() {
	ctx, cancel := context.WithCancel(context.Background())
	f.cancel, f.done = cancel, make(chan struct{})
	own := !f.spec.rebuild
	go f.run(ctx, own)
}

// hold lets a feed be stopped that was not started.
func (f *feed) hold() {
	f.cancel, f.done = func() {}, make(chan struct{})
	close(f.done)
}

// stop ends the feed and waits for it; what it has asked to commit is answered.
func (f *feed) stop(ctx context.Context) error {
	f.cancel()
	<-f.done
	return f.reader.Close(ctx)
}

// promote makes the records the task's own to process, from the next batch on.
func (f *feed) promote() {
	close(f.promoted)
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.mu.interrupt != nil {
		f.mu.interrupt()
	}
}

// run reads until ctx ends, or its stage. Own says whose the records are at first.
func (f *feed) run(ctx context.Context, own bool) {
	defer close(f.done)
	for {
		if !own && f.isPromoted() {
			if !f.refresh(ctx) {
				return
			}
			own = true
		}
		records, ok := f.poll(ctx, own)
		if !ok {
			return
		}
		b := &batch{feed: f, own: own, records: records, next: f.positions()}
		switch {
		case !own:
			f.held.add(records)
			b.records = f.held.takeCommitted(f.tps, f.reader)
			f.held.bound(b.next)
		case f.held.n > 0: // poll brought none
			b.records = f.held.takeAll(f.tps)
		}
		if b.last = f.atEnd(b.next); len(b.records) > 0 || b.last {
			if !f.handAll(ctx, b) || b.last {
				return
			}
		}
		f.noteLag()
	}
}

// handAll gives a batch to the task until it has used all of it. What of others' is open by then,
// because somebody reopened it, is held again.
func (f *feed) handAll(ctx context.Context, b *batch) bool {
	for {
		select {
		case f.batches <- b:
		case <-ctx.Done():
			return false
		}
		select {
		case used := <-f.verdicts:
			b.records, b.used = b.records[used:], 0
		case <-ctx.Done():
			return false
		}
		if len(b.records) == 0 {
			return true
		}
		if !b.own {
			f.held.putBack(b.records)
			b.last = false
			return true
		}
	}
}

// atEnd tells that a feed of a stage has nothing more to read.
func (f *feed) atEnd(next map[client.TopicPartition]int64) bool {
	for tp, end := range f.ends {
		if at, ok := next[tp]; !ok || at < end {
			return false
		}
	}
	return f.spec.staged
}

func (f *feed) isPromoted() bool {
	select {
	case <-f.promoted:
		return true
	default:
		return false
	}
}

// poll waits for records, or for a promotion. It looks how far the feed has come every now
// and then, and more often while it holds records: whether they are committed.
func (f *feed) poll(ctx context.Context, own bool) (records []*kgo.Record, ok bool) {
	patience := lookAround
	if f.held.n > 0 && !own {
		patience = lookAtHeld
		if now := time.Now(); now.Sub(f.looked) >= lookAtHeld {
			f.looked = now
			if !f.refresh(ctx) {
				return nil, false
			}
		}
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	f.mu.Lock()
	f.mu.interrupt = cancel
	f.mu.Unlock()
	switch {
	case !own && f.isPromoted(), own && f.held.n > 0:
		return nil, true
	case f.held.n >= heldMax:
		<-waiting.Done()
		return nil, ctx.Err() == nil
	}
	records, err := f.reader.Poll(waiting)
	switch {
	case ctx.Err() != nil:
		return nil, false
	case err != nil && waiting.Err() == nil:
		f.failed(err)
	}
	return records, true
}

const (
	// lookAround is how often a feed without records looks how far it is.
	lookAround = 200 * time.Millisecond
	// lookAtHeld is how often it reads the ledger while it waits for records to be committed.
	lookAtHeld = 50 * time.Millisecond
)

// refresh reads the ledger until that succeeds.
func (f *feed) refresh(ctx context.Context) bool {
	for {
		err := f.reader.Refresh(ctx)
		if ctx.Err() != nil {
			return false
		}
		if err == nil {
			return true
		}
		f.failed(fmt.Errorf("read the ledger: %w", err))
		select {
		case <-time.After(100 * time.Millisecond):
		case <-ctx.Done():
			return false
		}
	}
}

// positions is where the feed is in each partition when all that was polled is used.
func (f *feed) positions() map[client.TopicPartition]int64 {
	next := make(map[client.TopicPartition]int64, len(f.tps))
	for _, s := range f.reader.Status() {
		if !s.Redelivering {
			next[s.TopicPartition] = s.Position
		}
	}
	return next
}

// noteLag compares with the ledger. A partition that waits for its next record to be committed is
// not behind.
func (f *feed) noteLag() {
	status := f.reader.Status()
	f.mu.Lock()
	defer f.mu.Unlock()
	f.mu.lag, f.mu.known = 0, true
	for _, s := range status {
		if len(f.held.of[s.TopicPartition]) > 0 {
			continue
		}
		f.mu.lag += max(0, s.MaxCommit-s.Position)
		if s.Position >= s.MaxCommit {
			delete(f.mu.follows, s.TopicPartition)
		}
	}
}

// live notes that a record of the partition is processed for the first time.
func (f *feed) live(tp client.TopicPartition) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.mu.follows, tp)
}

// follows tells whether the state is one of the past in any partition.
func (f *feed) follows() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return len(f.mu.follows) > 0
}

// behind is how many offsets the feed is behind the ledger, and whether it has looked.
func (f *feed) behind() (lag int64, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.mu.lag, f.mu.known
}
