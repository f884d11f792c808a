package processor

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
)

// follower reads a changelog for a task that builds up state from it. It hands over what it
// reads batch by batch, and never waits for more than the task takes.
type follower struct {
	topic  string
	area   assignor.Area // what it reads for, of whole partitions
	reader *client.Reader
	// committed: records of open transactions are waited for.
	committed bool
	failed    func(error)
	batches   chan *followed

	cancel context.CancelFunc
	done   chan struct{} // closed when nothing of it runs any more

	mu struct {
		sync.Mutex
		handed map[int32]int64 // everything below was handed over
	}
}

// followed is a part of a changelog.
type followed struct {
	records []*kgo.Record
	next    map[int32]int64 // by partition: everything below has been handed over now
	err     error           // why nothing follows
}

// followBytes is how much of a partition is fetched at a time.
const followBytes = 4 << 20

// openFollower reads partitions of the changelog from the offsets of next on.
func (a *App) openFollower(ctx context.Context, t *logTopic, area assignor.Area, next map[int32]int64) (*follower, error) {
	opts := []client.ReaderOpt{client.KafkaOpts(a.cfg.kafka...), client.ResetPosition(client.NoReset()), client.FetchMaxPartitionBytes(followBytes)}
	if a.cfg.exactlyOnce {
		opts = append(opts, client.ReadCommitted())
	}
	for p, at := range next {
		opts = append(opts, client.StartAt(t.name, p, at))
	}
	reader, err := client.OpenReader(ctx, opts...)
	if err != nil {
		return nil, fmt.Errorf("follow the changelog %s: %w", t.name, err)
	}
	f := &follower{topic: t.name, area: area, reader: reader, committed: a.cfg.exactlyOnce, failed: a.report,
		batches: make(chan *followed), done: make(chan struct{})}
	f.mu.handed = maps.Clone(next)
	reading, cancel := context.WithCancel(context.Background())
	f.cancel = cancel
	go f.run(reading)
	return f, nil
}

// stop ends the follower and waits for it.
func (f *follower) stop(ctx context.Context) error {
	f.cancel()
	<-f.done
	return f.reader.Close(ctx)
}

// run reads until ctx ends.
func (f *follower) run(ctx context.Context) {
	defer close(f.done)
	for {
		records, err := f.poll(ctx)
		if ctx.Err() != nil {
			return
		}
		b := &followed{records: records, next: f.positions(), err: err}
		if err == nil && len(records) == 0 && !f.moved(b.next) {
			continue
		}
		select {
		case f.batches <- b:
		case <-ctx.Done():
			return
		}
		if err != nil {
			return
		}
		f.mu.Lock()
		f.mu.handed = b.next
		f.mu.Unlock()
	}
}

// poll waits for records. Where there are none to come, only the ends of transactions or what
// compaction has left, it returns soon all the same.
func (f *follower) poll(ctx context.Context) ([]*kgo.Record, error) {
	patience := lookAround
	if f.unread() {
		patience = lookAgain
	}
	waiting, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	records, err := f.reader.Poll(waiting)
	switch {
	case err == nil || ctx.Err() != nil || waiting.Err() != nil:
		return records, nil
	case errors.Is(err, client.ErrNoPosition) || errors.Is(err, client.ErrTopicRecreated) || errors.Is(err, client.ErrClosed):
		return nil, fmt.Errorf("follow the changelog %s: %w", f.topic, err)
	}
	f.failed(fmt.Errorf("follow the changelog %s: %w", f.topic, err))
	return nil, nil
}

// lookAgain is how often a follower looks how far it is while there is more to read.
const lookAgain = 5 * time.Millisecond

// positions is where the follower is in each partition when all that was polled is used.
func (f *follower) positions() map[int32]int64 {
	next := make(map[int32]int64)
	for _, s := range f.reader.Status() {
		next[s.Partition] = s.Position
	}
	return next
}

func (f *follower) moved(next map[int32]int64) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	return !maps.Equal(next, f.mu.handed)
}

// unread tells whether there is more in the log, as far as is known, and it can be read.
func (f *follower) unread() bool {
	return slices.ContainsFunc(f.reader.Status(), func(s client.PartitionStatus) bool {
		return s.Err == nil && (f.end(&s) < 0 || s.Position < f.end(&s))
	})
}

// end is where a partition ends for now, -1: that is not known yet.
func (f *follower) end(s *client.PartitionStatus) int64 {
	if f.committed {
		return s.LastStable
	}
	return s.HighWatermark
}

// behind is how many offsets the task is behind the end of the changelog, and whether the
// follower has looked.
func (f *follower) behind() (lag int64, known bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, s := range f.reader.Status() {
		end := f.end(&s)
		if end < 0 {
			return 0, false
		}
		lag += max(0, end-f.mu.handed[s.Partition])
	}
	return lag, true
}
