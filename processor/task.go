package processor

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"github.com/lacunamq/lacuna/client"
	"github.com/lacunamq/lacuna/processor/assignor"
	"github.com/lacunamq/lacuna/statestore"
)

// task is one bucket of the line of the inputs: one state, one row of processors, and the
// goroutine that all of it belongs to.
type task struct {
	app    *App
	member *client.Member
	bucket int32

	ctx     context.Context // ends when the task is to end without finishing anything
	abort   context.CancelFunc
	control chan change
	batches chan *batch
	done    chan struct{}

	// What follows is the goroutine's own.
	want   areas
	group  assignor.Group // what areas are measured by
	store  statestore.OffsetStore
	state  *state
	chain  *chain
	log    *taskLog // nil: no changelog
	feeds  []*feed
	queue  []*batch // handed over and not used up
	open   acks     // with AckOnPunctuate: processed, and not emitted yet
	tries  int      // restarts in a row
	failed failing
	// emitted tells that the unit of work has sent something.
	emitted bool
	// staged: some of what is to be read waits until other partitions were read so far.
	staged bool
	// looked is when others were last shown how far the store is, and unseen that it has gone on.
	looked time.Time
	unseen bool

	// mu guards what others see.
	mu struct {
		sync.Mutex
		has      areas
		feeds    []*feed   // can be asked how far they are
		follower *follower // what builds up state of a changelog
		building []builder // all that builds up state
		staged   bool
		offsets  []statestore.Offset // of the store, by their lowest slots, as they were lately
	}
}

// areas are what a task processes, and what it builds up while another member does.
type areas struct{ active, rebuild assignor.Area }

// builder brings what a state is built up of while another member processes it.
type builder interface {
	// behind is how many offsets it is behind, and whether it has looked.
	behind() (lag int64, known bool)
}

// change is what an assignment changes for a task.
type change struct {
	want  areas
	group assignor.Group
	// end: the task is over.
	end bool
	// given is closed when what is not wanted any more has been given up.
	given chan struct{}
}

// failing is a record or a punctuation that has failed.
type failing struct {
	record   *kgo.Record // nil: none, or a punctuation
	failures int
	again    time.Time // nothing is done before
	skip     bool      // the record is to be skipped
	alone    int       // so many records before it are a unit of their own first
}

func newTask(app *App, m *client.Member, bucket int32, want areas, group assignor.Group) *task {
	t := &task{app: app, member: m, bucket: bucket, want: want, group: group,
		control: make(chan change), batches: make(chan *batch), done: make(chan struct{})}
	t.ctx, t.abort = context.WithCancel(context.Background())
	t.note(want)
	return t
}

// run is the goroutine of the task.
func (t *task) run() {
	defer close(t.done)
	defer t.abort()
	defer t.shut()
	for {
		var next change
		var ok bool
		if t.chain == nil { // nothing is open yet, or any more
			if err := t.openAll(); err != nil {
				t.restart(err)
			}
		}
		select {
		case next, ok = <-t.control:
		default:
			next, ok = t.work()
		}
		if t.ctx.Err() != nil || ok && !t.apply(next) {
			return
		}
	}
}

// work does the next thing there is to do, or waits for one or for a change.
func (t *task) work() (next change, changed bool) {
	if t.ctx.Err() != nil { // what was opened may not be whole
		return change{}, false
	}
	if t.chain == nil {
		return t.wait(t.failed.again)
	}
	now := t.app.cfg.now()
	if now.Before(t.failed.again) {
		return t.wait(t.failed.again)
	}
	follows := t.follows()
	if s := t.chain.schedules.due(now, t.chain.streamTime); s != nil && !follows {
		t.punctuate(s)
		return change{}, false
	}
	did := t.followLog()
	if t.takeBatches(); len(t.queue) > 0 {
		t.process()
		did = true
	}
	if did {
		return change{}, false
	}
	if follows {
		return t.wait(now.Add(lookAround))
	}
	return t.wait(t.chain.schedules.wake())
}

// follows tells that the task does nothing yet but follow what others have processed, so that
// its state is not to be emitted.
func (t *task) follows() bool {
	switch {
	case t.app.topology.Ack == AckOnPunctuate:
		return false
	case t.log != nil:
		return t.log.behind()
	}
	return t.staged || t.want.active.Empty() ||
		slices.ContainsFunc(t.feeds, func(f *feed) bool { return !f.spec.rebuild && f.follows() })
}

// wait waits for a change, for records, or for a moment.
func (t *task) wait(until time.Time) (next change, changed bool) {
	if t.unseen {
		t.lookAtStore()
	}
	var timer <-chan time.Time
	if !until.IsZero() {
		timer = time.After(until.Sub(t.app.cfg.now()))
	}
	batches, followed := t.batches, t.followed()
	if t.chain == nil || t.app.cfg.now().Before(t.failed.again) {
		batches, followed = nil, nil
	}
	select {
	case next = <-t.control:
		return next, true
	case b := <-batches:
		t.queue = append(t.queue, b)
	case b := <-followed:
		t.takeFollowed(b)
	case <-timer:
	case <-t.ctx.Done():
	}
	return change{}, false
}

// takeBatches takes what the feeds have ready.
func (t *task) takeBatches() {
	for {
		select {
		case b := <-t.batches:
			t.queue = append(t.queue, b)
		default:
			return
		}
	}
}

// apply does what an assignment says; false ends the task.
func (t *task) apply(c change) bool {
	if c.end {
		return false
	}
	lost := !t.want.active.Minus(c.want.active).Empty()
	t.want = c.want
	if t.chain != nil && t.app.topology.Ack == AckOnPunctuate && lost {
		t.closeAll() // a scratch store holds records that are another member's now
	}
	t.followGroup(c.group)
	if t.chain != nil {
		t.dropFeeds()
	}
	t.note(c.want)
	close(c.given)
	if t.chain != nil {
		if err := t.addFeeds(); err != nil {
			t.restart(err)
		}
	}
	return true
}

// note lets others see what the task has.
func (t *task) note(has areas) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.mu.has, t.mu.feeds, t.mu.staged = has, slices.Clone(t.feeds), t.staged
	t.mu.follower, t.mu.building = nil, nil
	for _, f := range t.feeds {
		if f.spec.rebuild {
			t.mu.building = append(t.mu.building, f)
		}
	}
	if t.log != nil && t.log.follower != nil && !has.rebuild.Empty() && has.rebuild.Minus(t.log.follower.area).Empty() {
		t.mu.follower = t.log.follower
		t.mu.building = append(t.mu.building, t.log.follower)
	}
}

// restart begins anew from the last commit.
func (t *task) restart(err error) {
	if t.ctx.Err() != nil {
		return
	}
	t.app.log.forget()
	t.closeAll()
	var fatal *fatalError
	if errors.As(err, &fatal) {
		t.app.fail(err)
		return
	}
	t.restarted(err)
}

func (t *task) restarted(err error) {
	t.tries++
	t.failed = failing{again: t.app.cfg.now().Add(t.app.cfg.backoff(t.tries))}
	if t.app.cfg.hooks.Restarted != nil {
		t.app.cfg.hooks.Restarted(t.bucket, err)
	}
}

// openAll opens the state, the processors and the feeds.
func (t *task) openAll() error {
	if now := t.app.cfg.now(); now.Before(t.failed.again) {
		return nil
	}
	if err := t.openLog(); err != nil {
		return err
	}
	if err := t.openState(); err != nil {
		return &fatalError{err}
	}
	if t.log != nil {
		if err := t.log.attach(); err != nil {
			return err
		}
	}
	chain, err := newChain(&t.app.topology, t.bucket, t.state, t.app.cfg.now)
	if err != nil {
		return &fatalError{err}
	}
	t.chain, t.open, t.unseen = chain, make(acks), true
	return t.addFeeds()
}

// openState opens the store. A scratch one begins empty, and so does one that was made of a
// topic which is gone, or whose entries bear units that count for nothing now.
func (t *task) openState() error {
	store, err := t.app.openStore(t.bucket)
	if err != nil {
		return err
	}
	t.store = store
	t.state = &state{backing: store, unit: -1, home: -1}
	wipe := t.app.topology.Ack == AckOnPunctuate
	if t.app.replays() {
		offsets, err := t.storedOffsets()
		if err != nil {
			return err
		}
		wipe = slices.ContainsFunc(offsets, func(o statestore.Offset) bool { return t.app.topicID(o.Topic) != o.TopicID })
	}
	if !wipe {
		if wipe, err = t.state.isOfAnotherMeasure(&t.group); err != nil {
			return fmt.Errorf("bucket %d: read what its state is measured by: %w", t.bucket, err)
		}
	}
	if wipe {
		err = t.state.wipe(&t.group)
	} else {
		err = t.state.setMeasure(&t.group)
	}
	if err != nil {
		return fmt.Errorf("bucket %d: empty its state, or note what it is measured by: %w", t.bucket, err)
	}
	return nil
}

// closeAll closes the feeds, the processors and the store. What is not committed comes again.
func (t *task) closeAll() {
	t.stopFeeds(t.feeds)
	t.feeds, t.queue = nil, nil
	if t.log != nil {
		t.log.close()
	}
	var errs []error
	if t.chain != nil {
		errs = append(errs, t.chain.close())
	}
	if t.store != nil {
		errs = append(errs, t.app.closeStore(t.bucket, t.store))
	}
	t.chain, t.store, t.state, t.open, t.log = nil, nil, nil, nil, nil
	if err := errors.Join(errs...); err != nil {
		t.app.report(err)
	}
}

// shut is the end of the task.
func (t *task) shut() {
	t.closeAll()
	t.note(areas{})
}

// stopFeeds stops feeds, and waits for what they have asked to commit unless the task is
// aborted.
func (t *task) stopFeeds(feeds []*feed) {
	for _, f := range feeds {
		f.cancel()
	}
	for _, f := range feeds {
		if err := f.stop(t.ctx); err != nil && t.ctx.Err() == nil {
			t.app.report(fmt.Errorf("bucket %d: close a reader: %w", t.bucket, err))
		}
	}
}
